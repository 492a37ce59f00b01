"""Side effects, thin: read, ask `context`, commit once."""
