"""The examination behind `agentloom doctor`: each part is sound, broken with the command that mends it, or skipped.

A check reads only; it starts, changes and repairs nothing. No finding holds a password or a key.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from egress.addresses import PrivateAddresses
from egress.client import build_client
from egress.errors import CertificateUntrustedError, EgressError
from stack import postgres, temporal
from stack.binaries import OLDEST_MAJOR
from stack.dev import DevOptions, answers_ready
from stack.findings import START, Broken, Finding, Skipped, Sound
from stack.ports import is_free
from stack.whereabouts import Whereabouts, find
from stack.workers import check_worker


async def examine(data_dir: Path, *, model_url: str | None = None) -> list[Finding]:
    """Look at every part of the stack that the environment names or that runs on the folder (SPEC 17)."""
    place = find(data_dir)
    findings: list[Finding] = [check_python()]
    findings += await check_database(place.database_url, start=place.start)
    findings += await check_temporal(place)
    findings.append(await check_api(place.api_url, start=place.start))
    findings.append(check_ports(DevOptions(), is_running=place.api_url is not None, start=place.start))
    findings += await check_models(place, model_url)
    return findings


def check_python(version_info: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Python 3.11 or newer, as the packages need it."""
    version = ".".join(map(str, version_info))
    if version_info < (3, 11):
        return Broken("Python", f"{version} is too old; 3.11 or newer is needed", "make install PYTHON=python3.11")
    return Sound("Python", version)


async def check_database(url: str | None, *, start: str = START) -> list[Finding]:
    """PostgreSQL answers, is new enough, and has the schema of this code. `start` is what starts a stack."""
    if url is None:
        return [Broken("PostgreSQL", "none is named by DATABASE_URL, and no stack runs in this folder", start)]
    if reason := await postgres.problem(url):
        return [Broken("PostgreSQL", reason, f"{start}  (or start the server that DATABASE_URL names)")]
    connection = await asyncpg.connect(url)
    try:
        major = connection.get_server_version().major
    finally:
        await connection.close()
    if major < OLDEST_MAJOR:
        return [Broken("PostgreSQL", f"version {major}; {OLDEST_MAJOR} or later is needed", "unset DATABASE_URL")]
    return [Sound("PostgreSQL", f"version {major} answers"), await _check_schema(url)]


async def _check_schema(url: str) -> Finding:
    from storage.migrate import knows, revision

    current, newest = await revision(url)
    if not knows(current):
        mend = "make install  (of the newer version that has migrated it)"
        return Broken("schema", f"at {current}, which this version does not know; it needs {newest}", mend)
    if current != newest:
        return Broken("schema", f"at {current or 'nothing'}, this code needs {newest}", "agentloom migrate")
    return Sound("schema", f"at {newest}, the newest")


async def check_temporal(place: Whereabouts) -> list[Finding]:
    """Temporal answers, knows our search attributes, and a worker polls the task queue."""
    if not place.temporal_from_environment and place.temporal_address is None:
        why = "none is named by TEMPORAL_ADDRESS, and no stack runs in this folder"
        return _without_worker(Broken("Temporal", why, place.start))
    try:
        client = await place.temporal_client()
        missing = await temporal.missing_search_attributes(client)
        return [_judge_attributes(missing, client), await check_worker(client, place.task_queue)]
    except (RPCError, RuntimeError) as error:
        return _without_worker(_without_temporal(place, error))


def _without_worker(temporal: Broken) -> list[Finding]:
    """No worker has anything to poll then; who asks for the worker alone is not told that it is well."""
    return [temporal, Broken("worker", "has nothing to poll without Temporal", temporal.mend)]


def _without_temporal(place: Whereabouts, error: RPCError | RuntimeError) -> Broken:
    if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
        mend = "temporal operator namespace create --namespace NAME  (or correct TEMPORAL_NAMESPACE)"
        return Broken("Temporal", f"{place.temporal_address} answers and has no such namespace", mend)
    mend = f"{place.start}  (or start the server that TEMPORAL_ADDRESS names)"
    return Broken("Temporal", f"nothing healthy answers at {place.temporal_address}", mend)


