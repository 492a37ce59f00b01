"""The command line's side of the HTTP API: where it is, how to call it, and how to follow a Run's events.

Every failure is a `CommandError` that says what to do next; nothing is printed here.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

import httpx
from httpx_sse import EventSource, SSEError

from cli.asked import STACK, start_command
from cli.ids import WHERE_TO_LOOK
from cli.output import CommandError, ExitCode
from settings import load_client_settings

DESCRIPTION = "dev.json"
DEV_FILE = Path(".agentloom") / DESCRIPTION
PREFIX = "/api/v1"
RECONNECT_WITHIN_S = 30.0
T = TypeVar("T")

PROBLEM_MEDIA_TYPE = "application/problem+json"
NO_CONTENT = 204
OF_A_GATEWAY = (502, 503, 504)
READ_TIMEOUT_S = 75.0  # longer than the API's longest poll and its keep-alive comments


class ApiNotConfiguredError(CommandError):
    """Neither the environment nor a running `agentloom dev` says where the API is."""

    def __init__(self) -> None:
        super().__init__(
            "There is no AgentLoom to talk to.",
            why=f"AGENTLOOM_API is not set, and no agentloom dev runs in this folder (no {DEV_FILE}).",
            mend="agentloom dev",
            exit_code=ExitCode.NOT_REACHABLE,
        )


class NoStackError(CommandError):
    """No stack runs on the data folder that `--stack` names."""

    def __init__(self, stack: Path) -> None:
        super().__init__(
            f"No stack runs on {stack}.",
            why=_why_none_runs(stack),
            mend="agentloom --stack FOLDER …" if stack.is_file() else start_command(stack),
            exit_code=ExitCode.NOT_REACHABLE,
        )


def _why_none_runs(stack: Path) -> str:
    if stack.is_dir():
        return "It was stopped; what it stored is shown while one runs there."
    return "That is a file; --stack names a data folder." if stack.exists() else "There is no such folder."


class ApiUnreachableError(CommandError):
    """The API does not answer at the address, or what stands before it says so with a status."""

    def __init__(self, address: str, *, status: int | None = None) -> None:
        stack = STACK.get()
        super().__init__(
            f"AgentLoom does not answer at {address}.",
            why=f"What stands before it answered with HTTP status {status}." if status else "",
            mend=start_command(stack) if stack else "agentloom doctor",
            exit_code=ExitCode.NOT_REACHABLE,
        )


class NotAgentLoomError(CommandError):
    """Something answers at the address, and not in the way of this API."""

    def __init__(self, address: str, status: int) -> None:
        super().__init__(
            f"What answers at {address} is not AgentLoom (HTTP status {status}).",
            why="It is another server, or a proxy that refuses by itself.",
            mend="export AGENTLOOM_API=http://127.0.0.1:8700   (the address alone, without a path)",
            exit_code=ExitCode.NOT_REACHABLE,
        )


class ApiRefusedError(CommandError):
    """The API answered with a problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        self.refusal = str(problem.get("code", "INTERNAL"))
        title = str(problem.get("title") or f"The API answered with HTTP status {status}.")
        detail = str(problem.get("detail") or "")
        if self.refusal == "NOT_FOUND" and detail:  # it names what is missing
            title, detail = detail, "it never was there, or it belongs to somebody else" if "kind" in problem else ""
        super().__init__(
            title,
            why=f"{self.refusal}: {detail}" if detail and detail != title else self.refusal,
            mend=_next_command(self.refusal, problem),
            exit_code=ExitCode.NOT_REACHABLE if status == 503 else ExitCode.REFUSED,
        )

    def tell_places(self, told: Callable[[str], str]) -> None:
        """Say why by the names that whoever asked knows the places of the request by."""
        if reasons := self.problem.get("errors"):
            self.why = "; ".join(f"{told(one['field'])} {one['reason']}" for one in reasons)


def _next_command(code: str, problem: Mapping[str, Any]) -> str:
    """The command that helps after a refusal, or nothing."""
    match code:
        case "RUN_ACTIVE":
            return f"agentloom watch {problem.get('run_id', 'RUN')}   (or: agentloom say …, agentloom stop …)"
        case "RUN_NOT_ACTIVE" | "RUN_NOT_RESUMABLE":
            return "agentloom ask --session SESSION …"
        case "INPUT_NOT_PENDING":
            return "agentloom sessions inputs SESSION"
        case "SESSION_ARCHIVED":
            return "agentloom sessions unarchive SESSION"
        case "UNAUTHENTICATED":
            return "export AGENTLOOM_API_KEY=al_…   (an admin makes one: agentloom keys create)"
        case "UNAVAILABLE":
            return "agentloom doctor"
        case "NOT_FOUND":
            return WHERE_TO_LOOK.get(str(problem.get("kind")), "")
        case _:
            return ""


@dataclass(frozen=True)
class Target:
    """Address and key of an API; `ui` is the Temporal web UI, where it is known."""

    api: str
    api_key: str = field(repr=False)
    ui: str | None = None


def find_target() -> Target:
    """The stack that `--stack` names, else AGENTLOOM_API and AGENTLOOM_API_KEY, else this folder's `agentloom dev`.

    Raises NoStackError, ApiNotConfiguredError, or SettingsError for a malformed environment.
    """
    if stack := STACK.get():
        if (dev := _described(stack / DESCRIPTION)) is None:
            raise NoStackError(stack)
        return Target(dev["api"].rstrip("/"), dev["api_key"], dev.get("temporal_ui"))
    told = load_client_settings()
    dev = _described(DEV_FILE)
    if told.api:
        key = told.api_key.get_secret_value() if told.api_key else ""
        return Target(told.api.rstrip("/"), key or _key_of(dev, told.api))
    if dev is None:
        raise ApiNotConfiguredError
    key = told.api_key.get_secret_value() if told.api_key else dev["api_key"]
    return Target(dev["api"].rstrip("/"), key, dev.get("temporal_ui"))


