"""What the tools of a release say of a call: may it be made, what did it bring (SPEC T3, T4, T5)."""

from dataclasses import dataclass, field

from context.policy import Effect
from context.steps import ToolFailure


@dataclass(frozen=True)
class ToolRefused:
    """A call that is not made (SPEC T3); `content` is its result for the model."""

    content: str = field(repr=False)


@dataclass(frozen=True)
class ToolAccepted:
    """A call whose arguments fit the frozen schema. `local`: short and harmless enough for a local activity."""

    effect: Effect
    timeout_s: float
    local: bool


@dataclass(frozen=True)
class ToolAnswered:
    """What a tool answered, well or not.

    `content` is what the model sees; if that was shortened, `whole` is all of it. `artifacts` are media type and body.
    `transforms` names what was changed between the raw result and the content.
    """

    failed: bool
    content: str = field(repr=False)
    raw: bytes = field(repr=False)
    whole: str | None = field(default=None, repr=False)
    artifacts: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    transforms: tuple[str, ...] = ()
    raw_media_type: str = "application/json"


@dataclass(frozen=True)
class ToolLost:
    """The tool could not be asked, or its answer was lost. `content` says so if nothing more is tried.

    `may_repeat`: the same call may be made again. `may_have_run`: it may have had its effect. `said` is what a server
    answered that leaves open what happened.
    """

    may_repeat: bool
    may_have_run: bool
    retry_after_s: float | None
    content: str = field(repr=False)
    reason: str = "connection_lost"
    status: int = 0
    said: ToolAnswered | None = field(default=None, repr=False)

    @property
    def failure(self) -> ToolFailure:
        return ToolFailure(self.reason, self.status)
