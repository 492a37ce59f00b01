"""Random lives of sessions, and a reference model that says where each input must be (SPEC R1, S3-S9, S12).

A `User` does random things in one session, one after the other, and writes down only what it was told. `check` then
compares what it knows with what the API shows and with what the model really received.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.support import replies
from tests.support.model_server import RecordedRequest
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld

ENDS = {"succeeded", "failed", "stopped", "exhausted"}
FAILURES = {"model_unavailable", "model_auth", "loops", "user_stop", "answered"}


@dataclass
class Sent:
    """One input that the API took, as its sender knows it."""

    input_id: str
    input_seq: int
    kind: str
    mark: str
    run_id: str
    withdrawn: bool = False


@dataclass
class Moods:
    """A model in many moods, until it is told to be steady: answers, empty ones, tools, refusals, broken streams."""

    chance: random.Random
    steady: bool = False

    def __call__(self, request: RecordedRequest) -> Reply | str:
        if self.steady:
            return "steady answer"
        mood = self.chance.random()
        if mood < 0.45:
            return replies.text("an answer", pieces_of=3).but(delay_s=self.chance.uniform(0, 0.3))
        if mood < 0.65:
            return replies.calls(("now", {}), ("now", {}))
        if mood < 0.8:
            return replies.calls(("pause", {"seconds": self.chance.uniform(0, 0.4), "text": "x"}), ("now", {}))
        if mood < 0.88:
            return replies.error(401 if mood < 0.84 else 503)
        if mood < 0.94:
            return replies.text("a broken answer", pieces_of=3).but(break_after=150)
        if mood < 0.97:
            return replies.text("")
        return replies.text("a slow answer").but(delay_s=1.0)


@dataclass
class User:
    """Somebody in one session."""

    world: RunWorld
    session: str
    name: str
    chance: random.Random
    sent: list[Sent] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    marks: int = 0

    async def live(self, actions: int) -> None:
        """Do this many random things."""
        things = [self.ask, self.supplement, self.withdraw, self.stop, self.resume]
        for thing in self.chance.choices(things, weights=[4, 8, 2, 2, 3], k=actions):
            await thing()
            await asyncio.sleep(self.chance.uniform(0, 0.8))

    async def ask(self) -> None:
        """A question; refused while a Run is active."""
        await self._send("question", {"RUN_ACTIVE"})

    async def supplement(self) -> None:
        """Up to four more inputs, with a mode that may turn one into a question."""
        for _ in range(self.chance.randint(1, 4)):
            await self._send(self.chance.choice(["auto", "supplement", "supplement"]), {"RUN_NOT_ACTIVE"})

    async def withdraw(self) -> None:
        """Take back the newest supplement."""
        mine = [one for one in self.sent if one.kind == "supplement" and not one.withdrawn]
        if mine:
            answer = await self.world.http.delete(f"/inputs/{mine[-1].input_id}")
            assert answer.status_code in (200, 409), answer.text
            mine[-1].withdrawn = answer.status_code == 200

    async def stop(self) -> None:
        """Stop the newest Run, whatever it is doing."""
        if self.sent:
            await self.world.stop(self.sent[-1].run_id)

    async def resume(self) -> None:
        """Let one of one's Runs go on, with or without a text."""
        if not self.sent:
            return
        run_id = self.chance.choice(self.sent).run_id
        mark = self._mark() if self.chance.random() < 0.6 else None
        answer = await self.world.http.post(f"/runs/{run_id}/resume", json={"text": mark} if mark else None)
        told = answer.json()
        if answer.status_code != 202:
            assert told["code"] in ("RUN_ACTIVE", "RUN_NOT_RESUMABLE"), answer.text
        elif mark:
            self._note(told["input"], mark)

    async def _send(self, mode: str, may_be_refused: set[str]) -> None:
        """Send it; now and then the first answer is lost on the way and the same request is made again."""
        mark = self._mark()
        body = {"text": mark, "mode": mode, "client_key": mark}
        path = f"/sessions/{self.session}/inputs"
        if self.chance.random() < 0.2:
            lost = asyncio.create_task(self.world.http.post(path, json=body))
            await asyncio.sleep(self.chance.uniform(0, 0.02))
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)
        answer = await self.world.http.post(path, json=body)
        while answer.status_code == 409 and answer.json()["code"] == "CLIENT_KEY_REUSED":
            answer = await self.world.http.post(path, json=body)
        if answer.status_code != 202:
            assert answer.json()["code"] in may_be_refused, answer.text
            self.refused[answer.json()["code"]] += 1
        else:
            self._note(answer.json(), mark)

    def _mark(self) -> str:
        self.marks += 1
        return f"<{self.name}-{self.marks:05}>"

    def _note(self, told: Json, mark: str) -> None:
        self.sent.append(Sent(told["input_id"], told["input_seq"], told["kind"], mark, told["run_id"]))

    async def settle(self) -> Json:
        """Wait for the Run that may still be active, then ask once more; the Run that answered."""
        for run in await self.world.items(f"/sessions/{self.session}/runs"):
            await self.world.ended(run["run_id"], within_s=50)
        await self._send("question", set())
        return await self.world.ended(self.sent[-1].run_id, within_s=50)


