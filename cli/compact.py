"""`agentloom compact SESSION`: makes a session's context shorter, with an active Run or without, and says the gain.

With `--stop` it stops the compaction of an idle session; that of an active Run stops with the Run.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from cli.ids import id_of
from cli.output import CommandError, ExitCode, note, print_error, print_json, print_lines

if TYPE_CHECKING:
    from cli.client import Api

POLL_S = 30
STOPPED_WITHIN_S = 10

UNDER_WAY = ("queued", "running")

Found = Mapping[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compact)


def compact(
    session: Annotated[str, typer.Argument(help="Id of the session.", callback=id_of("session"))],
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return as soon as it is accepted.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the compaction that is under way instead.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> int:
    """Summarise the older part of a session's context.

    With an active Run its next request is compacted first; an idle session is compacted at once, and its next question
    begins with the summary. Exit code 0 also if there was nothing to compact.
    """
    from cli.client import call_api

    if stop:
        return _say_stopped(call_api(lambda api: _stopped(api, session)), as_json=json)

    async def work(api: "Api") -> int:
        head = await _event_head(api, session)
        body = {"client_key": str(uuid4())}
        asked: dict[str, Any] = await api.post_again(f"/sessions/{session}/compact", body)
        if no_wait:
            return _say_asked(asked, as_json=json)
        try:
            found = await _outcome(api, asked, after=head, quiet=json)
        except asyncio.CancelledError:  # Ctrl-C
            note(_goes_on(asked))
            raise
        return _say(found, as_json=json)

    return call_api(work)


async def _stopped(api: "Api", session: str) -> Found:
    """The compaction of the idle session after its stop, as it ended. Raises CommandError if there is none."""
    found = await api.get(f"/sessions/{session}")
    episode_id, active = found["active_compaction_id"], found["active_run_id"]
    if episode_id is None:
        raise CommandError(
            f"Session {session} has no compaction to stop.",
            why="That of an active run is stopped with the run." if active else "",
            mend=f"agentloom stop {active}" if active else f"agentloom sessions show {session}",
            exit_code=ExitCode.REFUSED,
        )
    await api.post(f"/compactions/{episode_id}/stop")
    stopped: Found = await api.get(f"/compactions/{episode_id}", wait_s=STOPPED_WITHIN_S)
    return stopped


def _say_stopped(found: Found, *, as_json: bool) -> int:
    from cli.following import compacted

    if as_json:
        print_json(found)
    elif found["status"] in UNDER_WAY:
        print_lines([f"compaction {found['episode_id']} is being stopped"])
    else:
        print_lines([compacted(found)])  # it may have ended by itself before the stop came
    return ExitCode.DONE


def _goes_on(asked: Found) -> str:
    """What somebody is told who no longer waits."""
    stop = f"agentloom compact {asked['session_id']} --stop" if asked["episode_id"] else ""
    also = f"   (or: {stop})" if stop else ""
    return f"the compaction goes on: agentloom show compactions {asked['run_id']}{also}"


async def _event_head(api: "Api", session: str) -> int:
    """The newest event of the session's active Run, from which on its compaction is looked for."""
    active = (await api.get(f"/sessions/{session}"))["active_run_id"]
    return int((await api.run(active))["event_head"]) if active else 0


async def _outcome(api: "Api", asked: Found, *, after: int, quiet: bool) -> Found:
    if asked["episode_id"]:
        return await _ended(api, asked["episode_id"], quiet=quiet)
    return await _of_run(api, asked, after=after, quiet=quiet)


async def _ended(api: "Api", episode_id: str, *, quiet: bool) -> Found:
    """An idle session's compaction once it has ended, each finished block noted."""
    finished = 0
    while True:
        found: Found = await api.get(f"/compactions/{episode_id}", wait_s=POLL_S, finished=finished)
        if found["cursor"] > finished and not quiet:
            note(f"block {found['cursor']} of {found['blocks']} is summarised")
        finished = found["cursor"]
        if found["status"] not in UNDER_WAY:
            return found


async def _of_run(api: "Api", asked: Found, *, after: int, quiet: bool) -> Found:
    """What became of it in the active Run: a compaction, nothing to compact, or an end without a further request."""
    from cli.following import describe

    if not quiet:
        note(f"run {asked['run_id']} compacts before its next request")
    mine = None
    async with aclosing(api.events(asked["run_id"], after=after)) as events:
        async for event in events:
            kind = event["type"]
            if not quiet and kind.startswith("compaction_") and (line := describe(event, [])):
                note(line)
            if kind == "compaction_started" and event["source"] == "manual":
                mine = event["episode_id"]
            elif kind == "compaction_finished" and event["episode_id"] == mine:
                found: Found = await api.get(f"/compactions/{mine}")
                return found
            elif kind == "context_build" and "no_compressible_material" in event.get("notes", ()):
                return {
                    **asked,
                    "status": "succeeded",
                    "outcome": "nothing_to_compact",
                    "tokens_before": event["estimated"],
                }
    return {**asked, "status": "cancelled", "outcome": "run_ended", "failure": {"reason": "run_ended"}}


def _say_asked(asked: Found, *, as_json: bool) -> int:
    if as_json:
        print_json(asked)
    elif asked["episode_id"]:
        print_lines([f"compaction {asked['episode_id']} of session {asked['session_id']}"])
    else:
        print_lines([f"run {asked['run_id']} compacts before its next request"])
    return ExitCode.DONE


def _say(found: Found, *, as_json: bool) -> int:
    from cli.following import compacted

    done = found["status"] == "succeeded"
    if as_json:
        print_json(found)
    elif done:
        print_lines([compacted(found)])
    else:
        print_error(compacted(found), why=_why(found), mend=f"agentloom show compactions {found['run_id']}")
    return ExitCode.DONE if done else ExitCode.ENDED_OTHERWISE


def _why(found: Found) -> str:
    failure = found["failure"] or {}
    reason = str(failure.get("reason", "unknown"))
    return f"{failure['code']}: {WHY.get(reason, reason)}" if "code" in failure else WHY.get(reason, reason)


WHY = {
    "run_ended": "The run ended before it made another request.",
    "empty": "The model's summary was empty.",
    "cancelled": "It was stopped.",
    "lost": "Its workflow was ended outside AgentLoom.",
    "not_started": "Another workflow in Temporal has the id of its workflow.",
    "deadline": "It took longer than the agent's deadline_s.",
    "cannot_fit": "What can't be summarised is over the input limit by itself.",
    "too_many_calls": "It would take more calls than max_compaction_calls of the agent allows.",
    "no_room": "The summarising model's window has no room for a block.",
    "model_auth": "The provider refused the key; check the stored connection.",
    "model_quota": "The provider account has no balance or quota left.",
    "model_rejected": "The provider refused the request; check model and parameters.",
    "model_unavailable": "The model could not be reached or kept failing.",
    "model_host_unknown": "The host name in base_url does not resolve.",
    "model_certificate_untrusted": "The certificate of the model's server is not trusted here.",
    "model_no_api": "What stands at base_url is no model API.",
    "model_rate_limited": "The provider's rate limit holds longer than model.retry waits.",
}
"""Reasons of a compaction that came to no summary, for a person."""
