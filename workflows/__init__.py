"""Orchestration: the deterministic side of a Run, which decides when things happen and never does them."""
