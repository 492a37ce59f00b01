"""A stdio MCP server of a page, which starts at once and behaves as badly as it is asked to.

`python -I -S tests/support/plain_mcp_server.py TRACE`: it writes its process id, and that of each child, into TRACE.
Tools: `echo`, `hangs` (never answers, deaf to SIGTERM and to the end of its input), `hangs_once` (until FILE is there,
which it makes), `dies`, `leaves_a_child` (in a session of its own, deaf to SIGTERM, holding the output open), `answers`
(with the text that it is given as its result, BYTE in it as one that is no UTF-8, behind the bytes of `noise`),
`declares` (the same; its list says that a result is `{"t": …}` by a pattern that backtracks for ever). Each question
for the list is written into TRACE.
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

TOOLS = ("echo", "hangs", "hangs_once", "dies", "leaves_a_child", "answers", "result_read", "declares")
NEVER_DONE = {"type": "object", "properties": {"t": {"pattern": "^(a+)+$"}}, "required": ["t"]}
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def note(word: str, pid: int) -> None:
    """One line, appended at once."""
    with open(sys.argv[1], "a", encoding="ascii") as trace:
        trace.write(f"{word} {pid}\n")


def hang(path: str) -> None:
    """For ever, whatever is said."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("hangs", os.getpid())
    open(path, "a", encoding="ascii").close()
    while True:
        time.sleep(600)


def leave_a_child() -> None:
    """A process that no signal to our group reaches."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", CHILD], start_new_session=True)
    note("child", child.pid)


def called(name: str, arguments: dict[str, Any]) -> Any:
    """What a call gives, if it gives anything."""
    if name == "hangs" or (name == "hangs_once" and not os.path.exists(arguments["path"])):
        hang(arguments.get("path", os.devnull))
    if name == "dies":
        os._exit(7)
    if name == "leaves_a_child":
        leave_a_child()
    return {"content": [{"type": "text", "text": str(arguments.get("text", name))}]}


def listed(name: str) -> dict[str, Any]:
    """What the list says of a tool."""
    said: dict[str, Any] = {"name": name, "inputSchema": {"type": "object"}}
    return said | ({"outputSchema": NEVER_DONE} if name == "declares" else {})


def answer(message: dict[str, Any]) -> Any:
    """The result of one request."""
    if message["method"] == "initialize":
        server = {"name": "plain", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
    if message["method"] == "tools/list":
        note("list", os.getpid())
        return {"tools": [listed(name) for name in TOOLS]}
    if message["method"] == "tools/call":
        return called(message["params"]["name"], message["params"].get("arguments", {}))
    return {}


def verbatim(message: dict[str, Any]) -> str:
    """The line of an answer whose result is given as text, whatever that is."""
    params = message.get("params", {})
    if params.get("name") not in ("answers", "declares"):
        return ""
    arguments = params["arguments"]
    line = f'{{"jsonrpc": "2.0", "id": {message["id"]}, "result": {arguments["result"]}}}\n'
    return bytes(arguments.get("noise", ())).decode(errors="surrogateescape") + line.replace("BYTE", "\udce9")


def main() -> None:
    note("server", os.getpid())
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}
            line = verbatim(message) or json.dumps(reply) + "\n"
            sys.stdout.buffer.write(line.encode(errors="surrogateescape"))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
