"""No order is told and nothing is decided by times: the clock that they are from may go back (SPEC S13)."""

import re
from pathlib import Path

import pytest

STORAGE = Path(__file__).parents[2] / "storage"
TIME = r"(?:\w+\.)?(?<![:\w])\w+_at\b"
BY_TIME = re.compile(
    rf"ORDER BY[^)\"]*?{TIME}"  # a list
    rf"|{TIME}\s*[<>]=?\s*{TIME}"  # one fact before another
    rf"|\([^()]*{TIME}[^()]*\)\s*[<>]"  # a place in a list
    rf"|\b(?:max|min|greatest|least)\({TIME}"
)
BOUNDED = {
    "outbox.py": "ORDER BY due_at",  # a lease: one that is too long counts for nothing
    "reconciling.py": "greatest(e.created_at",  # a silence, likewise
    "commits/fail_attempt.py": "min(a.started_at",  # how long a call has been tried, beside the number of tries
}
"""What a clock may tell: how long something has lasted, where being wrong has an end."""


def by_time() -> dict[str, list[str]]:
    files = [path for path in STORAGE.rglob("*.py") if "migrations" not in path.parts]
    found = {path.relative_to(STORAGE).as_posix(): BY_TIME.findall(path.read_text()) for path in files}
    return {name: hits for name, hits in found.items() if hits}


def test_no_query_goes_by_times() -> None:
    """SPEC S13: order comes from sequences (decision 0104)."""
    assert by_time() == {name: [hit] for name, hit in BOUNDED.items()}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM runs r ORDER BY r.run_no, r.created_at",
        "WHERE m.created_at <= o.created_at",
        "AND (o.created_at, o.ordinal) > (:at, :ordinal)",
        "SELECT max(created_at) FROM runs",
    ],
)
def test_what_goes_by_times_is_found(sql: str) -> None:
    """S13."""
    assert BY_TIME.search(sql)
