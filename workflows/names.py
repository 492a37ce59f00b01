"""Names that are wire format: workflow types, signals, queries, attributes. Renaming breaks running workflows."""

RUN_WORKFLOW = "RunWorkflow"
COMPACTION_WORKFLOW = "CompactionWorkflow"

SUPPLEMENT_SIGNAL = "supplement"
STATE_QUERY = "state"
COMPACT_UPDATE = "compact"

SESSION_ATTRIBUTE = "AgentLoomSession"
AGENT_ATTRIBUTE = "AgentLoomAgent"
RELEASE_ATTRIBUTE = "AgentLoomRelease"
OUTCOME_ATTRIBUTE = "AgentLoomOutcome"
