"""`agentloom demo` as somebody meets it who has just cloned the repository (SPEC 17)."""

import re
from pathlib import Path

import pytest

from tests.support.dev_stack import is_alive, run_agentloom

MOST_LINES = 25
SLOWEST_S = 30  # ten when nothing else runs on the machine, which a test cannot know


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo prints, run once in an empty folder."""
    answer = run_agentloom("demo", folder=tmp_path_factory.mktemp("demo"))
    assert answer.returncode == 0, answer.stderr
    return str(answer.stdout)


def test_the_demo_ends_well_in_few_lines_and_says_how_long_it_took(shown: str) -> None:
    lines = shown.splitlines()
    assert len(lines) <= MOST_LINES
    last = re.fullmatch(r"Run succeeded\. Everything is stopped again\. (\d+\.\d) s\.", lines[-1])
    assert last
    assert float(last[1]) < SLOWEST_S


def test_the_worker_is_really_killed_and_the_run_goes_on(shown: str) -> None:
    """SPEC R2: the loops after the kill are shown behind it."""
    killed = re.search(r"\*\*\* kill -9 of worker (\d+); the next step came \d+\.\d s later", shown)
    assert killed
    assert not is_alive(int(killed[1]))
    assert re.search(r"loop \d+: request", shown[killed.end() :])


def test_what_was_said_while_there_was_no_worker_reaches_the_model(shown: str) -> None:
    """SPEC R1, S4: accepted, in the next request, delivered."""
    said = shown.index("*** said meanwhile")
    assert [mark in shown[said:] for mark in ("· +1 supplement", "input 2 reached the model")] == [True, True]
    assert re.search(r"show inputs [0-9a-f-]{36}\)", shown)


def test_each_claim_has_a_command_that_shows_it(shown: str) -> None:
    claims = [
        line for line in shown.splitlines() if re.search(r"\d+ model and \d+ tool calls|^last request|^rebuilt", line)
    ]
    assert len(claims) == 3
    assert [line for line in claims if not re.search(r": \S*agentloom show ", line)] == []
    assert "/namespaces/default/workflows/run%2F" in shown


def test_nothing_of_the_demo_is_left_running(shown: str) -> None:
    pids = re.search(r"PostgreSQL (\d+), Temporal (\d+), worker (\d+) and API (\d+) are up", shown)
    assert pids
    assert [pid for pid in map(int, pids.groups()) if is_alive(pid)] == []


def test_the_answer_quotes_the_documents_and_says_who_speaks(shown: str) -> None:
    """SPEC 18: the demo model says in every answer that it is no language model."""
    assert "not a language model" in shown
    assert "A Run survives the crash of a worker because" in shown


def test_the_demo_leaves_its_evidence_in_the_folder(shown: str) -> None:
    """What it says can be looked at again with `agentloom dev` on the same data."""
    found = re.search(r"agentloom dev --data-dir (\S+)", shown)
    assert found
    assert Path(found[1]) == Path(".agentloom/demo")
