"""What tests of compaction share: a small window, and scripts that answer by what a request is and holds."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.support import replies
from tests.support.model_server import RecordedRequest
from tests.support.replies import Reply

Json = dict[str, Any]
Answers = Callable[[RecordedRequest], Reply | str]

SMALL: Json = {"model": {"context_window": 8_000, "max_output_tokens": 1_000}}
"""B is 8000 - 1000 - 256 = 6744 tokens of one byte each, the trigger is 5395."""
SUMMARY = "SUMMARY: goals kept."


def is_summary(request: RecordedRequest) -> bool:
    """Whether this is a call of the summariser."""
    return b"You write the summary" in request.body


def repeated(times: int) -> Reply:
    """A call of the tool `repeat`, whose result has so many characters."""
    return replies.calls(("repeat", {"text": "z", "times": times}))


def business_of(requests: Sequence[RecordedRequest]) -> list[list[Json]]:
    """The message lists of the requests that are not the summariser's."""
    return [request.json["messages"] for request in requests if not is_summary(request)]


def scripted(business: Sequence[Reply | str], summaries: Sequence[Reply | str] = (SUMMARY,)) -> Answers:
    """Business requests get `business` in order, summarising ones `summaries`; the last of each stands for the rest."""
    made = {True: 0, False: 0}

    def answer(request: RecordedRequest) -> Reply | str:
        kind = is_summary(request)
        script = summaries if kind else business
        made[kind] += 1
        return script[min(made[kind], len(script)) - 1]

    return answer
