"""What the API and the command line may see. Every read of a user's own checks the owner in the query itself, so that
what is another person's and what does not exist look the same: NotFoundError. Lists are paged by key, never by offset.
"""

from storage.reads.agents import AgentRow, ReleaseRow, agent, agents, release_row, releases
from storage.reads.breaks import Break
from storage.reads.compactions import CompactionRow, compaction, compactions
from storage.reads.connections import ConnectionRow, connection, connections, stored_key
from storage.reads.contexts import ContextView, RecordRow, RevisionRow, context_revisions, context_view
from storage.reads.explaining import ComparedRequests, ExplainedPiece, compared, explained
from storage.reads.inputs import InputRow, run_inputs, session_inputs
from storage.reads.manifests import ManifestItem, ManifestRow, manifests
from storage.reads.messages import MessagePage, MessageRow, messages
from storage.reads.operations import (
    AttemptRow,
    OperationResult,
    OperationRow,
    operation,
    operation_artifact,
    operation_result,
    operations,
)
from storage.reads.pages import Page
from storage.reads.people import KeyRow, Principal, UserRow, find_key, keys, users
from storage.reads.releases import release
from storage.reads.runs import EventRow, InstanceRow, RunRow, instances, run, run_events, runs
from storage.reads.sessions import SessionRow, session, sessions
from storage.reads.usage import UsageSum, UsageTotals, Used, session_usage, usage
from storage.reads.verifying import Checked, verified

__all__ = [
    "AgentRow",
    "AttemptRow",
    "Break",
    "Checked",
    "CompactionRow",
    "ComparedRequests",
    "ConnectionRow",
    "ContextView",
    "EventRow",
    "ExplainedPiece",
    "InputRow",
    "InstanceRow",
    "KeyRow",
    "ManifestItem",
    "ManifestRow",
    "MessagePage",
    "MessageRow",
    "OperationResult",
    "OperationRow",
    "Page",
    "Principal",
    "RecordRow",
    "ReleaseRow",
    "RevisionRow",
    "RunRow",
    "SessionRow",
    "UsageSum",
    "UsageTotals",
    "Used",
    "UserRow",
    "agent",
    "agents",
    "compaction",
    "compactions",
    "compared",
    "connection",
    "connections",
    "context_revisions",
    "context_view",
    "explained",
    "find_key",
    "instances",
    "keys",
    "manifests",
    "messages",
    "operation",
    "operation_artifact",
    "operation_result",
    "operations",
    "release",
    "release_row",
    "releases",
    "run",
    "run_events",
    "run_inputs",
    "runs",
    "session",
    "session_inputs",
    "session_usage",
    "sessions",
    "stored_key",
    "usage",
    "users",
    "verified",
]
