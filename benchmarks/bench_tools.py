"""The tools of the benchmarks."""

import time


def note(n: int) -> str:
    """Note a number.

    Args:
        n: The number.
    """
    return f"noted {n}"


def linger(seconds: float) -> str:
    """Take a while.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "lingered"
