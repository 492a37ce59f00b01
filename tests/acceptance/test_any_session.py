"""Any sequence of questions, supplements, withdrawals, stops, failures, resumes and compactions, in both forms of
history, against a small model of what each request must contain (SPEC S, P1-P3, P5, P7, A2, A4, A7, A9, K10, M7).
"""

import asyncio
import hashlib
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.support import replies
from tests.support.any_session import (
    History,
    Json,
    ModelRun,
    ModelSession,
    breaks_prefix,
    summary_of,
    wrong_in,
)
from tests.support.compactions import is_summary
from tests.support.model_server import RecordedRequest
from tests.support.replies import Reply
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, Servers, python_tool, working_world

T = TypeVar("T")
Step = Literal["answer", "call", "slow call", "fail"]
RECENT = 1
PADDING = "word " * 60

plans = st.lists(st.tuples(st.sampled_from(["call", "slow call", "call", "fail"]), st.booleans()), max_size=2)


@dataclass
class Background:
    """A world whose event loop runs in a thread of its own, for tests that are not asynchronous."""

    world: RunWorld
    loop: asyncio.AbstractEventLoop
    folder: Path
    player: "Player | None" = None

    def answer(self, request: RecordedRequest) -> Reply | str:
        """Whoever plays now answers for the model."""
        assert self.player is not None
        return self.player.reply(request)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(90)


