"""`agentloom demo` as somebody meets it who has just cloned the repository (SPEC 17)."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.dev_stack import is_alive, run_agentloom

MOST_LINES = 24  # with the line of the installation before it: 25
SLOWEST_S = 30  # ten when nothing else runs on the machine, which a test cannot know


@dataclass(frozen=True)
class Shown:
    """What the demo says: its progress on standard error, its answer and claims on standard output."""

    progress: str
    claims: str


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """What the demo prints, run once in an empty folder."""
    answer = run_agentloom("demo", folder=tmp_path_factory.mktemp("demo"))
    assert answer.returncode == 0, answer.stderr
    return Shown(str(answer.stderr), str(answer.stdout))


def test_the_demo_ends_well_in_few_lines_and_says_how_long_it_took(shown: Shown) -> None:
    lines = shown.claims.splitlines()
    assert len(lines) + len(shown.progress.splitlines()) <= MOST_LINES
    last = re.fullmatch(r"Run succeeded\. Everything is stopped again\. (\d+\.\d) s\.", lines[-1])
    assert last
    assert float(last[1]) < SLOWEST_S


def test_the_worker_is_really_killed_and_the_run_goes_on(shown: Shown) -> None:
    """SPEC R2: the loops after the kill are shown behind it."""
    killed = re.search(r"\*\*\* kill -9 of worker (\d+), and said while there is none: ", shown.progress)
    assert killed
    assert not is_alive(int(killed[1]))
    after = shown.progress[killed.end() :]
    assert re.search(r"\*\*\* the next step came \d+\.\d s later", after)
    assert re.search(r"loop \d+: request", after)


def test_what_was_said_while_there_was_no_worker_reaches_the_model(shown: Shown) -> None:
    """SPEC R1, S4: accepted, in the next request, delivered."""
    said = shown.progress[shown.progress.index("*** kill -9") :]
    assert [mark in said for mark in ("· +1 supplement", "input 2 reached the model")] == [True, True]
    assert re.search(r"2 of 2 inputs reached the model: .* show inputs [0-9a-f-]{36}$", shown.claims, re.MULTILINE)


def test_the_context_is_compacted_on_the_way(shown: Shown) -> None:
    """SPEC K1: the summary is shorter, and the Run goes on with it."""
    assert "context compacted: " in shown.progress
    told = re.search(r"^context compacted: (\d+) → (\d+) tokens .* show compactions ", shown.claims, re.MULTILINE)
    assert told
    assert int(told[2]) < int(told[1])


CLAIMS = (
    r"\d+ model and \d+ tool calls, .*: \S*agentloom show operations \S+",
    r"last request \[.*\] .*: \S*agentloom show view \S+",
    r"rebuilt, sha256 [0-9a-f]{12}: \S*agentloom show request \S+",
    r"\d+ records and \d+ requests checked, 0 broken: \S*agentloom verify \S+",
    r"its workflow: http://127\.0\.0\.1:8233/namespaces/default/workflows/run%2F\S+",
)


def test_each_claim_has_a_command_or_link_that_shows_it(shown: Shown) -> None:
    """SPEC 17, A9, M7."""
    assert [claim for claim in CLAIMS if not re.search(rf"^{claim}$", shown.claims, re.MULTILINE)] == []


def test_nothing_of_the_demo_is_left_running(shown: Shown) -> None:
    pids = re.search(r"PostgreSQL (\d+), Temporal (\d+), worker (\d+) and API (\d+) are up", shown.progress)
    assert pids
    assert [pid for pid in map(int, pids.groups()) if is_alive(pid)] == []


def test_the_answer_quotes_the_documents_and_says_who_speaks(shown: Shown) -> None:
    """SPEC 18: the demo model says in every answer that it is no language model."""
    assert "not a language model" in shown.claims
    assert "A Run survives the crash of a worker because" in shown.claims


def test_the_demo_leaves_its_evidence_in_the_folder(shown: Shown) -> None:
    """What it says can be looked at again with `agentloom dev` on the same data."""
    found = re.search(r"agentloom dev --data-dir (\S+)", shown.claims)
    assert found
    assert Path(found[1]) == Path(".agentloom/demo")
