"""Sessions that are many times longer than a window, and a summariser whose answers tell what it was given.

A session is filled by an agent with a large window; the next release of the same agent has a small one, so that the
next question begins with one compaction of everything. Texts and counts are the same each time.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from providers.tokenizers import count_tokens
from tests.support.model_server import RecordedRequest
from tests.support.run_world import Json, RunWorld

ENCODING = "o200k_base"
LARGE: Json = {"model": {"context_window": 1_000_000, "max_output_tokens": 4_096, "encoding": ENCODING}}
SMALL: Json = {"model": {"context_window": 32_768, "encoding": ENCODING}}
"""Its B is 32768 - 4096 - 328 = 28344 real tokens."""
QUESTION_TOKENS, ANSWER_TOKENS = 10_000, 5_000
_WORDS = ("river", "stone", "ledger", "harbour", "candle", "orchard", "signal", "meadow", "copper", "lantern", "voyage")


@dataclass(frozen=True)
class LongSession:
    """A session that was filled, and about how many tokens are in it."""

    session_id: str
    tokens: int


def is_block(request: RecordedRequest) -> bool:
    """Whether this is a call of the summariser."""
    return b"You write the summary" in request.body


def digesting(request: RecordedRequest) -> str:
    """A summary that follows from every byte it was made from; with the one before in it, from the whole episode."""
    if not is_block(request):
        return "Noted."
    digest = hashlib.sha256(request.body).hexdigest()
    return f"SUMMARY {digest} of a block of {len(request.body)} bytes, and of what came before it."


def long_text(name: str, tokens: int) -> str:
    """About this many tokens of sentences that are all different."""
    found, counted = [f"Notes {name}."], 0
    for sentence in _sentences(name):
        if counted >= tokens:
            return " ".join(found)
        found.append(sentence)
        counted += count_tokens(" " + sentence, encoding=ENCODING)
    raise AssertionError


def _sentences(name: str) -> Iterator[str]:
    number = 0
    while True:
        seed = hashlib.sha256(f"{name}/{number}".encode()).digest()
        words = " ".join(_WORDS[byte % len(_WORDS)] for byte in seed[:12])
        yield f"Fact {number} of {name}: the {words} counts {int.from_bytes(seed[12:14])}."
        number += 1


async def fill(world: RunWorld, tokens: int) -> LongSession:
    """A session of at least this many tokens, question by question; the model answers at length."""
    await world.publish(**LARGE)
    session, stored = await world.open_session(), 0
    for number in range(1, -(-tokens // (QUESTION_TOKENS + ANSWER_TOKENS)) + 1):
        question = long_text(f"Q{number:03}", QUESTION_TOKENS)
        answer = long_text(f"A{number:03}", ANSWER_TOKENS)
        world.model.add(answer)
        run = await world.ask(question, session)
        assert (run["status"], run["answer"]) == ("succeeded", answer)
        stored += QUESTION_TOKENS + ANSWER_TOKENS
    return LongSession(session, stored)
