"""A module whose import fails, with words that must not travel."""

raise RuntimeError("MARK-import")
