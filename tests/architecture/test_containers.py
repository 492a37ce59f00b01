"""The container files, which can't be started everywhere: what they promise is read from them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from settings import OUR_MODULES, DatabaseSettings, Settings
from stack.temporal import DYNAMIC_CONFIG, SEARCH_ATTRIBUTES

ROOT = Path(__file__).parents[2]
OFFICIAL = ("postgres:", "temporalio/server:", "temporalio/admin-tools:", "temporalio/ui:", "agentloom:")
ONCE = {"temporal-schema", "temporal-namespace", "migrate"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file as parsed."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return parsed


def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def test_every_image_is_official_or_ours_and_of_a_fixed_version(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in services(compose).values()]
    assert all(image.startswith(OFFICIAL) and not image.endswith((":latest", ":")) for image in images)


def test_no_secret_has_a_default(compose: dict[str, Any]) -> None:
    """SPEC Y1: a start without secrets is refused."""
    secret = re.compile(r"PASSWORD|PWD|KEY|DATABASE_URL")
    values = [
        str(value)
        for service in services(compose).values()
        for name, value in service.get("environment", {}).items()
        if secret.search(name)
    ]
    assert len(values) >= 6
    assert [value for value in values if not re.search(r"\$\{[A-Z_]+:\?[^}]+\}", value)] == []


def test_each_lasting_service_but_the_ui_has_a_health_check(compose: dict[str, Any]) -> None:
    lasting = set(services(compose)) - ONCE - {"temporal-ui"}
    assert {name for name in lasting if "healthcheck" in services(compose)[name]} == lasting


def test_everything_waits_for_what_it_needs(compose: dict[str, Any]) -> None:
    needs = {name: set(service.get("depends_on", ())) for name, service in services(compose).items()}
    assert needs["migrate"] == {"postgres", "temporal-namespace"}
    assert needs["worker"] == needs["api"] == {"migrate"}
    conditions = [
        (needed, condition["condition"])
        for service in services(compose).values()
        for needed, condition in service.get("depends_on", {}).items()
    ]
    assert all((condition == "service_completed_successfully") == (needed in ONCE) for needed, condition in conditions)


def test_worker_and_api_are_told_exactly_what_settings_know(compose: dict[str, Any]) -> None:
    known = {f"AGENTLOOM_{name.upper()}" for name in Settings.model_fields} | {"DATABASE_URL"}
    told = set(services(compose)["api"]["environment"])
    assert {name for name in told if not name.startswith("TEMPORAL_")} <= known
    assert {"DATABASE_URL", "AGENTLOOM_MASTER_KEYS", "AGENTLOOM_INDEX_KEY"} <= told
    assert "database_url" in DatabaseSettings.model_fields


def test_ports_are_open_to_this_machine_only(compose: dict[str, Any]) -> None:
    ports = [port for service in services(compose).values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_a_task_that_was_lost_with_its_workers_does_not_wait_ever_longer(compose: dict[str, Any]) -> None:
    """SPEC R6: a Run whose workers die again and again would end long after its deadline; `dev` says the same."""
    settings = yaml.safe_load(compose["configs"]["temporal-dynamic-config"]["content"])
    assert settings["history.workflowTaskRetryMaxInterval"] == [{"value": "10s"}]
    assert 'history.workflowTaskRetryMaxInterval="10s"' in DYNAMIC_CONFIG


def test_the_search_attributes_are_registered_and_named(compose: dict[str, Any]) -> None:
    """SPEC W3."""
    assert services(compose)["migrate"]["command"] == ["agentloom", "migrate", "--search-attributes"]
    text = (ROOT / "docker-compose.yml").read_text()
    assert [name for name in SEARCH_ATTRIBUTES if name not in text] == []


def test_the_image_runs_as_an_ordinary_user_with_pinned_packages() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^USER (?!root)", dockerfile, re.MULTILINE)
    assert "--constraint constraints.txt" in dockerfile
    assert "https://" not in dockerfile


def test_the_image_gets_our_source_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    ours = {name if (ROOT / name).is_dir() else f"{name}.py" for name in OUR_MODULES}
    assert kept == ours | {"pyproject.toml", "constraints.txt"}
