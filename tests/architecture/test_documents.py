"""The documents are held to what exists: tests, routes, commands, variables, links. Prose alone goes stale unseen."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from fastapi.routing import APIRoute

from api.app import PREFIX
from api.routes import agents, compactions, connections, contexts, health, operations, people, runs, sessions
from cli.main import COMMAND_MODULES, build_app
from context.policy import AgentDefinition
from settings import ClientSettings, Settings

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

HIGHEST = {
    "S": 13,
    "P": 7,
    "A": 11,
    "B": 8,
    "K": 15,
    "H": 12,
    "T": 10,
    "C": 5,
    "X": 3,
    "M": 7,
    "L": 7,
    "W": 7,
    "R": 8,
    "Y": 6,
}
IDS = {f"{letter}{number}" for letter, highest in HIGHEST.items() for number in range(1, highest + 1)}
IDS |= {"H1a", "L3a", "W3a", "E"}
STATE = re.compile(r"done|open|partly: \S.*")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- coverage.md -----------------------------------------------------------------------------------------------------


def rows(page: str = "coverage.md") -> list[list[str]]:
    """The cells of every row of every table of the page, headings left out."""
    lines = (ROOT / "docs" / page).read_text("utf-8").splitlines()
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [cells for cells in found if not cells[0].startswith("---") and cells[-1] != "state"]


def state_of(what: str) -> str:
    return next(cells[-1] for cells in rows() if cells[0] == what)


def named_tests(cells: list[str]) -> list[str]:
    return re.findall(r"`([\w/]+\.py::\w+)`", cells[-2])


@cache
def known_tests() -> frozenset[str]:
    """Every test below `tests/` as `folder/file.py::name`."""
    return frozenset(_tests())


def _tests() -> Iterator[str]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield f"{path.relative_to(ROOT / 'tests')}::{node.name}"


def test_every_requirement_has_its_row_once() -> None:
    listed = Counter(cells[0] for cells in rows() if re.fullmatch(r"[A-Z](\d{1,2}a?)?", cells[0]))
    assert set(listed) == IDS
    assert [one for one, count in listed.items() if count > 1] == []


PAGES = pytest.mark.parametrize("page", ["coverage.md", "acceptance-rows.md"])


@PAGES
def test_every_test_that_a_row_names_exists(page: str) -> None:
    assert rows(page) != []
    assert [name for cells in rows(page) for name in named_tests(cells) if name not in known_tests()] == []


@PAGES
def test_what_is_called_done_or_partly_done_is_shown_by_a_test(page: str) -> None:
    assert [cells[0] for cells in rows(page) if not STATE.fullmatch(cells[-1])] == []
    assert [cells[0] for cells in rows(page) if (cells[-1] != "open") is not bool(named_tests(cells))] == []


def test_routes_are_listed_as_they_are() -> None:
    modules = (agents, sessions, runs, compactions, operations, contexts, connections, people)
    served = {f"{method} {route.path}" for one in modules for route in _routes(one) for method in route.methods or ()}
    served |= {f"GET {route.path}" for route in _routes(health)} | {"GET /openapi.json"}
    done = {cells[0].strip("`") for cells in rows() if re.match(r"`[A-Z]+ /", cells[0]) and cells[-1] != "open"}
    assert done == served
    assert PREFIX == "/api/v1"


def _routes(module: ModuleType) -> list[APIRoute]:
    return [route for route in module.routes.routes if isinstance(route, APIRoute)]


def test_commands_are_listed_as_they_are() -> None:
    done = {cells[0].strip("`").partition(" ")[2] for cells in rows() if cells[0].startswith("`agentloom ")}
    unbuilt = {one for one in done if state_of(f"`agentloom {one}`") == "open"}
    assert done - unbuilt == commands()


def test_keys_of_a_definition_are_listed() -> None:
    keys = set(AgentDefinition.model_fields)
    assert keys <= {cells[0].strip("`") for cells in rows()}


# --- decisions -------------------------------------------------------------------------------------------------------


def test_decisions_are_numbered_once_each() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert [path.name for path in DECISIONS if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)] == []
    assert [number for number, count in Counter(numbers).items() if count > 1] == []


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_what_was_decided_at_what_cost_and_what_would_change_it(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith(f"# {path.name[:4]} ")
    assert re.search(r"^Status: (accepted|replaced by \d{4})", text, re.MULTILINE)
    for part in ("**Forces.**", "**Decision", "**What would change our mind.**"):
        assert part in text, f"{path.name} lacks {part}"
    assert len(text.splitlines()) <= 70


# --- what is promised to readers -------------------------------------------------------------------------------------


@cache
def commands() -> frozenset[str]:
    """The names of all `agentloom` commands that the help shows."""
    app = build_app()
    own = [
        one.name or one.callback.__name__.strip("_")
        for one in app.registered_commands
        if one.callback and not one.hidden
    ]
    return frozenset([*own, *(group.name for group in app.registered_groups if group.name)])


def test_every_command_that_a_document_names_exists() -> None:
    modules = frozenset(COMMAND_MODULES)
    named = {
        (shown(path), name)
        for path in DOCUMENTS
        for name in re.findall(r"`(?:[\w./]*/)?agentloom ([a-z]+)", path.read_text("utf-8"))
        if path.name != "coverage.md"
    }
    assert [one for one in sorted(named) if one[1] not in commands() | modules] == []


def test_every_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        (shown(path), name)
        for path in DOCUMENTS
        for name in re.findall(r"(?:`|^)make ([a-z]+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert {"demo", "test", "dev"} <= {name for _, name in named}
    assert [one for one in sorted(named) if one[1] not in targets] == []


def test_every_variable_is_explained_and_no_other() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    own = {f"AGENTLOOM_{name.upper()}" for kind in (Settings, ClientSettings) for name in kind.model_fields}
    assert set(re.findall(r"AGENTLOOM_[A-Z_]*[A-Z]", page)) == own - {"AGENTLOOM_DATABASE_URL"}
    assert "`DATABASE_URL`" in page


def test_every_link_leads_to_a_file() -> None:
    broken = []
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text("utf-8")):
            if not target.startswith(("http://", "https://")) and not (path.parent / target).exists():
                broken.append(f"{shown(path)} -> {target}")
    assert broken == []


def test_every_module_that_the_house_pages_name_exists() -> None:
    broken = []
    for name in ("architecture", "glossary", "house", "operations"):
        text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
        for path in re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", text):
            if not (ROOT / path).exists():
                broken.append(f"{name}.md -> {path}")
    assert broken == []


def test_no_document_names_a_place_on_somebodys_machine() -> None:
    places = re.compile(r"(?<![\w.])/(?:root|home|tmp|work|Users|mnt)/")
    assert [shown(path) for path in DOCUMENTS if places.search(path.read_text("utf-8"))] == []


def test_the_screenshot_is_a_picture_of_reasonable_size() -> None:
    picture = (ROOT / "docs" / "images" / "temporal-ui.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 300_000


def test_the_changelog_says_what_happens_to_running_workflows() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert releases
    assert [part.splitlines()[0] for part in releases if "### Running workflows" not in part] == []
