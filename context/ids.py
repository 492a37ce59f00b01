"""Identities. New ones are UUIDv7 made from a clock and random bytes given by the caller; the rest derive from parents.

A derived id makes a repeat find the first: the same parent and the same path always give the same id.
"""

from uuid import UUID, uuid5


def uuid7(unix_ms: int, random: bytes) -> UUID:
    """A version 7 UUID (RFC 9562): 48 bits of milliseconds, then 10 random bytes."""
    value = (unix_ms & ((1 << 48) - 1)) << 80 | int.from_bytes(random[:10], "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)


def derived(parent: UUID, *path: str | int) -> UUID:
    """The id of a child: stable for the same parent and path."""
    return uuid5(parent, "/".join(str(part) for part in path))


def model_operation_id(run_id: UUID, task: str, loop: int, turn: int = 1, *, execution_no: int = 1) -> UUID:
    """The business model Operation of one loop; `turn` 2 follows a forced compaction (SPEC B7).

    A loop whose call a stop or failure cut off is made anew by the next execution, with what has come since (SPEC S9).
    """
    return derived(run_id, task, "execution", execution_no, "loop", loop, "model", turn)


def tool_operation_id(model_operation: UUID, ordinal: int) -> UUID:
    """The Operation of one tool call, by its place in the batch."""
    return derived(model_operation, "call", ordinal)


def root_context_id(run_id: UUID) -> UUID:
    """The RoleContext of a Run's root role."""
    return derived(run_id, "root", "context")


def run_workflow_id(run_id: UUID) -> str:
    """The Temporal workflow id of a Run (SPEC W3)."""
    return f"run/{run_id}"


def episode_id(operation_id: UUID) -> UUID:
    """The one CompactionEpisode that a business request may have (SPEC K1)."""
    return derived(operation_id, "episode")


def snapshot_id(episode: UUID) -> UUID:
    """The snapshot that an episode publishes."""
    return derived(episode, "snapshot")


def block_operation_id(episode: UUID, block: int) -> UUID:
    """The model Operation that summarises block `block`, counted from 0."""
    return derived(episode, "block", block)


def compaction_workflow_id(episode: UUID) -> str:
    """The Temporal workflow id of an episode."""
    return f"compaction/{episode}"
