"""What a call used where the provider does not say: our own counting, marked as such (SPEC L5)."""

from context.replies import ModelReply, Usage
from context.tokens import TokenCounter


def is_reported(usage: Usage) -> bool:
    """Whether the provider said how much went in and out."""
    return usage.input_tokens is not None and usage.output_tokens is not None


def completed(usage: Usage, *, input_tokens: int, output_tokens: int) -> Usage:
    """The figures with the given ones in place of those that are missing; what was reported stays."""
    if is_reported(usage):
        return usage
    missing = {
        "input_tokens": usage.input_tokens if usage.input_tokens is not None else input_tokens,
        "output_tokens": usage.output_tokens or output_tokens,
    }
    return usage.model_copy(update=missing | {"estimated": True})


def output_tokens(reply: ModelReply, counter: TokenCounter) -> int:
    """What an answer, or the fragment of one, counts."""
    texts = [reply.content or "", reply.reasoning_content or ""]
    texts += [text for call in reply.calls for text in (call.name, call.arguments)]
    return sum(counter.count_text(text) for text in texts if text)
