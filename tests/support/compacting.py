"""Many Runs that all outgrow a small window, and what must hold of every request that the model received for them.

Each session asks one question after the other; each question leads to many steps with long tool output, and some get
supplements. Every text names its session, so that a request is known by its bytes. Nothing here knows how requests are
built: it compares what came over the socket with what was said and with what the API shows (SPEC A2, A4, A9, K1).
"""

import asyncio
import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support import replies
from tests.support.long_sessions import is_block
from tests.support.model_server import RecordedRequest
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld
from tests.support.sent_bytes import input_bytes

WINDOW, OUTPUT, SAFETY = 8_000, 1_000, 256
INPUT_LIMIT = WINDOW - OUTPUT - SAFETY
"""B in tokens of one byte each."""
AGENT: Json = {
    "model": {"context_window": WINDOW, "max_output_tokens": OUTPUT},
    "context": {"recent_runs": 1},
    "tools": ["repeat"],
}
_SESSION = re.compile(r"talk-(\d{3})")
_INPUT = re.compile(r"^<talk-(\d{3}) q(\d) i(\d)>")


@dataclass
class Steps:
    """The model of all sessions: tool calls of random size until a question has had its steps, then an answer.

    The same bytes get the same answer, so that a call that is made again changes nothing.
    """

    said: dict[bytes, Reply] = field(default_factory=dict)
    taken: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Requests so far of a session's question."""

    def __call__(self, request: RecordedRequest) -> Reply:
        digest = hashlib.sha256(request.body).digest()
        if digest not in self.said:
            self.said[digest] = self._summary(request) if is_block(request) else self._step(request)
        return self.said[digest]

    def _summary(self, request: RecordedRequest) -> Reply:
        chance = random.Random(request.body)
        name = session_of(request)
        return replies.text(f"SUMMARY of talk-{name:03}: " + f"talk-{name:03} goes on. " * chance.randint(1, 45))

    def _step(self, request: RecordedRequest) -> Reply:
        session, question = session_of(request), newest_question(request)
        chance = random.Random(f"{session}/{question}/{self.taken[session, question]}")
        self.taken[session, question] += 1
        if self.taken[session, question] > steps_of(session, question):
            return replies.text(f"talk-{session:03}: question {question} is answered.")
        asked = [("repeat", {"text": f"talk-{session:03} ", "times": chance.randint(10, 140)})] * chance.choice(
            [1, 1, 2]
        )
        return replies.calls(*asked, content=chance.choice([None, f"talk-{session:03}: looking."]))


def steps_of(session: int, question: int) -> int:
    """How many steps a question takes."""
    return random.Random(f"steps/{session}/{question}").randint(5, 11)


def session_of(request: RecordedRequest) -> int:
    """The number of the session that a request belongs to."""
    found = set(_SESSION.findall(request.body.decode()))
    assert len(found) == 1, f"a request with texts of the sessions {found}"
    return int(found.pop())


def inputs_in(request: RecordedRequest) -> list[tuple[int, int, str]]:
    """Question number, number within it and text of every input that stands verbatim in a request, in its order."""
    texts = [str(message["content"]) for message in request.json["messages"] if message["role"] == "user"]
    found = [(_INPUT.match(text), text) for text in texts]
    return [(int(match[2]), int(match[3]), text) for match, text in found if match]


def newest_question(request: RecordedRequest) -> int:
    """The question that a business request is about."""
    return max(question for question, _, _ in inputs_in(request))


@dataclass
class Talk:
    """Somebody who asks question after question in one session, and adds to some of them."""

    world: RunWorld
    number: int
    session: str = ""
    texts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """What was sent and acknowledged, with the numbers of question and input."""
    runs: list[Json] = field(default_factory=list)

    async def hold(self, questions: int) -> None:
        """Ask them all."""
        self.session = await self.world.open_session("outgrowing")
        for question in range(1, questions + 1):
            chance = random.Random(f"talk/{self.number}/{question}")
            run_id = await self.world.start(self._text(question, 0, chance), self.session)
            for place in range(1, chance.choice([1, 1, 2, 3])):
                await asyncio.sleep(chance.uniform(0, 0.3))
                await self._add(self._text(question, place, chance))
            self.runs.append(await self.world.over(run_id))

    def _text(self, question: int, place: int, chance: random.Random) -> str:
        mark = f"<talk-{self.number:03} q{question} i{place}>"
        text = f"{mark} keep this word for word: " + f"talk-{self.number:03} must not change. " * chance.randint(1, 20)
        self.texts[text] = (question, place)
        return text

    async def _add(self, text: str) -> None:
        body = {"text": text, "mode": "supplement"}
        answer = await self.world.http.post(f"/sessions/{self.session}/inputs", json=body)
        if answer.status_code != 202:
            assert answer.json()["code"] == "RUN_NOT_ACTIVE", answer.text
            del self.texts[text]


