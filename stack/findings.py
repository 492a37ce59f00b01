"""What `agentloom doctor` says of a part: sound, broken with the command that mends it, or skipped."""

from dataclasses import dataclass

START = "agentloom dev"
"""The command that mends most."""


@dataclass(frozen=True)
class Sound:
    """This part is as it should be."""

    part: str
    detail: str


@dataclass(frozen=True)
class Broken:
    """This part does not work; `mend` is the command to try."""

    part: str
    detail: str
    mend: str


@dataclass(frozen=True)
class Skipped:
    """Could not or need not be looked at."""

    part: str
    detail: str


Finding = Sound | Broken | Skipped
