"""What ends `agentloom dev` (SPEC 17)."""

import signal

import pytest

from cli.dev import stop_signals


@pytest.mark.parametrize(
    ("hang_up", "ended_by"),
    [
        (signal.SIG_DFL, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]),
        (signal.SIG_IGN, [signal.SIGINT, signal.SIGTERM]),
    ],
)
def test_a_closed_terminal_ends_the_stack_unless_nohup_goes_before(
    hang_up: signal.Handlers, ended_by: list[signal.Signals]
) -> None:
    """17: `nohup` has the signal ignored; whoever ends it all the same sends another one."""
    before = signal.signal(signal.SIGHUP, hang_up)
    try:
        assert stop_signals() == ended_by
    finally:
        signal.signal(signal.SIGHUP, before)
