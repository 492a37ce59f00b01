"""What a person is told about an MCP server that can't be asked for its tools: what it is, and what to do (SPEC B3, E).

Pure. The sentences go on from the server's name; they hold numbers and places, and none of the server's words.
"""

from context.policy import ToolEntry
from tools.errors import Problem, ServerUnusableError, ToolUnavailableError

_NO_KEY = (401, 403)
_WHERE = "where the API and the workers run"
_WHY: dict[Problem, str] = {
    "no_program": "has a `command` whose program does not exist {where}, or is a script whose interpreter does not;"
    " correct `command`, or install the program there.",
    "not_executable": "has a `command` whose program may not be executed {where}; correct `command`, or give the file"
    " the right to be executed.",
    "not_startable": "has a `command` whose program can't be started {where} (error {number} of the system); correct"
    " `command`.",
    "ended": "started and ended before it answered; run its `command` by hand {where} to see why.",
    "protocol_error": "answered with the protocol error {number}; check that it is an MCP server that offers tools.",
    "endless_list": "has a list of tools that does not end: each page names a next one; mend the server's nextCursor.",
    "no_list": "answered the question for its tools with what is no list of tools, at '{place}'; mend the server.",
}


def why_unasked(error: ToolUnavailableError, entry: ToolEntry) -> str:
    """The rest of a sentence that begins with the server's name."""
    if isinstance(error, ServerUnusableError):
        return _WHY[error.problem].format(where=_WHERE, number=error.number, place=error.place)
    if error.status in _NO_KEY:
        return f"answered HTTP {error.status}; check the key in its `connection`."
    if error.status:
        return f"answered HTTP {error.status}; check its `url`, and that the server works."
    if error.reason == "timeout":
        return "could not be asked for its tools within its `timeout_s`, or 20 s; check that it starts and answers."
    if entry.url is None:
        return "could not be asked for its tools; check that it starts and answers."
    return "could not be reached, or broke off the connection; check its `url`, and that the server runs."