@contextmanager
def in_background(servers: Servers) -> Iterator[Background]:
    """A working world beside this thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opened = working_world(servers)
    try:
        world = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result(60)
        background = Background(world, loop, servers.folder)
        world.model.add(*[background.answer] * 100_000)
        background.do(publish_both(world))
        yield background
    finally:
        asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def publish_both(world: RunWorld) -> None:
    """An agent for each form of history; B is 6744 bytes, so that compactions come by themselves too."""
    tools = [python_tool("fetch_mark"), python_tool("fetch_mark", "idempotent") | {"name": "slow_mark"}]
    for history in ("recent_runs", "session_view"):
        context = {"history": history, "recent_runs": RECENT, "keep_recent_tokens": 0}
        model = {"context_window": 8_000, "max_output_tokens": 1_000}
        await world.publish(history.replace("_", "-"), tools=list(tools), context=context, model=model)


@dataclass
class Active:
    """The Run that is being worked on. `held` is the step that waits at its gate, `gate` where its slow call waits."""

    run_id: str
    model: ModelRun
    plan: list[tuple[Step, bool]]
    last: list[Json] | None = None
    held: Step | None = None
    gate: Path | None = None
    waits: int = 0
    stopped: bool = False
    failed: bool = False


@dataclass
class Player:
    """Does things in one Session, answers for the model, and compares each request with what it must contain."""

    background: Background
    history: History
    session: str = ""
    facts: ModelSession = field(init=False)
    active: Active | None = None
    ids: dict[str, str] = field(default_factory=dict)
    run_ids: dict[int, str] = field(default_factory=dict)
    last: dict[int, list[Json]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    marks: int = 0
    gates: int = 0
    seen: int = 0

    def __post_init__(self) -> None:
        self.facts = ModelSession(self.history, RECENT)

    @property
    def world(self) -> RunWorld:
        return self.background.world

    def mark(self) -> str:
        self.marks += 1
        return f"M{self.marks:04}"

    # --- the model ---------------------------------------------------------------------------------------------------

    def reply(self, request: RecordedRequest) -> Reply | str:
        messages: list[Json] = request.json["messages"]
        if is_summary(request):
            return summary_of(str(message["content"]) for message in messages)
        active = self.active
        assert active is not None
        self._check(messages, active)
        step, held = active.plan.pop(0) if active.plan else ("answer", False)
        answer = self._answer(step, active)
        if not held or step == "fail":
            self._happens(step, active)
            return answer
        self.gates += 1
        active.held = step
        self.holding.set()
        return answer.but(hold=f"{self.session}-{self.gates}")

    def _check(self, messages: list[Json], active: Active) -> None:
        expected = self.facts.request(active.model)
        place = f"run {active.model.number}, request {len(messages)}: "
        self.wrong += [place + one for one in wrong_in(messages, expected, active.model, self.history)]
        before = self.last.get(active.model.number)
        if before is not None and breaks_prefix(before, messages):
            self.wrong.append(place + "it does not begin with the one before")
        self.last[active.model.number] = messages

    def _answer(self, step: Step, active: Active) -> Reply:
        self.said = self.mark()
        if step == "fail":
            return replies.error(401, "no")
        if step == "answer":
            return replies.text(f"{self.said} {PADDING}")
        self.found = self.mark()
        arguments: Json = {"number": int(self.found[1:])}
        if step == "slow call":
            active.waits = 0
            active.gate = self.background.folder / f"gate-{self.session}-{self.found[1:]}"
            arguments |= {"gate": str(active.gate), "trace": str(active.gate) + ".trace"}
        name = "slow_mark" if step == "slow call" else "fetch_mark"
        return replies.calls((name, arguments, self.found.lower()), content=f"{self.said} {PADDING}")

    def _happens(self, step: Step, active: Active) -> None:
        """What the answer of the model makes true."""
        active.failed = step == "fail"
        if step == "fail":
            return
        self.facts.output(active.model)
        if step == "answer":
            self.facts.answered(active.model, self.said)
            return
        self.facts.called(active.model, self.said)
        if step == "call":
            active.model.coming.append(self.found)
        else:
            self.pending[active.model.number] = (self.found, active.gate)

    # --- a person ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self.session = await self.world.open_session(self.history.replace("_", "-"))
        self.holding = asyncio.Event()
        self.pending: dict[int, tuple[str, Path | None]] = {}
        self.background.player = self

    async def ask(self, plan: list[tuple[Step, bool]]) -> None:
        mark = self.mark()
        model = self.facts.ask(mark)
        self.active = Active("", model, list(plan))
        told = await self.world.send(f"{mark} {PADDING}", self.session, mode="question")
        self._told(told, mark)
        self.active.run_id = self.run_ids[model.number] = told["run_id"]
        await self._settle()

    async def supplement(self) -> None:
        active, mark = self._now(), self.mark()
        self.facts.supplement(active.model, mark)
        self._told(await self.world.send(f"{mark} {PADDING}", self.session, mode="supplement"), mark)

    async def resume(self, number: int, plan: list[tuple[Step, bool]], *, say: bool, finish: bool) -> None:
        model, mark = self.facts.runs[number - 1], self.mark() if say else None
        found, gate = self.pending.get(number, ("", None))
        self.active = Active(self.run_ids[number], model, list(plan))
        if gate is not None:
            self.active.gate = gate
            self.active.waits = len(traced(Path(f"{gate}.trace")))
            if finish:
                self._let(self.active, found)
        self.facts.resume(model, mark)
        told = await self.world.resume(self.run_ids[number], f"{mark} {PADDING}" if mark else None)
        if mark:
            self._told(told["input"], mark)
        await self._settle()

    async def release(self) -> None:
        """What is held goes on: the model's answer, or the slow call."""
        active = self._now()
        if active.held is not None:
            step, active.held = active.held, None
            self._happens(step, active)
            self.holding.clear()
            self.world.model.release(f"{self.session}-{self.gates}")
        else:
            self._let(active, self.pending[active.model.number][0])
        await self._settle()

    async def stop(self) -> None:
        active = self._now()
        active.stopped, active.held = True, None
        self.holding.clear()
        await self.world.stop(active.run_id)
        await self._settle()

    async def compact(self) -> None:
        """Before the next request of the Run that is active; at once if none is."""
        told = await self.world.post(f"/sessions/{self.session}/compact", None, status=202)
        if self.active is None:
            done = await self.world.get(f"/compactions/{told['episode_id']}", wait_s=50)
            if done["status"] != "succeeded":
                self.wrong.append(f"the compaction is {done['status']} ({done['failure']})")

    async def withdraw(self, mark: str) -> None:
        """Something that waits is taken back; a request that had it is no beginning of the next one any more."""
        self.facts.withdraw(mark)
        self.last = {run: sent for run, sent in self.last.items() if mark not in str(sent)}
        answer = await self.world.http.delete(f"/inputs/{self.ids[mark]}")
        if answer.status_code != 200:
            self.wrong.append(f"{mark} is not withdrawn: {answer.text}")

    def waiting(self) -> list[str]:
        """The marks of inputs that can be withdrawn."""
        more = self.active.model.waiting if self.active else []
        return [mark for mark in [*self.facts.carried, *more] if mark not in self.facts.questions]

    def _now(self) -> Active:
        assert self.active is not None
        return self.active

    def _told(self, told: Json, mark: str) -> None:
        self.ids[mark] = told["input_id"]

    def _let(self, active: Active, found: str) -> None:
        """Open the gate of a slow call."""
        assert active.gate is not None
        active.gate.touch()
        active.model.coming.append(found)
        del self.pending[active.model.number]
        active.gate = None

    async def _settle(self) -> None:
        """Wait until the Run has ended or something is held."""
        active = self._now()
        ended = asyncio.create_task(self.world.ended(active.run_id, within_s=50))
        others = [asyncio.create_task(self.holding.wait()), asyncio.create_task(self._slow(active))]
        if active.stopped:
            await ended
        await asyncio.wait([ended, *others], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            run = ended.result()
            wanted = "stopped" if active.stopped else "failed" if active.failed else "succeeded"
            if run["status"] != wanted:
                self.wrong.append(f"run {run['run_no']} is {run['status']} ({run['error']}), not {wanted}")
            self.facts.end(active.model, run["status"])
            self.active = None
        for task in (ended, *others):
            task.cancel()
        await asyncio.gather(ended, *others, return_exceptions=True)

    async def _slow(self, active: Active) -> None:
        """Return when a slow call waits at its gate."""
        while active.gate is None or len(traced(Path(f"{active.gate}.trace"))) <= active.waits:
            await asyncio.sleep(0.02)

    # --- at the end --------------------------------------------------------------------------------------------------

    async def prove(self) -> None:
        """Nothing is broken, and every request of the Session is rebuilt byte for byte."""
        checked = await self.world.get(f"/sessions/{self.session}/verify")
        self.wrong += [f"verify: {one}" for one in checked["breaks"]]
        sent = {hashlib.sha256(request.body).hexdigest() for request in self.world.model.requests}
        for run_id in self.run_ids.values():
            for one in await self.world.manifests(run_id):
                rebuilt = await self.world.http.get(f"/operations/{one['operation_id']}/request")
                if rebuilt.json().get("sha256") not in sent:
                    self.wrong.append(f"{one['operation_id']} is not rebuilt as it was sent")
        self.wrong += self.world.model.refusals


class AnySession(RuleBasedStateMachine):
    """What can be done next, chosen by Hypothesis."""

    background: Background

    @initialize(history=st.sampled_from(["session_view", "recent_runs"]))
    def begin(self, history: History) -> None:
        self.player = Player(self.background, history)
        self._do(self.player.open())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self.background.do(work)
        assert self.player.wrong == []

    def idle(self) -> bool:
        return self.player.active is None

    def resumable(self) -> list[int]:
        return [run.number for run in self.player.facts.runs if run.status in ("failed", "stopped")]

    @precondition(idle)
    @rule(plan=plans)
    def ask(self, plan: list[tuple[Step, bool]]) -> None:
        self._do(self.player.ask(plan))

    @precondition(lambda self: self.idle() and self.resumable())
    @rule(data=st.data(), plan=plans, say=st.booleans(), finish=st.booleans())
    def resume(self, data: st.DataObject, plan: list[tuple[Step, bool]], say: bool, finish: bool) -> None:
        number = data.draw(st.sampled_from(self.resumable()))
        self._do(self.player.resume(number, plan, say=say, finish=finish))

    @precondition(lambda self: not self.idle())
    @rule()
    def supplement(self) -> None:
        self._do(self.player.supplement())

    @precondition(lambda self: not self.idle())
    @rule()
    def release(self) -> None:
        self._do(self.player.release())

    @precondition(lambda self: not self.idle())
    @rule()
    def stop(self) -> None:
        self._do(self.player.stop())

    @precondition(lambda self: bool(self.player.facts.runs))
    @rule()
    def compact(self) -> None:
        self._do(self.player.compact())

    @precondition(lambda self: bool(self.player.waiting()))
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self._do(self.player.withdraw(data.draw(st.sampled_from(self.player.waiting()))))

    def teardown(self) -> None:
        if hasattr(self, "player"):
            if self.player.active is not None:
                self.background.do(self.player.stop())
            self.background.do(self.player.prove())
            assert self.player.wrong == []


def played(servers: Servers, *, examples: int, steps: int, phases: tuple[Phase, ...]) -> None:
    """Play so many Sessions of so many steps."""
    with in_background(servers) as background:
        machine = type("AnySessionHere", (AnySession,), {"background": background})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                phases=phases,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.timeout(300)
def test_any_session_shows_each_fact_once_and_in_a_legal_order(servers: Servers) -> None:
    """SPEC S6, S9, S11, P1-P3, P7, A2, A4, A7, A9, K10, M7: a few Sessions of a dozen steps."""
    played(servers, examples=4, steps=12, phases=(Phase.generate,))


@pytest.mark.timeout(3_000)
def test_many_sessions_show_each_fact_once_and_in_a_legal_order(servers: Servers, full_matrix: bool) -> None:
    """The same for long, and the shortest sequence that breaks it."""
    if not full_matrix:
        pytest.skip("only with --full-matrix")
    played(servers, examples=60, steps=30, phases=(Phase.generate, Phase.shrink))
