"""How the stack says that it can't do something: what happened, why, and the command that mends it."""

from context.errors import AgentLoomError


class StackError(AgentLoomError):
    """The stack can't start or go on: `message` says what, `why` the reason, `mend` the next command; no secret."""

    code = "UNAVAILABLE"
    sentence = "The stack could not start."

    def __init__(self, message: str, *, why: str, mend: str) -> None:
        super().__init__(message)
        self.why = why
        self.mend = mend


class UnusableServerError(StackError):
    """A server that the environment names does not answer, or is not one that this code can use."""


class WrongOptionError(StackError):
    """What was asked for can't be: another folder, port or option is needed."""

    code = "CONFIGURATION_INVALID"
