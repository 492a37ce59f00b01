"""The build files: one way to run everything, nothing left out, nothing that names a place on the network."""

import re
import tomllib
from pathlib import Path

from settings import OUR_MODULES

ROOT = Path(__file__).parents[2]
TARGETS = ("install", "demo", "dev", "test", "bench", "crash", "lint")


def makefile() -> str:
    return (ROOT / "Makefile").read_text()


def test_every_folder_of_tests_is_run() -> None:
    """A folder the Makefile does not name would be green for ever."""
    match = re.search(r"^SUITES := (.*)$", makefile(), re.MULTILINE)
    assert match
    assert {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")} <= {
        *match[1].split()
    }


def test_the_promised_targets_exist() -> None:
    assert [target for target in TARGETS if not re.search(rf"^{target}:", makefile(), re.MULTILINE)] == []


def test_ci_runs_what_a_person_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "make test" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)] == []


def test_every_dependency_is_pinned_by_the_constraints() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["test"]
    names = {re.split(r"[\[<>=]", line)[0].lower() for line in wanted}
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert names - pinned == set()


def test_what_is_installed_is_what_an_app_folder_may_not_clash_with() -> None:
    """SPEC 17: the list of our names is the list of what we install."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    installed = {name.rstrip("*") for name in tools["packages"]["find"]["include"]} | {*tools["py-modules"]}
    assert installed == OUR_MODULES
