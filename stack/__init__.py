"""`agentloom dev`: PostgreSQL, Temporal, worker and API under one parent."""
