"""Puts the pieces of streamed tool calls together, whatever the server does with `index` and `id` (SPEC L1).

Servers leave either out, repeat it, give each call index 0, invent a new id per piece, repeat the name, or send whole
calls at once. Where the pieces can't be told apart, that is a named failure, never a guess that could mix two calls.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from context.messages import arguments_object
from context.replies import ReplyCall
from providers.errors import MalformedAnswerError
from providers.object_scan import ObjectScan

MAX_CALLS = 1_024
"""More calls than this in one answer are no answer: nobody means them, and each would be stored and run."""

_LONGEST_INDEX = 9
_PLACEHOLDER = "{}"


@dataclass(slots=True, eq=False)
class _Slot:
    """One call while it is being received."""

    index: int | None
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    is_complete: bool = False
    """Whether the arguments so far are a whole JSON object, so that a further piece belongs elsewhere."""
    _scan: ObjectScan = field(default_factory=ObjectScan)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def take(self, piece: str) -> None:
        """Add to the arguments, unless they are whole: an empty object before others stood for none yet, and the same
        object once more is a repetition.
        """
        whole = self.arguments.strip() if self.is_complete and piece.lstrip()[:1] == "{" else None
        if whole is None:
            self.append(piece)
        elif whole == _PLACEHOLDER:
            self.pieces, self.is_complete, self._scan = [], False, ObjectScan()
            self.append(piece)
        elif whole != piece.strip():
            self.append(piece)

    def append(self, piece: str) -> None:
        """Add to the arguments. They are parsed when their last bracket closes, so hardly ever twice."""
        was_closed = self._scan.is_closed
        self.pieces.append(piece)
        self._scan.feed(piece)
        if self._scan.is_closed != was_closed:
            self.is_complete = self._scan.is_closed and arguments_object(self.arguments) is not None


@dataclass(frozen=True, slots=True)
class _Piece:
    """One delta of `tool_calls`, read tolerantly."""

    index: int | None
    id: str | None
    name: str
    arguments: str


class CallSlots:
    """The calls of one answer."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._unfinished: set[_Slot] = set()
        self._last: _Slot | None = None

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, delta: object) -> None:
        """Take one delta. Raises MalformedAnswerError if it is no call or can't be told whose it is."""
        piece = _read(delta)
        self._fill(self._slot_for(piece), piece)

    def add_whole(self, call: object) -> None:
        """Take a call that is complete in itself, from an answer that was not streamed."""
        piece = _read(call)
        self._fill(self._open(piece), piece)

    def _fill(self, slot: _Slot, piece: _Piece) -> None:
        slot.id = slot.id or piece.id
        self._take_name(slot, piece)
        if piece.arguments:
            slot.take(piece.arguments)
        if slot.is_complete:
            self._unfinished.discard(slot)
        else:
            self._unfinished.add(slot)
        self._last = slot

    def calls(self) -> tuple[ReplyCall, ...]:
        """The calls in ordinal order: by index where each has one, else as they appeared."""
        slots = self._slots
        if all(slot.index is not None for slot in slots):
            slots = sorted(slots, key=lambda slot: slot.index or 0)
        return tuple(ReplyCall(provider_id=slot.id, name=slot.name, arguments=slot.arguments) for slot in slots)

    def _slot_for(self, piece: _Piece) -> _Slot:
        if piece.index is not None:
            known = self._by_index.get(piece.index) or self._unindexed(piece)
        elif piece.id is not None:
            known = next((slot for slot in reversed(self._slots) if slot.id == piece.id), None)
            known = known or self._awaiting_its_id(piece)
        else:
            known = self._nameless_owner(piece)
        if known is None or _begins_another(known, piece):
            return self._open(piece)
        return known

    def _open(self, piece: _Piece) -> _Slot:
        if len(self._slots) >= MAX_CALLS:
            raise MalformedAnswerError
        slot = _Slot(piece.index)
        self._slots.append(slot)
        if piece.index is not None:
            self._by_index[piece.index] = slot
        return slot

    def _unindexed(self, piece: _Piece) -> _Slot | None:
        """A call begun without an index whose id now comes with one."""
        slot = next((s for s in self._slots if s.index is None and piece.id and s.id == piece.id), None)
        if slot is not None and piece.index is not None:
            slot.index = piece.index
            self._by_index[piece.index] = slot
        return slot

    def _awaiting_its_id(self, piece: _Piece) -> _Slot | None:
        """The last call, if it is still without an id and this piece brings nothing but one and arguments."""
        last = self._last
        return last if last is not None and last.id is None and not piece.name and not last.is_complete else None

    def _nameless_owner(self, piece: _Piece) -> _Slot | None:
        """The call that a piece without index and id continues."""
        last = self._last
        if piece.name:
            if last is not None and last.name == piece.name and last.pieces and not last.is_complete:
                raise MalformedAnswerError  # the name again, or another call after one that broke off
            return None
        if piece.arguments and len(self._unfinished) > 1:
            raise MalformedAnswerError
        return last

    @staticmethod
    def _take_name(slot: _Slot, piece: _Piece) -> None:
        if not piece.name or piece.name == slot.name:
            return
        if slot.pieces and slot.name:
            raise MalformedAnswerError
        slot.name += piece.name


def _begins_another(slot: _Slot, piece: _Piece) -> bool:
    """Whether a piece that points to this call by index or id is the beginning of another one all the same."""
    if slot.is_complete and _is_same(slot, piece) and slot.arguments.strip() in (_PLACEHOLDER, piece.arguments.strip()):
        return False
    other_id = piece.id is not None and slot.id is not None and piece.id != slot.id
    if other_id and piece.name:
        return piece.name != slot.name or not slot.pieces or slot.is_complete
    if piece.name and slot.name and piece.arguments and slot.is_complete:
        return True
    return bool(piece.name and slot.name and piece.name != slot.name and slot.is_complete)


def _is_same(slot: _Slot, piece: _Piece) -> bool:
    """Whether index, id and name all say that it is this call."""
    known = piece.index is not None and piece.id is not None
    return known and (piece.index, piece.id, piece.name) == (slot.index, slot.id, slot.name)


def _read(delta: object) -> _Piece:
    if not isinstance(delta, dict):
        raise MalformedAnswerError
    function = delta.get("function")
    function = function if isinstance(function, dict) else {}
    name = function.get("name")
    return _Piece(
        index=_index(delta.get("index")),
        id=_identifier(delta.get("id")),
        name=name if isinstance(name, str) else "",
        arguments=_arguments(function.get("arguments")),
    )


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) <= _LONGEST_INDEX:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _identifier(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _arguments(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
