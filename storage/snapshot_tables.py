"""The tables of compaction: episodes with their plan and cursor, published summaries, what exactly each covers, and the
changes of records that can take one back. And of what each Run's list knew of its Session, and may stand for later.

An episode is a head that moves by compare-and-set (`cursor`, `status`); snapshots and their pieces are facts. They
belong to the same schema as `storage.tables`, whose locks come first: session, run, context, operation, episode.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from storage.columns import made_no
from storage.tables import metadata, tool_batches

SOURCE_ID = """
    CASE WHEN p.piece ~ '^[a-z]+/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
         THEN CAST(split_part(p.piece, '/', 2) AS uuid) END
"""
"""The id in the name of a piece `p`; NULL for one that is none, which only a changed row can have."""

compaction_episodes = Table(
    "compaction_episodes",
    metadata,
    Column("episode_id", Uuid, primary_key=True),  # derived from the operation: at most one each (SPEC K1)
    # An idle Session's episode (SPEC K12) has no operation. It stands with the newest Run, and no Run owns it; list,
    # sizes and target come with its opening.
    Column("session_id", Uuid, ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False),
    Column("context_id", Uuid, ForeignKey("role_contexts.context_id"), nullable=False),
    Column("operation_id", Uuid),  # the business request that waits for it
    Column("release_id", Uuid, ForeignKey("agent_releases.release_id")),  # an idle Session's: what it works with
    Column("through_run_no", Integer),  # an idle Session's: its newest Run when it was asked for
    Column("stop_requested_at", DateTime(timezone=True)),  # an idle Session's
    Column("source", Text, nullable=False),  # auto, manual, overflow
    Column("causes", ARRAY(Text), nullable=False),
    # the frozen source list: the first `view_length` items of a view that only grows
    Column("view_id", Uuid, ForeignKey("request_views.view_id")),
    Column("view_length", Integer, nullable=False, server_default="0"),
    Column("covered", ARRAY(Integer), nullable=False, server_default=text("'{}'")),  # positions in that list
    Column("folds", Integer),  # position of the earlier summary that goes into the new one
    Column("context_revision", BigInteger, nullable=False, server_default="0"),
    Column("expected_snapshot_id", Uuid),  # the active one when it was opened
    Column("estimated", BigInteger, nullable=False, server_default="0"),
    Column("material", BigInteger, nullable=False, server_default="0"),
    Column("target", JSONB),  # F, H, P, C, D, T of SPEC K2
    Column("prompt_version", Text, nullable=False),
    Column("estimator_id", Text, nullable=False, server_default=""),
    Column("plan_id", LargeBinary, ForeignKey("payloads.payload_id")),  # which part of which record is in which block
    Column("blocks", Integer),  # None: not planned yet
    Column("cursor", Integer, nullable=False, server_default="0"),  # finished blocks
    Column("summary_id", LargeBinary, ForeignKey("payloads.payload_id")),  # the summary so far, as it came
    Column("truncated", Boolean, nullable=False, server_default=text("false")),
    Column("status", Text, nullable=False),  # queued running succeeded failed cancelled
    Column("outcome", Text),  # activated not_smaller sources_changed another_snapshot nothing_to_compact
    Column("failure", JSONB),  # {code, reason, block}
    Column("tokens_after", BigInteger),
    Column("reaches_target", Boolean),
    Column("under_trigger", Boolean),
    made_no(),  # when its sources were frozen
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    Index("ix_compaction_episodes_run", "run_id", "made_no"),
    Index("ix_compaction_episodes_context", "context_id", "made_no"),
    Index("ix_compaction_episodes_operation", "operation_id"),
    Index(
        "uq_compaction_episodes_one_idle",
        "session_id",
        unique=True,
        postgresql_where=text("operation_id IS NULL AND status IN ('queued', 'running')"),
    ),
)

# The model calls of an idle Session's compaction: their fence is the episode, not the Run they stand with.
idle_blocks = Table(
    "idle_blocks",
    metadata,
    Column("operation_id", Uuid, ForeignKey("operations.operation_id"), primary_key=True),
    Column("episode_id", Uuid, ForeignKey("compaction_episodes.episode_id"), nullable=False, index=True),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("snapshot_id", Uuid, primary_key=True),  # derived from the episode
    Column("episode_id", Uuid, ForeignKey("compaction_episodes.episode_id"), nullable=False, unique=True),
    Column("session_id", Uuid, ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("context_id", Uuid, ForeignKey("role_contexts.context_id"), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("previous_id", Uuid),  # the snapshot folded into this one, whose pieces it covers too
    Column("text_id", LargeBinary, ForeignKey("payloads.payload_id"), nullable=False),  # the summary as it came
    Column("message_id", LargeBinary, ForeignKey("payloads.payload_id"), nullable=False),  # as requests show it
    Column("tokens", Integer, nullable=False),
    Column("ranges", JSONB, nullable=False),  # [{context_id, from_seq, through_seq}], with those of the chain before
    Column("revisions", JSONB, nullable=False),  # {context_id: revision}
    Column("runs", ARRAY(Integer), nullable=False),
    Column("pieces", Integer, nullable=False),
    Column("activated", Boolean, nullable=False),
    Column("outdated_at", DateTime(timezone=True)),
    made_no(),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    UniqueConstraint("context_id", "generation"),
)

# What a snapshot covers beyond the one folded into it, each piece in the version that was summarised (SPEC K10).
snapshot_pieces = Table(
    "snapshot_pieces",
    metadata,
    Column("snapshot_id", Uuid, ForeignKey("snapshots.snapshot_id"), primary_key=True),
    Column("piece", Text, primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("run_no", Integer, nullable=False),
    Column("context_id", Uuid),
    Column("context_seq", BigInteger),
    Index("ix_snapshot_pieces_piece", "piece"),
)

# One row a Run, made by its first request. The claim is saved when the Run ends (SPEC P2), None until then.
session_views = Table(
    "session_views",
    metadata,
    Column("run_id", Uuid, ForeignKey("runs.run_id"), primary_key=True),
    Column("session_id", Uuid, ForeignKey("sessions.session_id"), nullable=False),
    Column("run_no", Integer, nullable=False),
    Column("whole", Boolean, nullable=False),  # whether its list shows the whole session (`history: session_view`)
    Column("observed_seq", BigInteger, nullable=False),  # earlier records up to this place were known to it
    Column("estimator_id", Text, nullable=False),  # which counted the tokens of its items
    Column("through_seq", BigInteger),  # its list stands for all root records up to this place
    Column("view_id", Uuid, ForeignKey("request_views.view_id")),
    Column("view_length", Integer),
    Column("outdated_at", DateTime(timezone=True)),  # something that it shows has another version since
    Index("ix_session_views_farthest", "session_id", "through_seq"),
)

Index("ix_tool_batches_open", tool_batches.c.run_id, postgresql_where=text("NOT consumed"))

# What changed a record: its effective message from a revision on; the record itself stays as it is (SPEC H4, K10).
context_mutations = Table(
    "context_mutations",
    metadata,
    Column("mutation_id", Uuid, primary_key=True),
    Column("context_id", Uuid, ForeignKey("role_contexts.context_id"), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("record_id", Uuid, ForeignKey("context_records.record_id"), nullable=False),
    Column("payload_id", LargeBinary, ForeignKey("payloads.payload_id"), nullable=False),
    Column("source", Text, nullable=False),  # who made it
    Column("cause", Text, nullable=False),  # what led to it
    Column("outdated", ARRAY(Uuid), nullable=False, server_default=text("'{}'")),  # snapshots that it took back
    made_no(),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index("ix_context_mutations_record", "record_id", "revision"),
    Index("ix_context_mutations_context", "context_id", "revision"),
)

__all__ = [
    "compaction_episodes",
    "context_mutations",
    "idle_blocks",
    "metadata",
    "session_views",
    "snapshot_pieces",
    "snapshots",
]
