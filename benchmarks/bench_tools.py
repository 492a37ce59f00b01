"""The tool of the benchmarks."""


def note(n: int) -> str:
    """Note a number.

    Args:
        n: The number.
    """
    return f"noted {n}"
