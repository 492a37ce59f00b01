"""Facts planted all over a session, and what is left of them after each of many compactions (SPEC A2, K13, T5).

Every fact is a sentence of its own. It counts as kept if it stands word for word in the request after a compaction, and
as reachable if the model can have it back with the tools that it has: `result_read` for every reference it still sees,
and for those that it finds in the list of all that a summary names.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from providers.demo.conversation import read_request
from providers.demo.rules import next_step
from tests.support import replies
from tests.support.long_sessions import is_block
from tests.support.model_server import RecordedRequest
from tests.support.planted_facts import fact
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld

Kind = Literal[
    "question", "supplement", "earlier question", "earlier answer", "said beside a call", "result", "unread part"
]
PROTECTED: tuple[Kind, ...] = ("question", "supplement")
Summarise = Callable[[RecordedRequest], str]


def _tool(name: str) -> Json:
    return {"kind": "python", "name": name, "entry": f"tests.support.planted_facts:{name}", "effect": "read_only"}


AGENT: Json = {
    "model": {"context_window": 8_000, "max_output_tokens": 1_000},
    "context": {"results": {"max_result_chars": 2_000, "preview_chars": 200}},
    "tools": ["repeat", {"kind": "builtin", "name": "result_read"}, *map(_tool, ("tell", "hide"))],
}
EARLIER, FACTS_IN_A_QUESTION, SUPPLEMENTS, PLANTING = 4, 5, 3, 4
_ID = r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_REFERENCE = re.compile(rf"result_ref\W+{_ID}")
_LISTED = re.compile(rf"^(?:\(older ones\)|[\w.:-]+) {_ID}$", re.MULTILINE)
_PAGE = 1_500


def keeps_nothing(_: RecordedRequest) -> str:
    """The worst summariser that is still one."""
    return "The conversation went on."


def extracts(request: RecordedRequest) -> str:
    """The demo model's summaries: the sentences that share most words with the whole."""
    return next_step(read_request(request.json)).text


@dataclass
class Retention:
    """Facts by kind: which were planted, how many stood in the request then, how many came back."""

    planted: dict[Kind, list[str]] = field(default_factory=dict)
    kept: list[dict[Kind, int]] = field(default_factory=list)
    shown: list[dict[Kind, int]] = field(default_factory=list)
    """After each compaction: how many had stood in a request by then."""
    in_sight: list[int] = field(default_factory=list)
    """After each compaction: how many parts that were not shown have their reference in the request."""
    reachable: dict[Kind, int] = field(default_factory=dict)


class Planting:
    """A model that says and does things with facts in them, works on for `steps` steps, then reads what it can."""

    def __init__(self, steps: int, summarise: Summarise, planted: dict[Kind, list[str]]) -> None:
        self._steps = steps
        self._summarise = summarise
        self._planted = planted
        self._step = 0
        self.asked_after: list[tuple[bool, RecordedRequest]] = []
        """Business requests of the last Run, and whether a compaction came before them."""
        self.read: list[RecordedRequest] = []
        self._blocks_before = False
        self._references: list[str] | None = None
        self._found: set[str] = set()

    def __call__(self, request: RecordedRequest) -> Reply | str:
        if is_block(request):
            self._blocks_before = True
            return self._summarise(request)
        if "earlier" in str(request.json["messages"][-1]["content"]):
            return self._plant("earlier answer")
        self._step += 1
        if self._references is None:
            self.asked_after.append((self._blocks_before, request))
            self._blocks_before = False
        if self._step <= PLANTING:
            return self._planting_step()
        if self._step <= self._steps:
            return replies.calls(("repeat", {"text": f"step {self._step} found nothing. ", "times": 45}))
        return self._reading_step(request)

    def _plant(self, kind: Kind) -> str:
        found = self._planted.setdefault(kind, [])
        found.append(fact(kind, len(found) + 1))
        return found[-1]

    def _planting_step(self) -> Reply:
        for kind in ("result", "unread part"):
            self._plant(kind)
        said, number = self._plant("said beside a call"), {"number": self._step}
        return replies.calls(("tell", number), ("hide", number), content=said)

    def _reading_step(self, request: RecordedRequest) -> Reply:
        """One page after the other of everything that a reference in the request leads to."""
        self.read.append(request)
        messages = request.json["messages"]
        if self._references is None:
            self._references = []
            self._find(references_in(request))
            return self._next_page(0)
        self._find(references_in(request, newest=1))
        place = json.loads(str(messages[-1]["content"]).splitlines()[0])
        if "next_offset" not in place:
            self._references.pop(0)
        return self._next_page(place.get("next_offset", 0))

    def _find(self, references: list[str]) -> None:
        assert self._references is not None
        self._references += [one for one in references if one not in self._found]
        self._found |= set(references)

    def _next_page(self, offset: int) -> Reply:
        if not self._references:
            return replies.text("That is all.")
        return replies.calls(("result_read", {"result_ref": self._references[0], "offset": offset, "limit": _PAGE}))


