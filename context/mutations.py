"""Authorised changes of records: what one may change, and what is asked of the commit that makes it (SPEC 0, H8, K10).

Raw content stays; from its revision on the effective message is the one that a mutation brings, whole.
"""

from dataclasses import dataclass, field
from uuid import UUID

from context.messages import ChatMessage
from context.steps import Content

UNCHANGEABLE = frozenset({"user_ref", "fragment"})
"""Kinds that no mutation touches: original inputs (SPEC H8), and what never was a decision (SPEC A5)."""


@dataclass(frozen=True)
class Mutation:
    """One change of one record: its message from now on, and who made it, as a name."""

    mutation_id: UUID
    record_id: UUID
    source: str
    message: Content = field(repr=False)


@dataclass(frozen=True)
class MutateRecords:
    """Changes of one context that become true together; `cause` is the name of what led to them.

    `base_revision` is the revision they were decided on: a change of the same record since makes them void (SPEC H5).
    """

    context_id: UUID
    base_revision: int
    cause: str
    estimator_id: str
    mutations: tuple[Mutation, ...]


@dataclass(frozen=True)
class Mutated:
    """The revision that has them, and the summaries that stopped applying."""

    revision: int
    outdated: tuple[UUID, ...]


def check_change(kind: str, before: ChatMessage, after: ChatMessage) -> None:
    """Raises ValueError if a record may not change at all, or not in this: its role and the calls it makes or answers.

    What a request needs to be legal (SPEC A4) can't be lost by a change, so that no list need be looked at again.
    """
    if kind in UNCHANGEABLE:
        raise ValueError(f"a {kind} can't be changed")
    if _identity(before) != _identity(after):
        raise ValueError("a change may not touch the role of a message or the calls it makes or answers")


def _identity(message: ChatMessage) -> tuple[object, ...]:
    calls = tuple((call.call_id, call.name) for call in message.tool_calls)
    return message.role, message.tool_call_id, calls
