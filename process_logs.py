"""What our processes log: one JSON line per record, ids and numbers only.

The text of an exception can quote what a user wrote, so no record carries one: its type and the places in our code
are what is left of it (SPEC Y6).
"""

import json
import logging
import sys
import traceback
from types import TracebackType

LIBRARIES = ("uvicorn", "uvicorn.error", "uvicorn.access", "temporalio", "mcp", "httpx", "httpcore", "asyncio")


class ContentFree(logging.Formatter):
    """Formats a record without the text of its exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.msg if record.exc_info else record.getMessage(),
        }
        if record.exc_info and record.exc_info[0]:
            line["error"] = record.exc_info[0].__name__
            line["frames"] = frames(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False, default=str)


def frames(trace: TracebackType | None, *, most: int = 8) -> list[str]:
    """The innermost places of a traceback as `file:line function`, without source lines or values."""
    found = traceback.extract_tb(trace)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in found[-most:]]


def configure_logs(level: str) -> None:
    """Send every log of the process to standard error in this form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ContentFree())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in LIBRARIES:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    # One line per request would hold query strings, which can be content; the counters tell what is needed.
    logging.getLogger("uvicorn.access").disabled = True
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
