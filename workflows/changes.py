"""Version markers: `area-change-vN`, stable, unique, never reused.

A marker is added when a change would make recorded histories replay differently, and removed only when no history
from before it can still be open. Until version 1.0 a meant change re-records the histories instead (CHANGELOG,
"Running workflows"), so there is none yet.
"""
