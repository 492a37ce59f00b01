"""The reference list that a request is: which material, in which order, of which size. No content passes through here.

A view is append-only. A request is a prefix of one view and its own tail, so that request n+1 begins with request n's
messages (SPEC A7) and a step stores only what is new.
"""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from context.messages import ChatMessage
from context.policy import AgentDefinition

ItemKind = Literal[
    "system", "input", "assistant", "tool_result", "placeholder", "marker", "feedback", "summary", "state", "reference"
]
PROTECTED: frozenset[ItemKind] = frozenset({"system", "input"})
OFFLOADED = "tool_result_offload"
"""The transform of a result whose record is head and tail already, with a reference to the whole (SPEC T5)."""


@dataclass(frozen=True)
class ViewItem:
    """One message of a request: what it shows, where its content lies, what it costs.

    `run_no` is the Run it was taken from, None for the current one; only current inputs are protected (SPEC A2).
    `transform` says in which form it is shown, if that is not the whole of what is stored.
    """

    kind: ItemKind
    payload_id: bytes
    tokens: int
    source_id: UUID | None = None
    run_no: int | None = None
    revision: int | None = None
    transform: str | None = None

    @property
    def is_protected(self) -> bool:
        return self.kind in PROTECTED and self.run_no is None

    @property
    def is_as_recorded(self) -> bool:
        """Whether it shows the message of its record, and not a shorter one."""
        return self.transform in (None, OFFLOADED)


def system_message(definition: AgentDefinition) -> ChatMessage | None:
    """The system message of a release: its instructions and nothing else (SPEC A1, A3); None if it has none."""
    instructions = definition.instructions
    if not isinstance(instructions, str):
        instructions = "\n\n".join(f"# {part.name}\n\n{part.text.strip()}" for part in instructions)
    return ChatMessage(role="system", content=instructions) if instructions.strip() else None


def total_tokens(items: tuple[ViewItem, ...]) -> int:
    """Sum of what the items cost."""
    return sum(item.tokens for item in items)


def protected_tokens(items: tuple[ViewItem, ...]) -> int:
    """Sum of what can't be left out."""
    return sum(item.tokens for item in items if item.is_protected)
