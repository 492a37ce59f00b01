"""Following a Run for a person: each event as a short line on standard error, then how it ended.

Lines hold numbers and names; the answer itself goes to standard output and is printed by the command.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from cli.client import Api
from cli.output import ExitCode, note
from context.errors import ModelContextLengthError
from context.model_ends import NEEDS_PUBLISHING

SUCCEEDED = "succeeded"


async def follow(api: Api, run_id: str, *, after: int = 0, quiet: bool = False) -> dict[str, Any]:
    """Wait until the Run has ended, noting its progress; the Run as it ended."""
    names = ToolNames(api, run_id)
    async with aclosing(api.events(run_id, after=after)) as events:
        async for event in events:
            if not quiet and (line := describe(event, await names.of(event))):
                note(line)
    return await api.run(run_id)


class ToolNames:
    """Names of the tools that a batch calls; events hold none. Each look goes on where the last one ended."""

    def __init__(self, api: Api, run_id: str) -> None:
        self._api = api
        self._path = f"/runs/{run_id}/operations"
        self._cursor: str | None = None

    async def of(self, event: Mapping[str, Any]) -> list[str]:
        """The names of the batch that the event is about; none for any other event."""
        if event["type"] != "tools_started":
            return []
        names: list[str] = []
        while True:
            page = await self._api.get(self._path, cursor=self._cursor, limit=50)
            names += [one["name"] for one in page["items"] if _is_call_of(one, event)]
            if page["next"] is None:
                return names
            self._cursor = page["next"]


def _is_call_of(operation: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    return (operation["purpose"], operation["loop"]) == ("tool", event.get("loop"))


def describe(event: Mapping[str, Any], tool_names: list[str]) -> str | None:
    """One line for an event, or None for one that says nothing new to a person."""
    match event["type"]:
        case "run_started":
            again = "" if event.get("execution_no", 1) == 1 else f" again (execution {event['execution_no']})"
            return f"started{again}"
        case "input_accepted" if event.get("kind") == "supplement":
            return f"input {event['input_seq']} waits for the next request"
        case "context_build" if event.get("purpose", "business") == "business":  # blocks are told when they are done
            if event["estimated"] < 0:
                return f"loop {event['loop']}: the request could not be built"
            return f"loop {event['loop']}: request of {gauge(event['estimated'], event['input_limit'])}{_more(event)}"
        case "tools_started":
            return f"loop {event['loop']}: tools {', '.join(tool_names) or event.get('count', '')}"
        case "input_delivered":
            return f"{_inputs(event['input_seqs'])} reached the model"
        case "compaction_started":
            return f"compacting the context: {event['material']} of {event['estimated']} tokens"
        case "compaction_progress":
            return f"block {event['done']} of {event['blocks']} is summarised"
        case "compaction_finished":
            return compacted(event)
        case "run_ended":
            return f"ended: {event.get('end_reason') or event.get('status')}"
        case _:
            return None


def compacted(found: Mapping[str, Any]) -> str:
    """What became of a compaction, from its event or from what the API shows of it."""
    match found["outcome"]:
        case "activated":
            before, after = found["tokens_before"], found["tokens_after"]
            return f"context compacted: {before} → {after} tokens ({after / max(1, before):.0%})"
        case "nothing_to_compact":
            return f"nothing to compact: all of the {found['tokens_before']} tokens stay as they are"
        case "not_smaller":
            return "the summary was no shorter than what it would replace, so it is not used"
        case "sources_changed" | "another_snapshot":
            return "the context changed meanwhile, so the summary is not used"
        case "run_ended":
            return "nothing was compacted"
        case "cancelled":
            return "the compaction was stopped"
        case _:
            return "the compaction was stopped" if found.get("status") == "cancelled" else "the compaction failed"


def _more(event: Mapping[str, Any]) -> str:
    """The supplements that a request is the first to carry."""
    count = event.get("supplements", 0)
    return f" · +{count} supplement{'s' if count > 1 else ''}" if count else ""


def _inputs(numbers: Sequence[int]) -> str:
    name = "input" if len(numbers) == 1 else "inputs"
    return f"{name} {', '.join(str(number) for number in numbers)}"


DELIVERY = {
    "pending": "waits for the next request",
    "claimed": "is in a request that the model has not answered to yet",
    "delivered": "reached the model",
    "carried": "goes to whatever starts next in the session",
    "withdrawn": "was withdrawn",
}
"""What the state of a delivery means to a person (SPEC S6, S12)."""


def became(delivery: Mapping[str, Any], deliveries: Sequence[Mapping[str, Any]]) -> str:
    """What became of one delivery, among all of its Run: a stop carries an input that the resume then takes."""
    if _went_on(delivery, deliveries):
        return "waited, and went on with the run when it was resumed"
    return DELIVERY[delivery["state"]]


def stands(delivery: Mapping[str, Any]) -> str:
    """What the newest delivery of an input means: one that waits for no Run was left over by the last one."""
    is_left_over = delivery["state"] == "pending" and delivery["run_id"] is None
    return DELIVERY["carried" if is_left_over else delivery["state"]]


def _went_on(delivery: Mapping[str, Any], deliveries: Sequence[Mapping[str, Any]]) -> bool:
    return any(one["previous_delivery_id"] == delivery["delivery_id"] for one in deliveries)


async def left_over(api: Api, run_id: str) -> str | None:
    """What an ended Run did not get, in one line; None if it got everything."""
    inputs = await api.pages(f"/runs/{run_id}/inputs", limit=200)
    carried = [one["input_seq"] for one in inputs if one["state"] == "carried" and not _went_on(one, inputs)]
    return f"{_inputs(carried)} came too late for this run and will be in the next one" if carried else None


def gauge(used: int, limit: int, *, width: int = 20) -> str:
    """How full a budget is, as a bar and in numbers."""
    share = used / limit if limit > 0 else 1.0
    return f"{bar(used, limit, width=width)} {used}/{limit} tokens ({share:.0%})"


def bar(used: int, limit: int, *, width: int = 20) -> str:
    """A share as a bar that never leaves its frame."""
    filled = min(width, max(0, round(used / limit * width))) if limit > 0 else width
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def ending(run: Mapping[str, Any]) -> str:
    """How a Run that did not succeed ended, and why."""
    error = run.get("error") or {}
    reason = f": {error['message']} ({error['code']})" if error else f" ({run['end_reason']})"
    return f"run {run['run_id']} {run['status']}{reason}"


def figures(run: Mapping[str, Any]) -> str:
    """The numbers of a Run's error, by name; nothing if it has none."""
    numbers = (run["error"] or {}).get("numbers", {})
    return ", ".join(f"{name} {number}" for name, number in sorted(numbers.items()))


def exit_code(run: Mapping[str, Any]) -> int:
    """0 for a Run that succeeded, 1 for every other end."""
    return ExitCode.DONE if run["status"] == SUCCEEDED else ExitCode.ENDED_OTHERWISE


def next_after(run: Mapping[str, Any]) -> str | None:
    """The command that helps after a Run that did not succeed."""
    if run["end_reason"] in NEEDS_PUBLISHING:
        return "agentloom publish FILE"
    if run["end_reason"] == ModelContextLengthError.end_reason:  # a resume would meet the same window
        return f"agentloom show manifest {run['run_id']}"
    if run["status"] in ("failed", "stopped"):
        return f"agentloom resume {run['run_id']}"
    if run["status"] in ("exhausted", "timed_out"):  # what is used up stays so; the next run has its own
        return f"agentloom ask --session {run['session_id']}"
    return None if run["status"] == SUCCEEDED else f"agentloom show run {run['run_id']}"
