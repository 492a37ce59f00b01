"""Threads that are kept for the next call of a tool."""

import threading

import pytest

from tools.threads import MOST_IDLE, KeptThreads


class Work:
    """A piece of work that says where it runs, and returns when it is let go."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> None:
        self.thread = threading.current_thread()
        self.begun.set()
        self.may_end.wait(20)

    def end(self, threads: KeptThreads) -> None:
        """Let it go and wait until its thread is idle, or gone."""
        assert self.begun.wait(20)
        before = threads.idle
        self.may_end.set()
        assert self.thread is not None
        while self.thread.is_alive() and threads.idle == before:
            self.thread.join(0.01)


def started(threads: KeptThreads) -> Work:
    work = Work()
    threads.run(work)
    return work


def test_a_thread_whose_work_has_ended_does_the_next() -> None:
    """SPEC T1."""
    threads = KeptThreads()
    first = started(threads)
    first.end(threads)
    second = started(threads)
    second.end(threads)
    assert second.thread is first.thread


def test_work_that_never_returns_holds_up_nobody() -> None:
    """SPEC S8."""
    threads = KeptThreads()
    hanging, other = started(threads), started(threads)
    other.end(threads)
    assert hanging.thread is not other.thread
    assert hanging.thread is not None
    assert hanging.thread.daemon
    hanging.end(threads)


def test_only_so_many_idle_threads_are_kept() -> None:
    """SPEC T1: many tools at once leave no crowd behind."""
    threads = KeptThreads()
    works = [started(threads) for _ in range(MOST_IDLE + 2)]
    for work in works:
        work.end(threads)
    assert sum(work.thread is not None and work.thread.is_alive() for work in works) == MOST_IDLE


def test_no_room_for_a_thread_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC T9."""

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    with pytest.raises(RuntimeError):
        started(KeptThreads())
