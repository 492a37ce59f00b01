"""What ends `agentloom dev` (SPEC 17)."""

import signal

from cli.dev import stop_signals


def test_a_closed_terminal_ends_the_stack_unless_nohup_goes_before() -> None:
    """17: `nohup` has the signal ignored; whoever ends it all the same sends another one."""
    assert stop_signals() == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stop_signals() == [signal.SIGINT, signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before)
