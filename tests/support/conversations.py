"""Random conversations of several people with one model, and what must hold of every request that came of them.

A session's questions are asked one after the other, so that each request carries a history of random Runs; some of
them end badly on purpose. Nothing here knows how requests are built: it compares the socket with what the API shows.
"""

import asyncio
import contextlib
import hashlib
import logging
import random
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.support import replies
from tests.support.model_server import RecordedRequest
from tests.support.random_replies import random_replies
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld, python_tool

TOOLS = ["moody", "moody_again"]
LATE_INPUT = ("carry", "continue")
"""What an agent does with what comes during its last answer; also its name."""
_SESSION = re.compile(rb"<(session-\d+)>")


@dataclass
class Scripts:
    """The model of all sessions: each has a script of its own, found by the mark in its first question."""

    waiting: dict[str, list[Reply]] = field(default_factory=lambda: defaultdict(list))
    last_asked: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    """Set when the last answer of a session's script is asked for."""
    late: int = 0
    """Answers beyond a script, to supplements that came during its last answer."""
    given: dict[bytes, Reply | str] = field(default_factory=dict)
    """What each body got; a further attempt at the same request is answered alike."""

    def __call__(self, request: RecordedRequest) -> Reply | str:
        digest = hashlib.sha256(request.body).digest()
        if digest not in self.given:
            self.given[digest] = self._next(request)
        return self.given[digest]

    def _next(self, request: RecordedRequest) -> Reply | str:
        found = _SESSION.search(request.body)
        assert found, "a request without the first question of its session"
        session = found[1].decode()
        script = self.waiting[session]
        if len(script) == 1:
            self.last_asked[session].set()
        if script:
            return script.pop(0)
        self.late += 1
        return "to what came late"


@dataclass(frozen=True)
class Planned:
    """The script of a Run and the end that it must lead to."""

    script: list[Reply]
    end: tuple[str, str]


def planned(seed: int) -> Planned:
    """A random Run; one in five ends with a refused key, a withheld answer or a cut one, and is history then."""
    rng = random.Random(seed)
    script = random_replies(seed, tools=TOOLS)
    if rng.random() < 0.2:
        call = ("moody", '{"text": "cut of', "same")
        script.insert(0, replies.calls(call, call, reasoning="long", finish_reason="length"))
    bad = rng.choice([None] * 12 + ["model_auth", "content_filtered", "output_cut"])
    if bad == "model_auth":
        script[-1] = replies.error(401)
    elif bad:
        reason = "length" if bad == "output_cut" else "content_filter"
        script[-1] = replies.text("half an answer", reasoning="thought", finish_reason=reason)
    script[-1] = script[-1].but(delay_s=rng.choice([0, 0, 0.2, 0.4]))
    return Planned(script, ("failed", bad) if bad else ("succeeded", "answered"))


@dataclass
class Conversation:
    """Somebody who asks question after question in one session and adds to them while they are answered."""

    world: RunWorld
    scripts: Scripts
    number: int
    runs: list[Json] = field(default_factory=list)
    added: int = 0

    @property
    def name(self) -> str:
        return f"session-{self.number}"

    async def hold(self, questions: int) -> None:
        """Ask them all; each Run must end as its script says."""
        session = await self.world.open_session(LATE_INPUT[self.number % len(LATE_INPUT)])
        for place in range(questions):
            seed = self.number * 100 + place
            plan = planned(seed)
            self.scripts.waiting[self.name] = list(plan.script)
            self.scripts.last_asked.pop(self.name, None)
            run_id = await self.world.start(f"<{self.name}> question {place}", session)
            await self._add(random.Random(seed), session)
            run = await self.world.ended(run_id, within_s=60)
            assert (run["status"], run["end_reason"]) == plan.end, f"seed {seed}: {run}"
            self.runs.append(run)

    async def _add(self, chance: random.Random, session: str) -> None:
        """Up to four supplements: at once, a moment later, during the last answer; some may come after the end."""
        for number in range(chance.choice([0, 0, 1, 2, 3])):
            await asyncio.sleep(chance.choice([0, 0, 0.05, 0.2]))
            await self._supplement(f"supplement {number}", session)
        if chance.random() < 0.3:
            with contextlib.suppress(TimeoutError):  # a Run that ended too early never asks for it; its end tells more
                async with asyncio.timeout(20):
                    await self.scripts.last_asked[self.name].wait()
            await self._supplement("a late supplement", session)

    async def _supplement(self, text: str, session: str) -> None:
        answer = await self.world.http.post(f"/sessions/{session}/inputs", json={"text": text, "mode": "supplement"})
        assert answer.status_code == 202 or answer.json()["code"] == "RUN_NOT_ACTIVE", answer.text
        self.added += answer.status_code == 202


async def converse(world: RunWorld, numbers: range, *, questions: int, at_once: int, look_at: float) -> Counter[str]:
    """Hold conversations, whose numbers are their seeds, and compare a share `look_at` of the model calls.

    What happened, counted.
    """
    scripts, places = Scripts(), asyncio.Semaphore(at_once)
    world.model.add(*[scripts] * (len(numbers) * questions * 20))
    held = [Conversation(world, scripts, number) for number in numbers]

    async def one(conversation: Conversation) -> Counter[str]:
        async with places:
            await conversation.hold(questions)
            return await _compared(conversation, look_at)

    happened = sum(await asyncio.gather(*(one(conversation) for conversation in held)), Counter[str]())
    happened["late"] = scripts.late
    happened["requests"] = len(world.model.requests)
    logging.getLogger(__name__).info("%s", dict(happened))
    assert world.model.refusals == []
    _check_tries(world, happened)
    return happened


def _check_tries(world: RunWorld, happened: Counter[str]) -> None:
    """SPEC R2, A9: each request is the one of its operation, and is sent again only as a further attempt at it.

    On a loaded machine a heartbeat can come late; the attempt then is given up and made again, which is no fault.
    """
    bodies = {hashlib.sha256(sent.body).digest() for sent in world.model.requests}
    assert happened["calls"] == len(bodies), "a request without its operation"
    assert happened["calls"] <= happened["requests"] <= happened["attempts"], "a request without its attempt"


async def _compared(conversation: Conversation, look_at: float) -> Counter[str]:
    """SPEC A9: what the API rebuilds of a model call are the bytes that came over the socket."""
    world, happened = conversation.world, Counter(supplements=conversation.added)
    mark, chance = f"<{conversation.name}>".encode(), random.Random(conversation.number)
    own = {hashlib.sha256(sent.body).hexdigest() for sent in world.model.requests if mark in sent.body}
    for run in conversation.runs:
        happened += Counter({"runs": 1, run["end_reason"]: 1})
        calls = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "business"]
        happened["calls"] += len(calls)
        happened["attempts"] += sum(len(call["attempts"]) for call in calls)
        for call in [one for one in calls if chance.random() < look_at]:
            rebuilt = await world.get(f"/operations/{call['operation_id']}/request")
            assert rebuilt["sha256"] in own, f"{mark!r}: a request rebuilt is none that was sent"
            happened["compared"] += 1
    return happened


async def publish_speakers(world: RunWorld, model: Json) -> None:
    """The agents of all conversations: a tool that does what tools do, once harmless, once with a commit per try."""
    again = python_tool("moody", "idempotent") | {"name": "moody_again"}
    for late in LATE_INPUT:
        await world.publish(late, tools=["moody", again], model=model, context={"late_input": late})
