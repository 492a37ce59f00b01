"""The pure domain of AgentLoom: what must hold, decided without clock, randomness or I/O."""