async def check(user: User, requests: Sequence[RecordedRequest]) -> Counter[str]:
    """Everything that must hold of a session that has come to rest and was asked once more; what happened in it."""
    world = user.world
    runs = await world.items(f"/sessions/{user.session}/runs")
    assert {run["status"] for run in runs} <= ENDS
    assert {run["end_reason"] for run in runs} <= FAILURES
    _check_received(user, await world.items(f"/sessions/{user.session}/inputs"))
    deliveries = {run["run_id"]: await world.inputs(run["run_id"]) for run in runs}
    _check_chains(user, [one for found in deliveries.values() for one in found])
    _check_requests(user, deliveries, requests)
    assert (await world.get(f"/sessions/{user.session}/verify"))["breaks"] == []
    happened = Counter(one["state"] for found in deliveries.values() for one in found)
    happened["supplements"] = sum(one.kind == "supplement" for one in user.sent)
    happened["resumes"] = sum(run["execution_no"] - 1 for run in runs)
    return happened


def _check_received(user: User, stored: list[Json]) -> None:
    """R1, S5: what was acknowledged is stored, once, in order, and nothing else is."""
    assert [(one["input_id"], one["text"]) for one in stored] == [(one.input_id, one.mark) for one in user.sent]
    assert [one["input_seq"] for one in stored] == list(range(1, len(stored) + 1))
    for one, sent in zip(stored, user.sent, strict=True):
        if sent.withdrawn:
            assert one["state"] == "withdrawn", sent
        elif sent.kind == "supplement":
            assert one["state"] == "delivered", sent


def _check_chains(user: User, deliveries: list[Json]) -> None:
    """S6, S12: one chain of deliveries for each supplement, carried from link to link, delivered at most once."""
    chains: dict[str, list[Json]] = defaultdict(list)
    for one in deliveries:
        chains[one["input_id"]].append(one)
    for sent in user.sent:
        chain = in_order(chains[sent.input_id])
        states = [one["state"] for one in chain]
        if sent.kind == "question":
            assert len(chain) == 1, (sent, states)
        elif sent.withdrawn:
            assert set(states) <= {"carried", "withdrawn"}, (sent, states)
        else:
            assert states == ["carried"] * (len(states) - 1) + ["delivered"], (sent, states)


def in_order(chain: list[Json]) -> list[Json]:
    """Deliveries of one input, each pointing back to the one before it."""
    following = {one["previous_delivery_id"]: one for one in chain}
    assert len(following) == len(chain), "two deliveries come after the same one"
    found, last = [], None
    while last in following:
        found.append(following[last])
        last = found[-1]["delivery_id"]
    assert len(found) == len(chain), "the chain is broken"
    return found


def _check_requests(user: User, deliveries: dict[str, list[Json]], requests: Sequence[RecordedRequest]) -> None:
    """R1, P3, S3: no request has a text twice; what was delivered was sent; a Run's own inputs stand in order."""
    places = [_marks(user, request) for request in requests]
    places = [found for found in places if found]
    for found in places:
        assert len(set(found)) == len(found), found
    everywhere = {mark for found in places for mark in found}
    for sent in user.sent:
        if sent.kind == "supplement" and not sent.withdrawn:
            assert sent.mark in everywhere, sent
    for own in deliveries.values():
        delivered = [one["text"] for one in own if one["state"] == "delivered"]
        assert any(_is_within(delivered, found) for found in places), (delivered, places[-1])


def _is_within(wanted: list[str], found: list[str]) -> bool:
    """Whether the wanted marks all stand in the found ones, in this order."""
    at = [found.index(mark) if mark in found else -1 for mark in wanted]
    return -1 not in at and all(one < two for one, two in pairwise(at))


def _marks(user: User, request: RecordedRequest) -> list[str]:
    """Marks of this user in a request, in the order of its messages."""
    messages = request.json["messages"]
    contents = [message["content"] for message in messages if message["role"] == "user"]
    return [content for content in contents if str(content).startswith(f"<{user.name}-")]
