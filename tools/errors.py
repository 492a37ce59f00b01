"""How reaching a tool can fail. What a tool says about its own failure is a `ToolOutcome`, never an error."""

from typing import TYPE_CHECKING, Literal

from context.errors import AgentLoomError

if TYPE_CHECKING:
    from tools.port import ToolOutcome

Reason = Literal["unreachable", "connection_lost", "timeout", "busy", "server_error", "not_started"]
Problem = Literal["no_program", "not_executable", "not_startable", "ended", "protocol_error", "endless_list", "no_list"]
"""What is wrong with an MCP server that answers no question for its tools."""


class ToolUnavailableError(AgentLoomError):
    """The tool could not be asked, or its answer was lost; whether to ask again is decided by `port.may_repeat`.

    `may_have_run` is false only where the call is known not to have reached the tool. `retry_after_s` is what the
    server asked for, in seconds. `said` is what a server answered that leaves the call open, such as a 503 with its
    body: content, which is in no word of the error itself (SPEC Y6, T9).
    """

    code = "TOOL_UNAVAILABLE"
    sentence = "The tool could not be reached."

    def __init__(
        self,
        reason: Reason,
        *,
        may_have_run: bool,
        status: int = 0,
        retry_after_s: float | None = None,
        said: "ToolOutcome | None" = None,
    ) -> None:
        super().__init__(f"The server answered HTTP {status}. ({reason})" if status else f"{self.sentence} ({reason})")
        self.reason = reason
        self.may_have_run = may_have_run
        self.status = status
        self.retry_after_s = retry_after_s
        self.said = said


class ToolTimeoutError(ToolUnavailableError):
    """The call took longer than its time limit; it may be running still, unless it was not made yet."""

    sentence = "The tool did not answer in time."

    def __init__(self, *, may_have_run: bool = True) -> None:
        super().__init__("timeout", may_have_run=may_have_run)


class ServerUnusableError(ToolUnavailableError):
    """An MCP server that can't be used as it is: nothing was called.

    `number` is the system's error number of a program that can't be started, or the code of a protocol error; `place`
    is where in the server's answer something is wrong.
    """

    def __init__(self, problem: Problem, *, number: int = 0, place: str = "") -> None:
        super().__init__("unreachable", may_have_run=False)
        self.problem = problem
        self.number = number
        self.place = place
