"""Transports of hooks, which propose; `context` decides."""
