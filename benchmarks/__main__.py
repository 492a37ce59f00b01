"""Every benchmark, one after the other, each in a process and on servers of its own: `python -m benchmarks`."""

import subprocess
import sys

NAMES = (
    "step_time",
    "after_kill",
    "long_run",
    "many_runs",
    "stable_prefix",
    "outgrown_windows",
    "preparing",
    "retention",
)


def main() -> int:
    """Run them all; the exit code of the first that failed, else 0."""
    codes = []
    for name in NAMES:
        print(f"== benchmarks.{name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode)
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
