"""Every table, as SQLAlchemy Core metadata. Content stands in `payloads` only, encrypted; the rest orders and links.

Facts are inserted once under natural keys, and numbered where their order matters (`made_no`): times are shown, but no
order is told and nothing is decided by them (SPEC S13). Heads (`sessions`, `runs`, `role_contexts`, `operations`,
`tool_batches`) move by compare-and-set under a row lock. Locks are taken in the order session, run, context, operation.
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
    MetaData,
    Numeric,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from storage.columns import NAMING, at, made_no, payload

metadata = MetaData(naming_convention=NAMING)

payloads = Table(
    "payloads",
    metadata,
    Column("payload_id", LargeBinary, primary_key=True),  # keyed hash of the plain content (index key, never rotated)
    Column("key_id", Text, nullable=False),  # master key the body is encrypted under
    Column("codec", Text, nullable=False),  # "zstd" or "raw", applied before encryption
    Column("size", Integer, nullable=False),  # bytes of the plain content
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of the plain content, for chains and exports
    Column("body", LargeBinary, nullable=False),  # nonce + AES-GCM ciphertext
    Column("tokens", JSONB, nullable=False, server_default=text("'{}'")),  # estimator id -> tokens of the message
    at(),
    Index("ix_payloads_key_id", "key_id"),
)

# --- people and agents -----------------------------------------------------------------------------------------------

spaces = Table(
    "spaces", metadata, Column("space_id", Uuid, primary_key=True), Column("name", Text, nullable=False), at()
)

users = Table(
    "users",
    metadata,
    Column("user_id", Uuid, primary_key=True),
    Column("space_id", Uuid, ForeignKey("spaces.space_id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),  # admin, member, auditor
    at(),
    UniqueConstraint("space_id", "name"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", Uuid, primary_key=True),
    Column("user_id", Uuid, ForeignKey("users.user_id"), nullable=False, index=True),
    Column("key_hash", LargeBinary, nullable=False, unique=True),
    Column("hint", Text, nullable=False),  # first characters, to tell keys apart
    made_no(),
    at(),
    Column("revoked_at", DateTime(timezone=True)),
    Index("ix_api_keys_oldest", "made_no"),
)

agents = Table(
    "agents",
    metadata,
    Column("agent_id", Uuid, primary_key=True),
    Column("space_id", Uuid, ForeignKey("spaces.space_id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("owner_id", Uuid, ForeignKey("users.user_id")),  # who made it; None: nobody who can ask over HTTP
    Column("release_head", Integer, nullable=False, server_default="0"),
    at(),
    UniqueConstraint("space_id", "name"),
)

agent_releases = Table(
    "agent_releases",
    metadata,
    Column("release_id", Uuid, primary_key=True),
    Column("agent_id", Uuid, ForeignKey("agents.agent_id"), nullable=False),
    Column("release_no", Integer, nullable=False),
    Column("release_hash", Text, nullable=False),
    payload("payload_id", nullable=False),  # context.policy.Release as canonical JSON
    at(),
    UniqueConstraint("agent_id", "release_no"),
)

connections = Table(
    "connections",
    metadata,
    Column("connection_id", Uuid, primary_key=True),
    Column("space_id", Uuid, ForeignKey("spaces.space_id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("base_url", Text),
    payload("secret_id"),  # the key or secret, None for none
    Column("models", JSONB, nullable=False, server_default=text("'[]'")),
    at(),
    UniqueConstraint("space_id", "name"),
)

# --- sessions, runs, inputs ------------------------------------------------------------------------------------------

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", Uuid, primary_key=True),
    Column("space_id", Uuid, ForeignKey("spaces.space_id"), nullable=False),
    Column("owner_id", Uuid, ForeignKey("users.user_id"), nullable=False),
    Column("agent_id", Uuid, ForeignKey("agents.agent_id"), nullable=False, index=True),
    payload("title_id"),
    Column("archived_at", DateTime(timezone=True)),
    Column("input_head", BigInteger, nullable=False, server_default="0"),  # highest input_seq
    Column("record_head", BigInteger, nullable=False, server_default="0"),  # highest session seq
    Column("run_head", Integer, nullable=False, server_default="0"),  # highest run_no
    Column("parent_id", Uuid),
    Column("base_run_no", Integer, nullable=False, server_default="0"),  # run_head at the last successful compaction
    Column("base_seq", BigInteger, nullable=False, server_default="0"),  # record_head at the last successful compaction
    made_no(),
    at(),
    Index("ix_sessions_owner_newest", "owner_id", "made_no"),
)

ACTIVE = "status IN ('queued', 'running')"

runs = Table(
    "runs",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("session_id", Uuid, ForeignKey("sessions.session_id"), nullable=False),
    Column("run_no", Integer, nullable=False),
    Column("release_id", Uuid, ForeignKey("agent_releases.release_id"), nullable=False),
    Column("status", Text, nullable=False),  # queued running succeeded failed stopped timed_out exhausted
    Column("phase", Text, nullable=False),
    Column("end_reason", Text),
    Column("error", JSONB),  # {code, message, numbers}
    Column("execution_no", Integer, nullable=False, server_default="1"),
    Column("loops", Integer, nullable=False, server_default="0"),
    Column("input_cutoff", BigInteger, nullable=False, server_default="0"),
    Column("event_head", BigInteger, nullable=False, server_default="0"),
    Column("input_tokens", BigInteger, nullable=False, server_default="0"),
    Column("output_tokens", BigInteger, nullable=False, server_default="0"),
    Column("cached_tokens", BigInteger, nullable=False, server_default="0"),
    Column("cost", Numeric),  # None: unknown
    Column("usage_unknown", Integer, nullable=False, server_default="0"),  # attempts without whole usage
    Column("active_ms", BigInteger, nullable=False, server_default="0"),  # of earlier executions
    Column("started_at", DateTime(timezone=True)),  # of the current execution
    Column("stop_requested_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("ended_no", BigInteger),  # the end's place among the facts of `made_no`
    Column("answer_record_id", Uuid),
    Column(
        "asked_to_compact", Boolean, nullable=False, server_default=text("false")
    ),  # and no request was prepared since
    at(),
    UniqueConstraint("session_id", "run_no"),
    Index("uq_runs_one_active", "session_id", unique=True, postgresql_where=text(ACTIVE)),
    Index("ix_runs_active", "run_id", postgresql_where=text(ACTIVE)),
)

user_inputs = Table(
    "user_inputs",
    metadata,
    Column("input_id", Uuid, primary_key=True),
    Column("session_id", Uuid, ForeignKey("sessions.session_id"), nullable=False),
    Column("input_seq", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),  # question, supplement
    payload("payload_id", nullable=False),  # the message {role: user, content: text}
    Column("origin_run_id", Uuid),
    Column("received_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    UniqueConstraint("session_id", "input_seq"),
)

input_deliveries = Table(
    "input_deliveries",
    metadata,
    Column("delivery_id", Uuid, primary_key=True),
    Column("input_id", Uuid, ForeignKey("user_inputs.input_id"), nullable=False, index=True),
    Column("session_id", Uuid, nullable=False),
    Column("input_seq", BigInteger, nullable=False),
    Column("run_id", Uuid, index=True),  # None: waits for whatever starts next
    Column("operation_id", Uuid),  # the request that claimed it
    Column("previous_delivery_id", Uuid),
    Column("state", Text, nullable=False),  # pending claimed delivered carried withdrawn
    Column("context_seq", BigInteger),
    Column("delivered_at", DateTime(timezone=True)),
    Index(
        "ix_input_deliveries_open", "session_id", "input_seq", postgresql_where=text("state IN ('pending', 'claimed')")
    ),
    Index("ix_input_deliveries_withdrawn", "session_id", postgresql_where=text("state = 'withdrawn'")),
)

client_keys = Table(
    "client_keys",
    metadata,
    Column("session_id", Uuid, primary_key=True),
    Column("client_key", LargeBinary, primary_key=True),  # keyed hash of the client's key
    Column("body_hash", LargeBinary, nullable=False),  # keyed hash of what was asked
    Column("answer", JSONB, nullable=False),
    at(),
)

# --- contexts --------------------------------------------------------------------------------------------------------

agent_tasks = Table(
    "agent_tasks",
    metadata,
    Column("task_id", Uuid, primary_key=True),
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False, index=True),
    Column("role_key", Text, nullable=False),
    Column("parent_operation_id", Uuid),
    at(),
)

role_contexts = Table(
    "role_contexts",
    metadata,
    Column("context_id", Uuid, primary_key=True),
    Column("session_id", Uuid, ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False, index=True),
    Column("task_id", Uuid, ForeignKey("agent_tasks.task_id"), nullable=False),
    Column("instance", Text, nullable=False),  # "main" or the task's id
    Column("record_head", BigInteger, nullable=False, server_default="0"),
    Column("revision", BigInteger, nullable=False, server_default="0"),
    Column("chain", LargeBinary, nullable=False),
    Column("view_id", Uuid),  # the reference list that the next request extends
    Column("view_length", Integer, nullable=False, server_default="0"),
    Column("view_tokens", BigInteger, nullable=False, server_default="0"),
    Column("active_snapshot_id", Uuid),
    Column("material_mark", Integer, nullable=False, server_default="0"),  # view_length when the last episode ended
)

context_records = Table(
    "context_records",
    metadata,
    Column("record_id", Uuid, primary_key=True),
    Column("context_id", Uuid, ForeignKey("role_contexts.context_id"), nullable=False),
    Column("context_seq", BigInteger, nullable=False),
    Column("session_id", Uuid, nullable=False),
    Column("seq", BigInteger, nullable=False),  # session seq
    Column("run_id", Uuid, nullable=False, index=True),
    Column("role", Text, nullable=False),
    Column("kind", Text, nullable=False),  # user_ref assistant tool_result feedback fragment
    payload("payload_id", nullable=False),  # the message as canonical JSON
    Column("operation_id", Uuid),
    Column("result_key", Text),
    Column("input_id", Uuid),
    Column("call_id", Text),
    Column("status", Text),  # None: plain success
    Column("chain", LargeBinary, nullable=False),
    at(),
    UniqueConstraint("context_id", "context_seq"),
    UniqueConstraint("session_id", "seq"),
    Index(
        "uq_context_records_input", "context_id", "input_id", unique=True, postgresql_where=text("input_id IS NOT NULL")
    ),
    Index(
        "uq_context_records_operation",
        "operation_id",
        "kind",
        "result_key",
        unique=True,
        postgresql_where=text("operation_id IS NOT NULL"),
        postgresql_nulls_not_distinct=True,
    ),
)

context_revisions = Table(
    "context_revisions",
    metadata,
    Column("context_id", Uuid, ForeignKey("role_contexts.context_id"), primary_key=True),
    Column("revision", BigInteger, primary_key=True),
    Column("record_watermark", BigInteger, nullable=False),
    Column("mutation_ids", ARRAY(Uuid), nullable=False, server_default=text("'{}'")),
    Column("cause", Text, nullable=False),  # the commit that made it
    made_no(),
    at(),
)

request_views = Table(
    "request_views",
    metadata,
    Column("view_id", Uuid, primary_key=True),
    Column("context_id", Uuid, ForeignKey("role_contexts.context_id"), nullable=False, index=True),
    Column("cause", Text, nullable=False),  # first_request, compaction, pruning, …: why this list was begun
    Column("before_view_id", Uuid),  # the list it took the place of
    Column("before_length", Integer),
    Column("inherited", Integer),  # items it began with, instead of those
    at(),
)

view_items = Table(
    "view_items",
    metadata,
    Column("view_id", Uuid, ForeignKey("request_views.view_id"), primary_key=True),
    Column("pos", Integer, primary_key=True),
    Column("kind", Text, nullable=False),  # system input assistant tool_result placeholder marker feedback summary
    Column("source_id", Uuid),  # record or input it shows
    Column("run_no", Integer),  # the Run it comes from, if an earlier one
    Column("revision", BigInteger),
    payload("payload_id", nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("transform", Text),  # tool_result_offload, tool_result_pruned, args_truncated
)

# --- operations ------------------------------------------------------------------------------------------------------

operations = Table(
    "operations",
    metadata,
    Column("operation_id", Uuid, primary_key=True),
    Column("session_id", Uuid, nullable=False),
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False),
    Column("context_id", Uuid, nullable=False),
    Column("purpose", Text, nullable=False),  # business tool compaction verification
    Column("state", Text, nullable=False),
    Column("loop_no", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False, server_default="0"),
    Column("name", Text, nullable=False),  # model or tool
    Column("attempts", Integer, nullable=False, server_default="0"),
    # a model call
    Column("input_cutoff", BigInteger),
    Column("view_id", Uuid),
    Column("view_length", Integer),
    Column("tail", JSONB),  # state and reference items after the prefix
    Column("max_output_tokens", Integer),
    Column("request_hash", LargeBinary),
    Column("batch_id", Uuid, index=True),  # a tool call, from here on
    Column("call_id", Text),
    Column("effect", Text),
    payload("arguments_id"),
    payload("raw_id"),
    Column("raw_media_type", Text),  # of a tool's raw result
    Column("transforms", JSONB),  # names of what was changed between raw and result, None for nothing
    payload("result_id"),  # the message that goes on, as canonical JSON
    payload("whole_id"),  # the whole text of a tool result that the message shows in part
    Column("prepared", JSONB),  # what the preparing commit decided, so that a repeat finds it
    Column("verdict", JSONB),  # what the settling commit decided, likewise
    made_no(),
    at(),
    at("updated_at"),
    Index("ix_operations_run", "run_id", "made_no"),
    Index("ix_operations_session", "session_id", "operation_id"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("operation_id", Uuid, ForeignKey("operations.operation_id"), primary_key=True),
    Column("attempt_no", Integer, primary_key=True),
    Column("state", Text, nullable=False),  # calling succeeded failed superseded
    Column("started_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("begun_at", DateTime(timezone=True)),  # when its call was taken up; None: a permit that was never used
    Column("first_output_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("usage", JSONB),
    Column("cost", Numeric),
    Column("error", JSONB),  # {code, reason, status}
    payload("fragment_id"),
)

tool_batches = Table(
    "tool_batches",
    metadata,
    Column("batch_id", Uuid, primary_key=True),  # the model Operation's id
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False),
    Column("context_id", Uuid, nullable=False),
    Column("size", Integer, nullable=False),
    Column("consumed", Boolean, nullable=False, server_default=text("false")),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("operation_id", Uuid, ForeignKey("operations.operation_id"), primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("media_type", Text, nullable=False),
    payload("payload_id", nullable=False),
)

call_ids = Table(
    "call_ids",
    metadata,
    Column("session_id", Uuid, primary_key=True),
    Column("call_id", Text, primary_key=True),  # unique in a session even if the provider repeats its ids
    Column("operation_id", Uuid, nullable=False),
)

manifests = Table(
    "manifests",
    metadata,
    Column("operation_id", Uuid, ForeignKey("operations.operation_id"), primary_key=True),
    Column("estimated_input_tokens", BigInteger, nullable=False),
    Column("estimated_cost", Numeric),  # of that input; None: unknown
    Column("input_limit", BigInteger, nullable=False),
    Column("counting_method", Text, nullable=False),
    Column("exact", Boolean, nullable=False),
    Column("transforms", JSONB, nullable=False),
    Column("validation", Text, nullable=False),
    Column("notes", JSONB, nullable=False, server_default=text("'[]'")),  # why it was not compacted, and the like
    at(),
)

# --- events, intents, audit ------------------------------------------------------------------------------------------

run_events = Table(
    "run_events",
    metadata,
    Column("run_id", Uuid, ForeignKey("runs.run_id"), primary_key=True),
    Column("run_seq", BigInteger, primary_key=True),
    Column("type", Text, nullable=False),
    Column("body", JSONB, nullable=False),  # ids and numbers only
    at("at"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("outbox_id", Uuid, primary_key=True),
    Column("kind", Text, nullable=False),  # start, signal, cancel
    Column("run_id", Uuid, nullable=False, index=True),
    Column("body", JSONB, nullable=False),  # ids and numbers only
    Column("sent_at", DateTime(timezone=True)),
    Column("due_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("tries", Integer, nullable=False, server_default="0"),
    at(),
    Index("ix_outbox_due", "due_at", postgresql_where=text("sent_at IS NULL")),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("audit_id", Uuid, primary_key=True),
    Column("user_id", Uuid),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False, index=True),
    at(),
)
