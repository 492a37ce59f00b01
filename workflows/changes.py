"""Version markers: `area-change-vN`, stable, unique, never reused.

A marker is added when a change would make recorded histories replay differently, and removed only when no history
from before it can still be open. Until version 1.0 a meant change may re-record the histories instead (CHANGELOG,
"Running workflows").
"""

HANDS_ON_EARLY = "run-history-length-change-v1"
"""Runs continue as new at `options.LONGEST_HISTORY`, and not only where the server suggests it."""
