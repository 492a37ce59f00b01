"""The edge to chat models: dialects, streams, token counters and the offline demo model."""
