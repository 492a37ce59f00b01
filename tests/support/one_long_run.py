"""One Run of many steps over several compactions, and its requests between one compaction and the next."""

import random

from tests.support import replies
from tests.support.long_sessions import is_block
from tests.support.model_server import RecordedRequest
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld

QUESTION = "Look at everything, one thing after the other, and say what you found."


class ManySteps:
    """A model that calls a tool, or two, with output of random length, until it has done so `steps` times."""

    def __init__(self, steps: int, *, longest: int) -> None:
        self._steps = steps
        self._longest = longest
        self._chance = random.Random(7)
        self._done = 0

    def __call__(self, request: RecordedRequest) -> Reply:
        if is_block(request):
            return replies.text("SUMMARY: what was looked at so far, and what was found there. " * 5)
        if self._done == self._steps:
            return replies.text("That is all.")
        self._done += 1
        text = f"found at {self._done}: " + self._chance.choice(["plain text ", "Grüße ", '"quoted" \\ ', "中文 "])
        times = self._chance.randint(1, self._longest // len(text.encode()))
        return replies.calls(*[("repeat", {"text": text, "times": times})] * self._chance.choice([1, 1, 1, 2]))


async def run_of(world: RunWorld, steps: int, *, longest: int, **definition: Json) -> Json:
    """The Run once it has ended; it must have been answered after so many steps."""
    limits = {"max_loops": steps + 10}
    await world.publish("looker", tools=["repeat"], limits=limits, **definition)
    world.model.add(*[ManySteps(steps, longest=longest)] * (3 * steps + 50))
    run_id = await world.start(QUESTION, await world.open_session("looker"))
    run = await world.over(run_id)
    assert (run["status"], run["loops"]) == ("succeeded", steps + 1)
    return run


def between_compactions(requests: list[RecordedRequest]) -> list[list[RecordedRequest]]:
    """The business requests, as one list for each stretch without a compaction."""
    stretches: list[list[RecordedRequest]] = [[]]
    for request in requests:
        if not is_block(request):
            stretches[-1].append(request)
        elif stretches[-1]:
            stretches.append([])
    return stretches