def _key_of(dev: Mapping[str, Any] | None, api: str) -> str:
    """The key of the dev stack, if the address is the dev stack's: a key never goes to another server."""
    return str(dev["api_key"]) if dev and dev["api"].rstrip("/") == api.rstrip("/") else ""


def _described(file: Path) -> dict[str, Any] | None:
    """What a running stack says of itself there; None if none does."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    is_whole = isinstance(found, dict) and all(isinstance(found.get(name), str) for name in ("api", "api_key"))
    return found if is_whole else None


class Api:
    """One connection pool to the API. Use it as an async context manager."""

    def __init__(self, target: Target) -> None:
        self.target = target
        headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
        timeout = httpx.Timeout(READ_TIMEOUT_S, connect=5)
        self._http = httpx.AsyncClient(base_url=target.api, headers=headers, timeout=timeout, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, path: str, **params: Any) -> Any:
        """The JSON at a path below `/api/v1`; parameters that are None are left out."""
        return await self._call("GET", path, params=_given(params))

    async def get_text(self, path: str) -> str:
        """The JSON at a path as the API wrote it."""
        return (await self._answer("GET", path)).text

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a body without its None fields, or none at all."""
        return await self._call("POST", path, json=None if body is None else _given(body))

    async def post_again(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a body that has a client key: a lost answer is asked for again, for a while."""
        for pause in (0.2, 0.5, 1.0, 2.0, 4.0):
            try:
                return await self.post(path, body)
            except ApiUnreachableError:
                await asyncio.sleep(pause)
        return await self.post(path, body)

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._call("PATCH", path, json=_given(body))

    async def delete(self, path: str, **params: Any) -> Any:
        return await self._call("DELETE", path, params=_given(params))

    async def pages(self, path: str, *, at_most: int | None = None, **params: Any) -> list[Any]:
        """The items of all pages of a list, or the first `at_most` of them."""
        items: list[Any] = []
        cursor: str | None = None
        while True:
            page = await self.get(path, cursor=cursor, **params)
            items += page["items"]
            cursor = page.get("next")
            if not cursor or (at_most is not None and len(items) >= at_most):
                return items[:at_most]

    async def run(self, run_id: str | UUID) -> dict[str, Any]:
        """The Run as it stands."""
        found: dict[str, Any] = await self.get(f"/runs/{run_id}")
        return found

    async def events(self, run_id: str | UUID, *, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
        """The Run's events until it has ended, each once and in order, over lost connections and API restarts."""
        failing_since: float | None = None
        clock = asyncio.get_running_loop().time
        while True:
            try:
                async with aclosing(self._stream(run_id, after)) as stream:
                    async for event in stream:
                        failing_since = None
                        after = event["run_seq"]
                        yield event
                return
            except (httpx.TransportError, SSEError, ApiRefusedError, ApiUnreachableError) as error:
                if isinstance(error, ApiRefusedError) and error.status < 500:
                    raise
                failing_since = failing_since or clock()
                if clock() - failing_since > RECONNECT_WITHIN_S:
                    raise ApiUnreachableError(self.target.api) from None
                await asyncio.sleep(0.2)

    async def _stream(self, run_id: str | UUID, after: int) -> AsyncGenerator[dict[str, Any], None]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        async with self._http.stream("GET", f"{PREFIX}/runs/{run_id}/events", headers=headers) as answer:
            if answer.status_code != 200:
                await answer.aread()
                raise self._refusal(answer)
            async with aclosing(EventSource(answer).aiter_sse()) as events:
                async for event in events:
                    if event.data:  # a sign of life between events comes as one without data
                        yield json.loads(event.data)

    async def _call(self, method: str, path: str, **how: Any) -> Any:
        answer = await self._answer(method, path, **how)
        if answer.status_code == NO_CONTENT:
            return None
        try:
            return answer.json()
        except ValueError:
            raise NotAgentLoomError(self.target.api, answer.status_code) from None

    async def _answer(self, method: str, path: str, **how: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, f"{PREFIX}{path}", **how)
        except httpx.TransportError:
            raise ApiUnreachableError(self.target.api) from None
        except UnicodeEncodeError:  # a name or an id from the command line
            raise CommandError("An argument is not UTF-8.", why="It holds bytes of another encoding.") from None
        if not answer.is_success:
            raise self._refusal(answer)
        return answer

    def _refusal(self, answer: httpx.Response) -> CommandError:
        """What a refusal means: AgentLoom speaks in problem documents, and everybody else in other ways."""
        if answer.headers.get("content-type") == PROBLEM_MEDIA_TYPE:
            return ApiRefusedError(answer.status_code, answer.json())
        if answer.status_code in OF_A_GATEWAY:
            return ApiUnreachableError(self.target.api, status=answer.status_code)
        return NotAgentLoomError(self.target.api, answer.status_code)


def call_api(work: Callable[[Api], Awaitable[T]]) -> T:
    """Run a command's work against the API of `find_target`."""

    async def connected() -> T:
        async with Api(find_target()) as api:
            return await work(api)

    return asyncio.run(connected())


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
