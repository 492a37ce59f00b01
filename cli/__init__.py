"""The `agentloom` command."""