def shown_in_part(request: RecordedRequest) -> list[str]:
    """The references of results that a request shows in part, each once."""
    return list(dict.fromkeys(_REFERENCE.findall(_text_of(request))))


def references_in(request: RecordedRequest, *, newest: int = 0) -> list[str]:
    """The references that a model can see in its request, or in its `newest` messages, each once."""
    shown = _text_of(request, newest)
    return list(dict.fromkeys(_REFERENCE.findall(shown) + _LISTED.findall(shown)))


def _text_of(request: RecordedRequest, newest: int = 0) -> str:
    return "\n".join(str(message["content"]) for message in request.json["messages"][-newest:])


async def retained(world: RunWorld, steps: int, summarise: Summarise) -> Retention:
    """Plant, compact again and again, and look."""
    found = Retention()
    model = Planting(steps, summarise, found.planted)
    await world.publish("planter", limits={"max_loops": steps + 1_000}, **AGENT)
    world.model.add(*[model] * (steps * 3 + 1_000))
    session = await world.open_session("planter")
    for number in range(1, EARLIER + 1):
        found.planted.setdefault("earlier question", []).append(fact("earlier question", number))
        await world.ask(f"An earlier one. {fact('earlier question', number)}", session)
    await _ask(world, session, found, model, steps)
    references: dict[str, None] = {}
    for place, (compacted, request) in enumerate(model.asked_after):
        references |= dict.fromkeys(shown_in_part(request))
        if compacted:
            found.in_sight.append(len(references.keys() & references_in(request)))
            so_far = b"".join(one.body for _, one in model.asked_after[: place + 1])
            found.kept.append(_facts_in(request.body, found.planted))
            found.shown.append(_facts_in(so_far, found.planted))
    last = model.asked_after[-1][1]
    for kind, facts in found.planted.items():
        back = [one for one in facts if one.encode() not in last.body]
        found.reachable[kind] = sum(any(one.encode() in request.body for request in model.read) for one in back)
    return found


async def _ask(world: RunWorld, session: str, found: Retention, model: Planting, steps: int) -> None:
    """The last question, and its supplements while it is worked on; all that it protects stays word for word."""
    found.planted["question"] = [fact("question", number) for number in range(1, FACTS_IN_A_QUESTION + 1)]
    run_id = await world.start(" ".join(["Mind all of this.", *found.planted["question"]]), session)
    found.planted["supplement"] = []
    for number in range(1, SUPPLEMENTS + 1):
        await world.model.wait_for_requests(EARLIER + 1 + number)
        await world.send(fact("supplement", number), session, mode="supplement")
        found.planted["supplement"].append(fact("supplement", number))
    run = await world.over(run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "That is all.")
    assert len(model.asked_after) == steps + 1
    assert world.model.refusals == []


def _facts_in(sent: bytes, planted: dict[Kind, list[str]]) -> dict[Kind, int]:
    return {kind: sum(one.encode() in sent for one in facts) for kind, facts in planted.items()}
