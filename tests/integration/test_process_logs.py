"""What reaches the log of a process of ours, by any way that code can write (SPEC Y6)."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LOUD = """
import asyncio, ctypes, logging, os, subprocess, sys, threading, warnings
from process_logs import configure_logs
configure_logs("info")

def fails():
    raise ValueError("MARK-thread")

async def never_awaited():
    raise ValueError("MARK-task")

async def main():
    asyncio.get_running_loop().create_task(never_awaited())
    asyncio.get_running_loop().call_soon(lambda text: 1 / 0, "MARK-callback")
    await asyncio.sleep(0.05)

print("MARK-print", flush=True)
print("MARK-error", file=sys.stderr, flush=True)
sys.__stderr__.write("MARK-original")
os.write(1, b"MARK-descriptor")
os.write(2, b"MARK-descriptor")
ctypes.CDLL(None).puts(b"MARK-c")
ctypes.CDLL(None).fflush(None)
subprocess.run([sys.executable, "-S", "-c", "import sys; print('MARK-child'); print('MARK-child', file=sys.stderr)"])
logging.error("MARK-root")
logging.getLogger("their.tool").critical("MARK-logger")
logging.getLogger("sqlalchemy.engine").info("MARK-echo")
warnings.warn("MARK-warning")
thread = threading.Thread(target=fails)
thread.start()
thread.join()
asyncio.run(main())
logging.getLogger("activities.runs").warning("ours %d", 7)
raise LookupError("MARK-end")
"""


def test_nothing_but_our_own_lines_reaches_the_log() -> None:
    """SPEC Y6: print, descriptors, C code, threads, tasks, programs that are started, other loggers, the last error."""
    ended = subprocess.run([sys.executable, "-c", LOUD], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "MARK" not in ended.stderr
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert "ours 7" in [line["message"] for line in lines]
    assert (lines[-1]["level"], lines[-1]["error"]) == ("critical", "LookupError")
    assert {line["error"] for line in lines if line["logger"] == "asyncio"} == {"ValueError", "ZeroDivisionError"}


BORROWED = """
import asyncio, logging, threading
from process_logs import configure_logs
configure_logs("info")
from tools.running import attempted, run_async, run_in_thread

NAMES = ("worker", "tools.python", "storage", "httpx", "mcp", "asyncpg", "temporalio", "temporalio.activity")

def loud(where):
    for name in NAMES:
        logging.getLogger(name).error("MARK-%s", where)
        logging.getLogger(name).error("MARK-%s", where, exc_info=ValueError("MARK"), extra={"run_id": "MARK"})

class Broken(Exception):
    def __str__(self):
        loud("error")
        return "words"

def plain():
    loud("thread")
    started = threading.Thread(target=loud, args=("started",))
    started.start()
    started.join()
    raise Broken

async def later():
    await asyncio.sleep(0.02)
    loud("task")

async def awaited():
    loud("coroutine")
    loop = asyncio.get_running_loop()
    left.append(loop.create_task(later()))
    loop.call_later(0.01, loud, "callback")
    await asyncio.to_thread(loud, "to_thread")
    await loop.run_in_executor(None, loud, "executor")
    await asyncio.sleep(0)
    loud("again")

async def main():
    quiet = lambda: None
    attempted(lambda: loud("import"))
    await run_in_thread(lambda: attempted(plain), on_progress=quiet)
    await run_async(awaited, on_progress=quiet)
    logging.getLogger("worker").warning("ours %d", 1)
    await left[0]
    logging.getLogger("worker").warning("ours %d", 2)

left = []
asyncio.run(main())
"""


def test_what_a_tool_says_through_a_logger_of_ours_is_not_logged() -> None:
    """SPEC Y6, W1: in threads, coroutines, what they leave behind, and at import; what we say around it is."""
    ended = subprocess.run([sys.executable, "-c", BORROWED], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "MARK" not in ended.stderr
    assert [json.loads(line)["message"] for line in ended.stderr.splitlines()] == ["ours 1", "ours 2"]


SILENCED = """
import logging, logging.config
from process_logs import configure_logs
OLD = logging.getLogger("storage.older")
configure_logs("info")
from tools.running import attempted

def reformatted():
    for handler in logging.getLogger().handlers:
        handler.setFormatter(logging.Formatter("MARK %(message)s"))
        handler.setLevel(logging.CRITICAL)

SILENCERS = [
    lambda: logging.basicConfig(force=True, level="CRITICAL"),
    lambda: logging.getLogger().handlers.clear(),
    reformatted,
    lambda: logging.getLogger().setLevel(logging.CRITICAL),
    lambda: logging.disable(logging.CRITICAL),
    lambda: logging.config.dictConfig({"version": 1}),
    logging.shutdown,
    lambda: [setattr(logging.getLogger("worker"), "disabled", True), logging.getLogger("worker").setLevel("CRITICAL")],
    lambda: [setattr(logging.getLogger("worker"), "propagate", False), logging.getLogger("worker").handlers.clear()],
]
for number, silence in enumerate(SILENCERS):
    attempted(silence)
    logging.getLogger("worker").info("ours %d", number)
    OLD.info("older %d", number)
    logging.getLogger(f"storage.new{number}").info("new %d", number)
    logging.getLogger("asyncpg").warning("below %d", number)
    logging.getLogger("worker").debug("MARK-debug")
    logging.getLogger("asyncpg").info("MARK-info")
    logging.getLogger("uvicorn.access").info("MARK-access")
    logging.getLogger("their.tool").error("MARK-their")
    logging.error("MARK-root")
try:
    raise ValueError("MARK-words")
except ValueError:
    logging.getLogger("worker").exception("an error")
"""


def test_a_tool_that_configures_logging_silences_nothing_of_ours() -> None:
    """SPEC Y6: whatever was done to the root, its handlers, to levels and to the loggers of others."""
    ended = subprocess.run([sys.executable, "-c", SILENCED], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "MARK" not in ended.stderr
    said = [json.loads(line)["message"] for line in ended.stderr.splitlines()]
    assert said == [f"{word} {n}" for n in range(9) for word in ("ours", "older", "new", "below")] + ["an error"]


WORKFLOWS_AND_CORE = """
import logging, threading
from concurrent.futures import ThreadPoolExecutor
from process_logs import configure_logs
configure_logs("info")
with ThreadPoolExecutor(1, thread_name_prefix="temporal_workflow_") as pool:
    pool.submit(logging.getLogger("temporalio.workflow").warning, "a workflow's").result()
thread = threading.Thread(target=logging.getLogger("temporalio.core").warning, args=("the core's",))
thread.start()
thread.join()
"""


def test_what_workflows_and_temporals_core_say_in_threads_of_theirs_is_logged() -> None:
    """SPEC Y6: no tool runs there."""
    ended = subprocess.run(
        [sys.executable, "-c", WORKFLOWS_AND_CORE], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert [json.loads(line)["message"] for line in ended.stderr.splitlines()] == ["a workflow's", "the core's"]