def _judge_attributes(missing: tuple[str, ...], client: Client) -> Finding:
    address = client.service_client.config.target_host
    if not missing:
        return Sound("Temporal", f"{address} answers and knows the search attributes")
    flags = " ".join(f"--name {name} --type Keyword" for name in missing)
    mend = f"temporal operator search-attribute create {flags} --namespace {client.namespace}"
    return Broken("Temporal", f"{address} lacks search attributes: {', '.join(missing)}", mend)


async def check_api(url: str | None, *, start: str = START) -> Finding:
    """The API says that it is ready."""
    if url is None:
        return Broken("API", "none is named by AGENTLOOM_API, and no stack runs in this folder", start)
    if await answers_ready(url):
        return Sound("API", f"{url} is ready")
    return Broken("API", f"{url} does not say that it is ready", f"{start}  (or: python -m api)")


def check_ports(options: DevOptions, *, is_running: bool, start: str = START) -> Finding:
    """The ports a stack would take are free, unless one is running."""
    if is_running:
        return Skipped("ports", "a stack is running")
    wanted = {
        "--api-port": options.api_port,
        "--temporal-port": options.temporal_port,
        "--ui-port": options.ui_port,
        "--pg-port": options.pg_port,
    }
    if taken := {option: port for option, port in wanted.items() if not is_free(port)}:
        ports = ", ".join(map(str, taken.values()))
        return Broken("ports", f"in use by other programs: {ports}", f"{start} {' '.join(f'{o} 0' for o in taken)}")
    return Sound("ports", f"free: {', '.join(map(str, wanted.values()))}")


async def check_models(place: Whereabouts, model_url: str | None) -> list[Finding]:
    """Every model address that a published agent names, and the one asked for, answers HTTP at all."""
    named = await _addresses_of_agents(place.api_url, place.api_key) if place.api_url and place.api_key else None
    addresses = (named or set()) | ({model_url} if model_url else set())
    if addresses:
        return [await _check_model(address) for address in sorted(addresses)]
    if named is None:
        return [Skipped("model", "the agents can't be read; that needs the API and a key")]
    return [Skipped("model", "no agent names an address; the demo model needs none")]


async def _addresses_of_agents(api_url: str, api_key: str) -> set[str] | None:
    """The addresses in the newest releases of all agents; None if the API does not tell."""
    headers = {"Authorization": f"Bearer {api_key}"}
    async with httpx.AsyncClient(trust_env=False, timeout=5, base_url=f"{api_url}/api/v1", headers=headers) as client:
        try:
            ids = [agent["release_id"] async for agent in _agents(client) if agent.get("release_id")]
            releases = [(await client.get(f"/releases/{number}")).raise_for_status().json() for number in ids]
        except (httpx.HTTPError, KeyError):
            return None
    return {url for release in releases for url in _model_addresses(release)}


async def _agents(client: httpx.AsyncClient) -> AsyncIterator[dict[str, Any]]:
    """All pages of the list of agents."""
    cursor: dict[str, str] | None = {}
    while cursor is not None:
        page = (await client.get("/agents", params={"limit": "200"} | cursor)).raise_for_status().json()
        for agent in page["items"]:
            yield agent
        cursor = {"cursor": page["next"]} if page.get("next") else None


def _model_addresses(entry: dict[str, Any]) -> list[str]:
    """The addresses of the models that answer and summarise, from an answer of `GET /releases/{id}`.

    They are the resolved ones: a definition need not name what its provider or stored connection says.
    """
    release = entry["release"]
    models = (release, release.get("summariser") or {})
    return [url for model in models if isinstance(url := model.get("base_url"), str)]


async def _check_model(address: str) -> Finding:
    private: PrivateAddresses = "all"  # a person asks from their own machine
    async with build_client(private_addresses=private) as client:
        try:
            answer = await client.get(address)
        except CertificateUntrustedError:
            mend = f"curl -I {address}  (then mend its certificate, or correct model.base_url and publish again)"
            return Broken("model", f"the certificate of {address} is not trusted", mend)
        except (httpx.HTTPError, httpx.InvalidURL, EgressError):
            mend = f"curl -I {address}  (then correct model.base_url and publish again)"
            return Broken("model", f"{address} does not answer", mend)
    return Sound("model", f"{address} answers (HTTP {answer.status_code})")
