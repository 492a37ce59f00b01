"""Whether the workers of a task queue poll and live: from their signs of life, and their polls where there are none.

Temporal lists a worker that was stopped, killed or frozen for minutes. Only a frozen one does harm: its open polls are
given tasks that nobody works on (decision 0109).
"""

import asyncio
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.client import Client

from stack import temporal
from stack.findings import START, Broken, Finding, Sound
from stack.temporal import LONGEST_POLL_S, SignOfLife

POLL_GRACE_S = 10
SILENT_AFTER_S = 4.0
"""A worker says every two seconds that it lives (`process_logs.SIGN_OF_LIFE`)."""
LOOK_AGAIN_S = 0.5


@dataclass(frozen=True)
class Crew:
    """Who was said to work on a queue: the living, those not heard of, and those that left or ended."""

    living: Sequence[SignOfLife]
    silent: Sequence[SignOfLife]
    away: Sequence[SignOfLife]


async def check_worker(client: Client, task_queue: str) -> Finding:
    """Some worker polls the queue, and none is silent that Temporal may still give tasks to (SPEC 17)."""
    crew, polls = await _look(client, task_queue)
    if frozen := [sign for sign in crew.silent if not crew.living or may_get_tasks(sign, polls)]:
        return _silent(task_queue, frozen, others=len(crew.living))
    known = bool(crew.living or crew.away)
    heard = {who: at for who, at in polls.items() if not known or who in {one.identity for one in crew.living}}
    ago = [_ago(at) for at in heard.values()]
    count = len(crew.living) or sum(seconds <= LONGEST_POLL_S + POLL_GRACE_S for seconds in ago)
    shows_after_s = 2 * SILENT_AFTER_S if known else LONGEST_POLL_S
    return judge_polling(task_queue, min(ago, default=None), count=count, shows_after_s=shows_after_s)


async def _look(client: Client, task_queue: str) -> tuple[Crew, Mapping[str, datetime]]:
    """Look until all are heard of and poll, or so long that who lives would: clocks differ, workers restart.

    A server that restarts forgets who polled; a worker that has frozen since does not poll again.
    """
    first: dict[str, SignOfLife] = {}
    clock = asyncio.get_running_loop().time
    until = clock() + SILENT_AFTER_S
    while True:
        signs = await temporal.signs_of_life(client, task_queue)
        first = {sign.worker: sign for sign in signs} | first
        crew = crew_of(signs, [sign for sign in signs if _is_recent(sign) or sign != first[sign.worker]])
        polls = await temporal.polls(client, task_queue)
        if clock() > until or (not crew.silent and _polls_or_none_lives(crew, polls)):
            return crew, polls
        await asyncio.sleep(LOOK_AGAIN_S)


def _polls_or_none_lives(crew: Crew, polls: Mapping[str, datetime]) -> bool:
    return not crew.living or any(one.identity in polls for one in crew.living)


def crew_of(signs: Sequence[SignOfLife], heard: Collection[SignOfLife]) -> Crew:
    """Who is who, when these were heard of. Who said goodbye, or whose process is known to be gone, is not missed."""
    living = [sign for sign in signs if sign in heard and not sign.is_leaving]
    away = [sign for sign in signs if sign not in living and (sign.is_leaving or _is_gone(sign, living))]
    return Crew(living, [sign for sign in signs if sign not in living and sign not in away], away)


def _is_gone(sign: SignOfLife, living: Sequence[SignOfLife]) -> bool:
    """Whether the process has ended, as far as can be known: another took its place, or it was on this machine."""
    if any((one.host, one.pid) == (sign.host, sign.pid) for one in living):
        return True
    return sign.host == socket.gethostname() and sign.pid.isdecimal() and not _exists(int(sign.pid))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def may_get_tasks(sign: SignOfLife, polls: Mapping[str, datetime]) -> bool:
    """Whether a silent worker may have a poll open: it has none once the server must have ended the last it made.

    Several containers can have one identity; so the age of its own sign counts too.
    """
    longest = LONGEST_POLL_S + POLL_GRACE_S
    polled = polls.get(sign.identity)
    return polled is not None and _ago(polled) <= longest and _ago(sign.at) <= longest + LONGEST_POLL_S


def _silent(task_queue: str, silent: Sequence[SignOfLife], *, others: int) -> Broken:
    """Names those that were not heard of."""
    named = ", ".join(f"process {one.pid} on {one.host} gave its last {_ago(one.at):.0f} s ago" for one in silent)
    why = f"no sign of life from workers of the task queue {task_queue}: {named}; frozen (SIGSTOP), or gone"
    why += f"; the other {others} live" if others > 1 else "; the other one lives" if others else ""
    pids = " ".join(one.pid for one in silent)
    return Broken("worker", why, f"kill -CONT {pids}, or kill -KILL {pids} and: python -m worker  (or: {START})")


def _is_recent(sign: SignOfLife) -> bool:
    return 0 <= _ago(sign.at) <= SILENT_AFTER_S


def _ago(moment: datetime) -> float:
    return (datetime.now(UTC) - moment).total_seconds()


def judge_polling(task_queue: str, seconds: float | None, *, count: int, shows_after_s: float) -> Finding:
    """What it means that the newest poll of the queue is so long ago; a frozen worker is still listed by Temporal."""
    if seconds is None:
        return Broken("worker", f"none polls the task queue {task_queue}", f"python -m worker  (or: {START})")
    if seconds > LONGEST_POLL_S + POLL_GRACE_S:
        why = f"none has polled the task queue {task_queue} for {seconds:.0f} s: it is gone, or frozen (SIGSTOP)"
        return Broken("worker", why, f"kill -CONT PID, or kill -KILL PID and: python -m worker  (or: {START})")
    told = f"{count} worker{'s poll' if count > 1 else ' polls'} the task queue {task_queue}"
    told += f", the last {max(0, seconds):.0f} s ago"
    return Sound("worker", f"{told}; one that has just frozen shows after {shows_after_s:.0f} s")
