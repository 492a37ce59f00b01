"""A small model of a Session that says what each request must contain, whatever was done before (SPEC S, P, A, K).

Everything said has a mark. A request is right if it has each mark that its Run may see exactly once, as itself or in a
summary, and no other one. The scripted summariser keeps the marks that it is shown, so that a summary tells what it
stands for. Nothing here knows how AgentLoom does it.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

Json = dict[str, Any]
MARK = re.compile(r"M\d{4}")
SUMMARY = "SUMMARY of"
History = Literal["recent_runs", "session_view"]


@dataclass
class ModelRun:
    """One Run. `shown` are the marks in its requests so far, `own` those of its own facts in order.

    `waiting` are inputs that its next request takes, `undelivered` those that no answer followed yet, `coming` results
    that its next request carries. `history` is what its first request saw of earlier Runs, None before that.
    """

    number: int
    own: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    protected: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    undelivered: list[str] = field(default_factory=list)
    coming: list[str] = field(default_factory=list)
    answer: str | None = None
    history: set[str] | None = None
    behind: set[str] = field(default_factory=set)
    status: str = "running"


@dataclass
class ModelSession:
    """The Runs of a Session, and the inputs that wait for whatever starts next."""

    history: History
    recent: int
    runs: list[ModelRun] = field(default_factory=list)
    carried: list[str] = field(default_factory=list)
    questions: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)

    # --- what people do --------------------------------------------------------------------------------------------

    def ask(self, mark: str) -> ModelRun:
        run = ModelRun(len(self.runs) + 1)
        self.runs.append(run)
        self.questions.add(mark)
        self._take(run, [*self.carried, mark])
        return run

    def resume(self, run: ModelRun, mark: str | None) -> None:
        run.status = "running"
        self._take(run, self.carried + ([mark] if mark else []))

    def supplement(self, run: ModelRun, mark: str) -> None:
        self._take(run, [mark])

    def _take(self, run: ModelRun, marks: list[str]) -> None:
        run.waiting += marks
        run.inputs += [mark for mark in marks if mark not in run.inputs]
        self.carried = [mark for mark in self.carried if mark not in marks]

    def withdraw(self, mark: str) -> None:
        """It waits, so nobody answers to it; where a request had it, the next one has it no longer."""
        self.withdrawn.add(mark)
        self.carried = [one for one in self.carried if one != mark]
        for run in self.runs:
            for marks in (run.waiting, run.protected, run.own):
                marks[:] = [one for one in marks if one != mark]

    # --- what the model gets and says --------------------------------------------------------------------------------

    def request(self, run: ModelRun) -> set[str]:
        """The marks of the Run's next request."""
        if run.history is None:
            older = [one for one in self.runs if one.number < run.number]
            run.history = self._history_of(older) - set(run.waiting)
            run.behind = {mark for one in older for mark in one.own}
        new = [mark for mark in run.waiting if mark not in run.own]
        run.protected += new
        run.undelivered += [mark for mark in run.waiting if mark not in self.questions]
        run.own += run.coming + new
        run.waiting, run.coming = [], []
        return run.history | set(run.own)

    def output(self, run: ModelRun) -> None:
        """The model began to answer: what the request held has arrived."""
        run.undelivered = []

    def called(self, run: ModelRun, said: str) -> None:
        run.own.append(said)

    def answered(self, run: ModelRun, said: str) -> None:
        run.own.append(said)
        run.answer = said

    def end(self, run: ModelRun, status: str) -> None:
        """What no answer followed is carried to whatever starts next; the question is not."""
        left = {mark for mark in run.undelivered + run.waiting if mark not in self.questions}
        self.carried = sorted({*self.carried, *left})
        run.waiting, run.undelivered, run.status = [], [], status

    # --- what may be seen --------------------------------------------------------------------------------------------

    def _history_of(self, runs: list[ModelRun]) -> set[str]:
        """Every input of earlier Runs; the facts of all of them, or of the last ones, else their answers."""
        whole = runs if self.history == "session_view" else runs[max(0, len(runs) - self.recent) :]
        facts = {mark for run in whole for mark in (*run.own, *run.coming)}
        answers = {run.answer for run in runs if run.answer is not None}
        inputs = {mark for run in runs for mark in run.inputs}
        return (facts | answers | inputs) - self.withdrawn


def wrong_in(messages: list[Json], expected: set[str], run: ModelRun, history: History) -> list[str]:
    """What is wrong with a request, in words; nothing if it is right."""
    texts = [(str(message["role"]), str(message.get("content") or "")) for message in messages]
    covered = Counter(mark for _, text in texts if SUMMARY in text for mark in MARK.findall(text))
    plain = Counter(mark for _, text in texts if SUMMARY not in text for mark in MARK.findall(text))
    both = covered + plain
    wrong = [f"{mark} is missing" for mark in sorted(expected - both.keys())]
    wrong += [f"{mark} stands {count} times" for mark, count in sorted(both.items()) if count > 1]
    may_be_covered = run.behind if history == "recent_runs" else set()  # a summary may know more than outlines show
    strange = {mark for mark in both if mark not in expected and (plain[mark] or mark not in may_be_covered)}
    wrong += [f"{mark} should not be there" for mark in sorted(strange)]
    said = [MARK.findall(text)[0] for role, text in texts if role == "user" and MARK.match(text)]
    places = [said.index(mark) if mark in said else -1 for mark in run.protected]
    wrong += [f"{mark} is protected, and not there as itself" for mark in run.protected if mark not in said]
    return wrong + ["protected inputs are out of order" for one, other in pairwise(places) if other < one]


def summary_of(texts: Iterable[str]) -> str:
    """What the summariser says: every mark that it was shown, once."""
    marks = dict.fromkeys(mark for text in texts for mark in MARK.findall(text))
    return f"{SUMMARY} {' '.join(marks)}"


def breaks_prefix(before: list[Json], after: list[Json]) -> bool:
    """Whether a request does not begin with the one before it, and no new summary is the reason (SPEC A7)."""
    if summaries(before) != summaries(after):
        return False
    return after[: len(before)] != before


def summaries(messages: list[Json]) -> list[str]:
    """The summaries in a request."""
    return [str(message["content"]) for message in messages if SUMMARY in str(message.get("content"))]
