"""What our processes log: one JSON line per record, ids and numbers only, and nothing else reaches the log.

The text of an exception can quote what a user wrote, so no record carries one: its type and the places in our code
are what is left of it. What code of other people prints or logs in this process is content too: the log keeps a way of
its own to where standard error went, and standard output and error themselves lead nowhere (SPEC Y6). What foreign code
logs is told from ours by where it runs, not by its logger's name, which anybody can ask for. Nor does our log hang on
what anybody can configure: the root, its handlers, levels.
"""

import json
import logging
import os
import sys
import threading
import traceback
from contextvars import ContextVar
from datetime import timedelta
from types import TracebackType
from typing import TextIO

OURS = frozenset({
    "activities", "api", "cli", "context", "egress", "hooks", "process_logs", "providers", "settings", "stack",
    "storage", "tools", "worker", "workflows", "temporalio", "uvicorn",
})  # fmt: skip
BELOW_US = frozenset({"asyncio", "asyncpg", "fastapi", "httpcore", "httpx", "mcp", "sqlalchemy", "starlette"})
"""Libraries whose warnings say something of ours; what they log below that, a tool may have asked for."""

UNHEARD = frozenset({"uvicorn.access"})
"""One line per request would hold query strings, which can be content; the counters tell what is needed."""

FOREIGN: ContextVar[bool] = ContextVar("foreign", default=False)
"""Set where code of other people runs; tasks and callbacks that it leaves behind inherit it. Threads don't."""
WORKFLOW_THREADS = "temporal_workflow_"
CORE = "temporalio.core"
MOST_FRAMES = 8
SIGN_OF_LIFE = timedelta(seconds=2)
"""How often Temporal's core tells the server that the worker in this process lives; a frozen one falls silent."""


class ContentFree(logging.Formatter):
    """Formats a record without the text of its exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _words(record),
        }
        if record.exc_info and record.exc_info[0]:
            line["error"] = record.exc_info[0].__name__
            line["frames"] = frames(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False, default=str)


class Unsilenced(logging.Logger):
    """A logger with its own way out and its own threshold, if its name is one of ours; else like any other.

    A tool may configure logging for itself, by `basicConfig(force=True)` or a `dictConfig`, which takes the root's
    handlers away and disables all loggers that there are.
    """

    way_out: logging.Handler = logging.NullHandler()
    threshold = logging.INFO

    def isEnabledFor(self, level: int) -> bool:
        least = _least(self.name, self.threshold)
        return super().isEnabledFor(level) if least is None else level >= least

    def handle(self, record: logging.LogRecord) -> None:
        if _least(self.name, self.threshold) is None:
            super().handle(record)
        else:
            self.way_out.handle(record)


def _least(name: str, threshold: int) -> int | None:
    """From which level on a logger of ours, or of a library below us, is heard; None for all others."""
    if name in UNHEARD:
        return logging.CRITICAL + 1
    top = name.partition(".")[0]
    if top in OURS:
        return threshold
    return max(threshold, logging.WARNING) if top in BELOW_US else None


class OfOurs(logging.Filter):
    """Lets through what this application and the libraries below it say, from the places where only they run."""

    def filter(self, record: logging.LogRecord) -> bool:
        name = record.name.partition(".")[0]
        named = name in OURS or (name in BELOW_US and record.levelno >= logging.WARNING)
        return named and not FOREIGN.get() and _is_from_us(record)


def _is_from_us(record: logging.LogRecord) -> bool:
    """Whether no tool can run in the record's thread: ours log in the main one, Temporal in two kinds of its own."""
    if record.thread == threading.main_thread().ident:
        return True
    return (record.threadName or "").startswith(WORKFLOW_THREADS) or record.name.startswith(CORE)


def _words(record: logging.LogRecord) -> object:
    if record.name == "asyncio":
        return "an error that nobody waited for"  # its own words hold the repr of the task or callback
    return record.msg if record.exc_info else record.getMessage()


def frames(trace: TracebackType | None) -> list[str]:
    """The innermost places of a traceback as `file:line function`, without source lines or values."""
    found = traceback.extract_tb(trace)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in found[-MOST_FRAMES:]]


def configure_logs(level: str) -> None:
    """Send every log of the process, in this form, to where standard error went, and nothing else there."""
    handler = logging.StreamHandler(_only_way_out())
    handler.setFormatter(ContentFree())
    handler.addFilter(OfOurs())
    root = logging.getLogger()
    root.handlers[:] = [logging.NullHandler()]  # nobody else's records are kept
    root.setLevel(level.upper())
    _give_a_way_out(handler, root.level)
    sys.excepthook = _log_the_end
    _forward_core_logs()


def _give_a_way_out(handler: logging.Handler, threshold: int) -> None:
    """To the loggers that there are, and to all that will be."""
    Unsilenced.way_out, Unsilenced.threshold = handler, threshold
    logging.setLoggerClass(Unsilenced)
    for logger in logging.root.manager.loggerDict.values():
        if type(logger) is logging.Logger:
            logger.__class__ = Unsilenced


def _only_way_out() -> TextIO:
    """A copy of standard error that no other program inherits; then both standard streams lead nowhere.

    By descriptor, so that it holds for C code, for threads and for programs that a tool starts.
    """
    way_out = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    return way_out


def _log_the_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("ended by an error that nobody caught", exc_info=(kind, error, trace))


def _forward_core_logs() -> None:
    """Temporal's core writes to standard output by itself; its warnings go through the log instead."""
    from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    forwarding = LogForwardingConfig(logging.getLogger(CORE))
    quiet = LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarding)
    runtime = Runtime(telemetry=TelemetryConfig(logging=quiet), worker_heartbeat_interval=SIGN_OF_LIFE)
    Runtime.set_default(runtime, error_if_already_set=False)
