"""`agentloom show …`: what a Run is and did. What its requests contained is in `cli.show_requests`."""

from typing import Annotated, Any

import typer

from cli.ids import id_of
from cli.output import one_line, print_json, print_lines, print_table
from cli.show_requests import diff, explain, manifest, request, view

RunId = Annotated[str, typer.Argument(help="Id of a Run.", callback=id_of("run"))]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]

OUTCOMES = {
    "activated": "in use",
    "not_smaller": "kept, not used: it would not have been smaller",
    "sources_changed": "kept, not used: what it covers has changed meanwhile",
    "another_snapshot": "kept, not used: another summary came first",
    "nothing_to_compact": "nothing to compact",
}
"""What became of a finished summary (SPEC K8, K9)."""


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(
        help="Show a Run, its requests and its Operations.", no_args_is_help=True, rich_markup_mode=None
    )
    for command in (run, inputs, operations, manifest, request, view, compactions, explain, diff):
        group.command()(command)
    app.add_typer(group, name="show")


def run(run: RunId, json: AsJson = False) -> int:
    """Show how a Run stands, with its answer."""
    from cli.client import call_api

    found = call_api(lambda api: api.run(run))
    if json:
        print_json(found)
        return 0
    print_table(("", ""), _facts(found))
    if found["answer"]:
        print_lines(["", found["answer"]])
    return 0


def inputs(run: RunId, json: AsJson = False) -> int:
    """List what the user sent to a Run, and what became of each."""
    from cli.client import call_api
    from cli.following import became

    found = call_api(lambda api: api.pages(f"/runs/{run}/inputs", limit=200))
    if json:
        print_json(found)
        return 0
    names = ("input_seq", "input_id", "kind")
    rows = ((*(one[name] for name in names), became(one, found), one_line(one["text"])) for one in found)
    print_table(("no", "input", "kind", "", "text"), rows)
    return 0


def operations(run: RunId, json: AsJson = False) -> int:
    """List a Run's model and tool calls in order."""
    from cli.client import call_api

    found = call_api(lambda api: api.pages(f"/runs/{run}/operations", limit=200))
    if json:
        print_json(found)
        return 0
    columns = ("operation", "loop", "purpose", "name", "state", "attempts", "failures")
    names = ("operation_id", "loop", "purpose", "name", "state")
    print_table(columns, ((*(one[name] for name in names), tries(one), failures(one)) for one in found))
    return 0


NOT_MADE = ("interrupted", "not_started")


NEVER_SENT = "never sent"


def tries(operation: dict[str, Any]) -> int:
    """How often the call was made; one that was only closed, since nobody knows how it went, was not made again."""
    made = (one for one in operation["attempts"] if (one["error"] or {}).get("reason") not in NOT_MADE)
    return sum(_unreported(operation, one) != NEVER_SENT for one in made)


def failures(operation: dict[str, Any]) -> str:
    """What became of tries without a result, in their order: `busy 429, lost, timeout`."""
    return ", ".join(filter(None, (_failure(operation, one) for one in operation["attempts"])))


def _failure(operation: dict[str, Any], attempt: dict[str, Any]) -> str | None:
    error = attempt["error"]
    if error is None:
        return _unreported(operation, attempt)
    return f"{error['reason']} {error['status']}" if error.get("status") else str(error["reason"])


def _unreported(operation: dict[str, Any], attempt: dict[str, Any]) -> str | None:
    """What is known of a try that never reported: its worker died, or its Run ended; or a request never left.

    What a try that was `interrupted` stands for is said by the one that closes it.
    """
    if attempt["state"] != "superseded":
        return None
    if operation["purpose"] != "tool" and attempt["usage"] is None:
        return NEVER_SENT
    following = [one for one in operation["attempts"] if one["attempt_no"] > attempt["attempt_no"]]
    if following:
        return None if (following[0]["error"] or {}).get("reason") == "interrupted" else "lost"
    return "cut off" if operation["state"] in ("cancelled", "unknown") else "lost"


