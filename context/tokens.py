"""The port for counting tokens (SPEC B4). Counters live in `providers/tokenizers.py`, arithmetic in `budget`."""

from typing import Protocol

from context.messages import ChatMessage


class TokenCounter(Protocol):
    """Counts what a message or a tool list costs in a request.

    `estimator_id` is frozen into the release and recorded in each manifest. `exact` is true only if the overhead of a
    message is known too. Counting is linear in the length of the text, for any text.
    """

    @property
    def estimator_id(self) -> str: ...

    @property
    def exact(self) -> bool: ...

    def count_text(self, text: str) -> int: ...

    def count_message(self, message: ChatMessage) -> int:
        """Tokens of one message with its share of the protocol's overhead."""
        ...

    def count_tools(self, tools_json: str) -> int:
        """Tokens of the tool schemas as sent; 0 for none."""
        ...

    @property
    def request_overhead(self) -> int:
        """Tokens a request costs beyond its messages and tools."""
        ...
