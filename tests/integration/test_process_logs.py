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