def compactions(run: RunId, json: AsJson = False) -> int:
    """Show what was summarised, what it gained and cost."""
    from cli.client import call_api

    found = call_api(lambda api: api.pages(f"/runs/{run}/compactions"))
    if json:
        print_json(found)
        return 0
    if not found:
        print_lines(["no compaction: the context never came to its trigger"])
    for number, one in enumerate(found, 1):
        print_lines(_compaction_lines(number, one))
    return 0


def _facts(run: dict[str, Any]) -> list[tuple[str, object]]:
    from cli.following import figures

    usage = run["usage"]
    error = run["error"] or {}
    return [
        ("run", run["run_id"]),
        ("session", run["session_id"]),
        ("status", f"{run['status']} ({run['end_reason']})" if run["end_reason"] else run["status"]),
        ("phase", run["phase"]),
        ("loops", run["loops"]),
        ("tokens", f"{usage['input_tokens']} in, {usage['output_tokens']} out, {usage['cached_tokens']} cached"),
        ("cost", usage["cost"] if usage["cost"] is not None else "unknown"),
        ("workflow", run["workflow_id"]),
        *([("error", f"{error['message']} ({error['code']})")] if error else []),
        *([("numbers", numbers)] if (numbers := figures(run)) else []),
    ]


def _compaction_lines(number: int, one: dict[str, Any]) -> list[str]:
    """An episode as a few lines: what became of it, then what there is to say of its summary."""
    blocks = "no plan yet" if one["blocks"] is None else f"block {one['cursor']} of {one['blocks']}"
    cost = "cost unknown" if one["cost"] is None else f"cost {one['cost']}"
    lines = [
        f"── {number} {one['source']} ({', '.join(one['causes'])}) · {_became(one)} · episode {one['episode_id']}",
        f"  {blocks} · {one['calls']} call{'' if one['calls'] == 1 else 's'}, {one['input_tokens'] or 0} tokens in, "
        f"{one['output_tokens'] or 0} out, {cost}",
    ]
    if one["tokens_after"] is not None:
        lines += _gain_lines(one)
    if one["snapshot_id"]:
        lines.append(f"  covers {_covered(one)} · snapshot {one['snapshot_id']}")
    if one["previous_snapshot_id"]:
        lines.append(f"  with all that the summary before it covered: snapshot {one['previous_snapshot_id']}")
    return lines


def _became(one: dict[str, Any]) -> str:
    if one["failure"]:
        return f"{one['status']}: {one['failure']['reason']} ({one['failure']['code']})"
    return OUTCOMES.get(one["outcome"], str(one["status"]))


def _gain_lines(one: dict[str, Any]) -> list[str]:
    """Before and after as bars of one scale."""
    from cli.following import bar

    scale = max(one["tokens_before"], one["tokens_after"])
    marks = ["under the target" if one["reaches_target"] else "over the target"]
    marks += ["cut at its output limit"] if one["truncated"] else []
    return [
        f"  before {bar(one['tokens_before'], scale)} {one['tokens_before']} tokens",
        f"  after  {bar(one['tokens_after'], scale)} {one['tokens_after']} tokens "
        f"({float(one['ratio']):.0%}) · summary of {one['summary_tokens']}, at most {one['target']} · "
        + ", ".join(marks),
    ]


def _covered(one: dict[str, Any]) -> str:
    spans = [_span(part) for part in one["ranges"]]
    told = ", ".join(spans[:4]) + (f" and {len(spans) - 4} more ranges" if len(spans) > 4 else "")
    inputs = len(one["replaced_inputs"])
    earlier = f", {inputs} earlier input{'' if inputs == 1 else 's'} among them" if inputs else ""
    return f"{one['pieces']} pieces: records {told}{earlier}"


def _span(part: dict[str, Any]) -> str:
    first, last = part["from_seq"], part["through_seq"]
    return str(first) if first == last else f"{first}–{last}"
