"""The port for how the messages of a request become bytes (SPEC B8). The form itself lives in `providers/wire_list.py`.

A formatter decides how a message looks, never which ones there are: the list is fixed, checked for protected inputs and
whole pairs, and measured before any formatter sees it (SPEC A2, A4).
"""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from context.messages import ChatMessage


class MessageFormatter(Protocol):
    """The growing message list of one view as bytes.

    The same messages give the same bytes, whatever the pieces they come in (SPEC A9), and a longer list begins with the
    bytes of a shorter one, up to its last message (SPEC A7). `view_id` is the view that it is the beginning of.
    """

    view_id: UUID

    @property
    def length(self) -> int:
        """How many messages it has."""
        ...

    def extend(self, messages: Sequence[ChatMessage]) -> None:
        """Add messages behind those that there are."""
        ...

    def body(self, fields: bytes) -> tuple[bytes, bytes]:
        """The request body with these further fields, a JSON object, and its SHA-256."""
        ...
