"""Scripts of random Runs: everything models do to a history, ending in an answer. Made from a seed alone."""

import json
import random

from tests.support.replies import Reply, calls, text

_BROKEN = ['{"path": "a', "", "[1]", "null", "not json", '{"a": NaN}']


def random_replies(seed: int, *, tools: list[str]) -> list[Reply]:
    """Replies of one Run: parallel calls, broken and empty arguments, repeated and missing ids, unknown tools,
    reasoning, contents beside calls, empty answers, finish reasons that disagree; the last one is a text.
    """
    rng = random.Random(seed)
    steps = [_step(rng, tools) for _ in range(rng.randint(0, 6))]
    return [*steps, text(f"answer {seed}", reasoning=rng.choice([None, "thought"]))]


def _step(rng: random.Random, tools: list[str]) -> Reply:
    if rng.random() < 0.1:
        return text("", reasoning=rng.choice([None, "only a thought"]))
    asked = [_call(rng, place, tools) for place in range(rng.randint(1, 4))]
    return calls(
        *asked,
        content=rng.choice([None, None, "I look.", "\n", "x\ud83d"]),
        reasoning=rng.choice([None, "step by step"]),
        finish_reason=rng.choice(["tool_calls", "tool_calls", "stop"]),
    )


def _call(rng: random.Random, place: int, tools: list[str]) -> tuple[str, str, str]:
    name = rng.choice([*tools, *tools, "no_such_tool", "bad name!"])
    good = json.dumps({"n": rng.randint(0, 9), "text": rng.choice(["", "x", "重跑🙂"])})
    arguments = rng.choice([good, good, good, rng.choice(_BROKEN)])
    return name, arguments, rng.choice([f"call_{place}", "same", "same", ""])