async def outgrow(world: RunWorld, sessions: int, *, questions: int, at_once: int) -> Counter[str]:
    """Hold all talks, check every byte, and count what happened."""
    await world.publish("outgrowing", **AGENT)
    world.model.add(*[Steps()] * (sessions * questions * 60))
    places = asyncio.Semaphore(at_once)
    talks = [Talk(world, number) for number in range(sessions)]

    async def one(talk: Talk) -> None:
        async with places:
            await talk.hold(questions)

    await asyncio.gather(*(one(talk) for talk in talks))
    assert world.model.refusals == [], "a broken pair, or another slip of the protocol"
    by_session: dict[int, list[RecordedRequest]] = defaultdict(list)
    for request in world.model.requests:
        assert input_bytes(request.body) <= INPUT_LIMIT, "a request over B"
        by_session[session_of(request)].append(request)
    return sum([await _checked(talk, by_session[talk.number]) for talk in talks], Counter[str]())


async def _checked(talk: Talk, requests: list[RecordedRequest]) -> Counter[str]:
    """Everything that must hold of one session; what happened in it."""
    assert {(run["status"], run["error"] and run["error"]["message"]) for run in talk.runs} == {("succeeded", None)}
    check_protected(talk, [request for request in requests if not is_block(request)])
    happened = Counter(runs=len(talk.runs), requests=len({request.body for request in requests}))
    happened += Counter(supplements=len(talk.texts) - len(talk.runs), repeats=len(requests) - happened["requests"])
    episodes = [one for run in talk.runs for one in await talk.world.items(f"/runs/{run['run_id']}/compactions")]
    waiting = Counter(one["operation_id"] for one in episodes)
    assert set(waiting.values()) <= {1}, "a second episode for one operation"
    blocks = sum(one["blocks"] for one in episodes)
    assert blocks == len({one.body for one in requests if is_block(one)})
    assert (await talk.world.get(f"/sessions/{talk.session}/verify"))["breaks"] == []
    happened += Counter(f"episodes {one['outcome']}" for one in episodes)
    return happened + await rebuilt(talk.world, (run["run_id"] for run in talk.runs), requests)


def check_protected(talk: Talk, business: list[RecordedRequest]) -> None:
    """SPEC A2, P3: question and supplements stand verbatim, whole, in order, once, from their first request on."""
    claimed: dict[int, set[int]] = defaultdict(set)
    for request in business:
        found = inputs_in(request)
        assert all(talk.texts.get(text) == (question, place) for question, place, text in found), "a changed input"
        assert len(set(found)) == len(found), "an input twice"
        newest = newest_question(request)
        own = [place for question, place, _ in found if question == newest]
        assert own == sorted(own), "out of order"
        assert own[0] == 0, "without its question"
        assert claimed[newest] <= set(own), "a protected input is missing"
        claimed[newest] |= set(own)


async def rebuilt(world: RunWorld, run_ids: Iterable[str], requests: list[RecordedRequest]) -> Counter[str]:
    """SPEC A8, A9: each call of these Runs, rebuilt by the API, has the hash of the bytes that were sent for it.

    A call that was tried again was sent again, with the same bytes.
    """
    sent = {hashlib.sha256(request.body).hexdigest() for request in requests}
    found: Counter[str] = Counter()
    for run_id in run_ids:
        for manifest in await world.manifests(run_id):
            assert manifest["estimated_input_tokens"] <= manifest["input_limit"]
            answer = await world.get(f"/operations/{manifest['operation_id']}/request")
            body = json.dumps(answer["request"], ensure_ascii=False, separators=(",", ":")).encode()
            assert hashlib.sha256(body).hexdigest() == answer["sha256"], "the bytes shown are not those of the hash"
            found[answer["sha256"]] += 1
    assert found == Counter(sent), "a request that was sent and is not rebuilt, or the other way round"
    return Counter(rebuilt=found.total())
