"""The growing message list of one view as wire bytes: each message is serialised and hashed once (SPEC A7, A9).

Gives the same bytes as `wire.assemble`, whatever the pieces it was extended by.
"""

import hashlib
from collections.abc import Sequence
from uuid import UUID

from context.messages import ChatMessage
from providers.profiles import Profile
from providers.wire import WireUnit, assemble, in_tool_turn_after, unit_bytes, wire_units

_OPENING = b'{"messages":['
_USER_START = b'{"role":"user"'


class WireList:
    """Messages of a view from its beginning, `length` of them so far."""

    def __init__(self, profile: Profile, merge_user_messages: bool | None) -> None:
        self.length = 0
        self.view_id = UUID(int=0)  # the view it is the beginning of
        self._profile = profile
        self._merge = merge_user_messages
        self._closed = bytearray(_OPENING)  # units that no later message can change
        self._hash = hashlib.sha256(_OPENING)
        self._has_user = False
        self._tail: list[ChatMessage] = []  # messages since the last closed unit
        self._in_tool_turn = False

    def extend(self, messages: Sequence[ChatMessage]) -> None:
        """Add messages. Only the last unit stays open: a following user message may be joined to it."""
        self.length += len(messages)
        self._tail += messages
        units = self._units(self._tail)
        for unit in units[:-1]:
            self._close(unit)
        if units:
            self._keep_from(units[-1].messages[0])

    def body(self, fields: bytes) -> tuple[bytes, bytes]:
        """The request body and its SHA-256."""
        units = self._units(self._tail)
        parts = [part for unit in units if (part := unit_bytes(unit, profile=self._profile))]
        if not self._has_user and not any(part.startswith(_USER_START) for part in parts):
            return self._with_user_message(parts, fields)
        between = b"," if parts and len(self._closed) > len(_OPENING) else b""
        rest = between + b",".join(parts) + b"]," + fields[1:]
        digest = self._hash.copy()
        digest.update(rest)
        return bytes(self._closed) + rest, digest.digest()

    def _keep_from(self, first: ChatMessage) -> None:
        """Drop what is closed from the tail, left-out messages included, and remember what held after it."""
        while self._tail[0] is not first:
            self._in_tool_turn = in_tool_turn_after(self._tail.pop(0), self._in_tool_turn)

    def _units(self, messages: Sequence[ChatMessage]) -> list[WireUnit]:
        return wire_units(
            messages, profile=self._profile, merge_user_messages=self._merge, in_tool_turn=self._in_tool_turn
        )

    def _close(self, unit: WireUnit) -> None:
        part = unit_bytes(unit, profile=self._profile)
        self._has_user = self._has_user or part.startswith(_USER_START)
        piece = b"," + part if len(self._closed) > len(_OPENING) else part
        self._closed += piece
        self._hash.update(piece)

    def _with_user_message(self, parts: list[bytes], fields: bytes) -> tuple[bytes, bytes]:
        """A list without a user message is rare and short; it is put together whole."""
        closed = bytes(self._closed[len(_OPENING) :])
        body = assemble([closed, *parts] if closed else parts, fields=fields)
        return body, hashlib.sha256(body).digest()
