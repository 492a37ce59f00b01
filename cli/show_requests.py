"""`agentloom show manifest, view, request, explain, diff`: what a model was sent, why, and how full its window was.

Each takes the id of a model call, or of a Run for its last request.
"""

from hashlib import sha256
from json import loads
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.ids import HIGHEST, id_of
from cli.json_text import member_text
from cli.output import CommandError, ExitCode, note, print_bytes, print_json, print_lines, print_rich, print_table

if TYPE_CHECKING:
    from cli.client import Api

Json = dict[str, Any]

RunOrOperation = Annotated[
    str,
    typer.Argument(
        metavar="RUN_OR_CALL",
        help="Id of a model call, or of a Run for its last request.",
        callback=id_of("run or model call"),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
Whole = Annotated[bool, typer.Option("--whole", help="Print long messages whole.")]

SHOWN_LINES = 12
SHOWN_CHARS = 1_000

RULES = {
    "private_to_executor": "it is private to an executor; only what was handed back is shown",
    "other_session": "it belongs to another session",
    "later_run": "it belongs to a later run",
    "older_run_outline": "its run is older than the recent ones; of those only inputs, answer and end are shown",
    "shown_elsewhere": "its text stands where it was delivered, and only there",
    "incomplete_answer": "it is an incomplete answer, which is never shown as one",
    "withdrawn": "it was withdrawn",
    "later_block": "a later call of this compaction summarises it",
    "not_summarised": "it stays as it is; this compaction does not summarise it",
    "not_in_history": "the history of this request does not hold it",
}
"""What each rule of the projection means to a person (SPEC A10, P1)."""

WAITING = ("prepared", "frozen")

CHANGES = {"same": " ", "added": "+", "removed": "-", "changed": "~", "moved": ">", "summarised": "C"}


def manifest(identity: RunOrOperation, json: AsJson = False) -> int:
    """Show what a request contained, and its budget."""
    from cli.client import call_api

    found = call_api(lambda api: _manifest_of(api, identity))
    if json:
        print_json(found)
        return 0
    _print_budget(found)
    columns = ("no", "kind", "placement", "run", "tokens", "source", "content", "transform")
    print_table(columns, (_item_row(number, item) for number, item in enumerate(found["items"], 1)))
    print_lines(f"transform: {transform}" for transform in found["transforms"])
    print_lines(f"note: {remark}" for remark in found["notes"])
    return 0


def view(identity: RunOrOperation, whole: Whole = False, json: AsJson = False) -> int:
    """Show a request as the model saw it.

    First where the window goes, then each message with its size and where it comes from.
    """
    from cli.client import call_api

    async def work(api: "Api") -> tuple[Json, list[Json]]:
        operation = await _model_call(api, identity)
        rebuilt = await api.get(f"/operations/{operation['operation_id']}/request")
        return await _manifest(api, operation), rebuilt["request"]["messages"]

    found, messages = call_api(work)
    if json:
        print_json(found | {"messages": messages})
        return 0
    _print_budget(found)
    print_lines([""])
    items = found["items"] if len(found["items"]) == len(messages) else [None] * len(messages)
    for number, (message, item) in enumerate(zip(messages, items, strict=True), 1):
        print_lines(_message_lines(number, message, item, whole=whole))
    return 0


def request(identity: RunOrOperation, json: AsJson = False) -> int:
    """Print a request byte for byte as it was sent.

    A line end follows; its SHA-256 goes to standard error, and with it whether the request was never sent.

    It is JSON in any case, so --json changes nothing.
    """
    from cli.client import call_api

    body, digest, operation = call_api(lambda api: _request_bytes(api, identity))
    print_bytes(body)
    note(" · ".join([f"sha256 {digest}", *_unsent(operation)]))
    return 0


def explain(
    identity: RunOrOperation,
    record: Annotated[str, typer.Option(help="Id of a record, or its number in `agentloom sessions messages`.")] = "",
    given: Annotated[
        str, typer.Option("--input", help="Id of an input, or its number in `agentloom show inputs`.")
    ] = "",
    json: AsJson = False,
) -> int:
    """Say why a record or an input was or was not in a request."""
    from cli.client import call_api

    if bool(record) == bool(given):
        raise CommandError(
            "Name a record or an input, and only one.", mend=f"agentloom show explain {identity} --input 1"
        )

    async def work(api: "Api") -> Json:
        operation = await _model_call(api, identity)
        subject = await _subject(api, operation["run_id"], record=record, given=given)
        found: Json = await api.get(f"/operations/{operation['operation_id']}/explain", **subject)
        return found

    found = call_api(work)
    if json:
        print_json(found)
        return 0
    print_lines([f"{found['piece']} {_explained(found)}"])
    return 0


def diff(
    identity: RunOrOperation,
    against: Annotated[
        str | None,
        typer.Argument(
            metavar="OTHER",
            help="The request it is compared with; without one, the request before it in its Run.",
            callback=id_of("run or model call"),
        ),
    ] = None,
    json: AsJson = False,
) -> int:
    """Compare two requests item by item.

    Each item stayed, came, went, changed, or went into a summary.
    """
    from cli.client import call_api

    async def work(api: "Api") -> tuple[Json, Json, Json]:
        newer = await _model_call(api, identity)
        older = await (_model_call(api, against) if against else _call_before(api, newer))
        compared = await api.get(f"/operations/{newer['operation_id']}/diff", **{"with": older["operation_id"]})
        return compared, await _manifest(api, older), await _manifest(api, newer)

    compared, left, right = call_api(work)
    if json:
        print_json(compared)
        return 0
    print_lines([f"request {compared['operation_id']} against {compared['compared_with']}"])
    prefix = compared["common_prefix"]
    print_lines(
        [f"the first {prefix} messages are the same, of {len(left['items'])} before and {len(right['items'])} now"]
    )
    lines = [line for line in compared["items"] if line["change"] != "same"]
    columns = ("", "change", "before", "now", "kind", "tokens", "piece")
    print_table(columns, (_change_row(line, left["items"], right["items"]) for line in lines))
    return 0


# --- which request ---------------------------------------------------------------------------------------------------


async def _model_call(api: "Api", identity: str) -> Json:
    """The model call of that id, or the last request of the Run of that id."""
    from cli.client import ApiRefusedError

    try:
        operation: Json = await api.get(f"/operations/{identity}")
    except ApiRefusedError as refused:
        if refused.status != 404:
            raise
        return await _last_call(api, identity)
    if operation["purpose"] == "tool":
        raise CommandError(
            f"Operation {identity} is a call of the tool {operation['name']}.",
            why="Only model calls have a request.",
            mend=f"agentloom show operations {operation['run_id']}",
            exit_code=ExitCode.REFUSED,
        )
    return operation


async def _last_call(api: "Api", run_id: str) -> Json:
    """The last business request of a Run that was frozen, else its last model call of another purpose."""
    calls = [one for one in await _calls(api, run_id) if one["state"] != "prepared"]
    business = [one for one in calls if one["purpose"] == "business"]
    if not calls:
        raise CommandError(
            f"Run {run_id} has sent no request yet.", mend=f"agentloom watch {run_id}", exit_code=ExitCode.REFUSED
        )
    return (business or calls)[-1]


async def _call_before(api: "Api", operation: Json) -> Json:
    """The request before this one in its Run, of the same purpose."""
    calls = [one for one in await _calls(api, operation["run_id"]) if one["purpose"] == operation["purpose"]]
    ids = [one["operation_id"] for one in calls]
    at = ids.index(operation["operation_id"])
    if at == 0:
        raise CommandError(
            "There is no request before this one in its run.",
            mend=f"agentloom show diff {operation['operation_id']} OTHER",
            exit_code=ExitCode.REFUSED,
        )
    return calls[at - 1]


async def _calls(api: "Api", run_id: str) -> list[Json]:
    return [one for one in await api.pages(f"/runs/{run_id}/operations", limit=200) if one["purpose"] != "tool"]


async def _manifest_of(api: "Api", identity: str) -> Json:
    return await _manifest(api, await _model_call(api, identity))


async def _manifest(api: "Api", operation: Json) -> Json:
    """The manifest of a model call, with its loop and state."""
    found = await api.get(f"/runs/{operation['run_id']}/manifests", operation=operation["operation_id"])
    if not found["items"]:
        raise CommandError(
            f"Model call {operation['operation_id']} has no manifest yet.",
            why="Its request is not prepared.",
            mend=f"agentloom watch {operation['run_id']}",
            exit_code=ExitCode.REFUSED,
        )
    return {**found["items"][0], **{name: operation[name] for name in ("run_id", "loop", "state", "attempts")}}


async def _request_bytes(api: "Api", identity: str) -> tuple[bytes, str, Json]:
    """The request as it was sent, its SHA-256 in hex, and the model call.

    The bytes are cut out of the API's answer: written anew, the same JSON could have other bytes. Raises CommandError
    if they do not have the hash, which would make them worthless as a proof.
    """
    operation = await _model_call(api, identity)
    answer = await api.get_text(f"/operations/{operation['operation_id']}/request")
    body, digest = member_text(answer, "request").encode(), str(loads(answer)["sha256"])
    if sha256(body).hexdigest() != digest:
        raise CommandError(
            "The request does not have its hash.",
            why=f"The bytes that came from the API are not those with SHA-256 {digest}.",
            mend=f"agentloom show view {identity}",
            exit_code=ExitCode.ENDED_OTHERWISE,
        )
    return body, digest, operation


async def _subject(api: "Api", run_id: str, *, record: str, given: str) -> dict[str, str]:
    """The record or input that is asked about; a number is looked up in the session of the Run."""
    if not (record or given).isdecimal():
        return {"record": str(id_of("record")(record))} if record else {"input": str(id_of("input")(given))}
    session, number = (await api.run(run_id))["session_id"], int(record or given)
    if record:
        after = min(max(number - 1, 0), HIGHEST)
        page = await api.get(f"/sessions/{session}/messages", after=after, limit=1)
        ids = [one["record_id"] for one in page["items"] if one["seq"] == number]
    else:
        inputs = await api.pages(f"/sessions/{session}/inputs", limit=200)
        ids = [one["input_id"] for one in inputs if one["input_seq"] == number]
    if not ids:
        raise CommandError(
            f"Session {session} has no {'record' if record else 'input'} {record or given}.",
            mend=f"agentloom sessions messages {session}" if record else f"agentloom show inputs {run_id}",
            exit_code=ExitCode.REFUSED,
        )
    return {"record" if record else "input": ids[0]}


# --- how it is said --------------------------------------------------------------------------------------------------


def _print_budget(found: Json) -> None:
    """Whose request it is, its budget in numbers, as a bar, and part by part."""
    from cli.budget_bar import bar_line, headline, legend_rows, parts_of

    parts = parts_of(found)
    print_lines(
        [
            " · ".join(
                [
                    f"request {found['operation_id']}",
                    f"loop {found['loop']}",
                    *(found[name] for name in ("purpose", "model", "state")),
                    f"validation {found['validation']}",
                    *_unsent(found),
                ]
            ),
            headline(found),
        ]
    )
    print_rich(bar_line(parts))
    print_table(("", "part", "tokens", "of the window"), legend_rows(parts, found["budget"]["context_window"]))


def _unsent(call: Json) -> list[str]:
    """That no try was made with a request: its size forbade it, its Run ended before, or is about to send it."""
    if call["attempts"]:
        return []
    return ["not sent yet" if call["state"] in WAITING else "never sent"]


def _message_lines(number: int, message: Json, item: Json | None, *, whole: bool) -> list[str]:
    from cli.sessions import message_lines, message_title

    facts = [message_title(message)] if item is None else [message_title(message), *_facts(item)]
    lines = message_lines(message)
    return [f"── {number} {' · '.join(facts)}", *(lines if whole else _beginning(lines))]


def _facts(item: Json) -> list[str]:
    """What the manifest knows of a message."""
    kind = "protected input" if item["placement"] == "protected" else item["kind"].replace("_", " ")
    run = [] if item["run_no"] is None else [f"of run {item['run_no']}"]
    return [kind, f"{item['tokens']} tokens", *run, *([item["transform"]] if item["transform"] else [])]


def _beginning(lines: list[str]) -> list[str]:
    """The first lines and characters, and how much is left."""
    total, room, shown = sum(map(len, lines)), SHOWN_CHARS, []
    for line in lines[:SHOWN_LINES]:
        if room <= 0:
            break
        shown.append(line[:room])
        room -= len(line)
    left = total - sum(map(len, shown))
    return shown if left <= 0 else [*shown, f"… {left} more characters (--whole)"]


def _item_row(number: int, item: Json) -> tuple[object, ...]:
    run_no = "" if item["run_no"] is None else item["run_no"]
    place = (number, item["kind"], item["placement"], run_no, item["tokens"])
    return *place, item["source_id"] or "", item["content_hash"][:12], item["transform"] or ""


def _explained(found: Json) -> str:
    """The explanation as the rest of a sentence."""
    match found["explanation"]:
        case "included":
            form = f", in another form: {found['transform']}" if found["transform"] else ", as it is"
            return f"was in the request, as message {found['position'] + 1}{form}"
        case "replaced_by_summary":
            place = f"message {found['position'] + 1}"
            return f"was replaced by a summary, {place} of the request: snapshot {found['snapshot_id']}"
        case "left_out_by_rule":
            return f"was left out by rule {found['rule']}: {RULES.get(found['rule'], found['rule'])}"
        case "left_out_for_budget":
            return "was left out because there was no room for it"
        case "not_yet_arrived":
            return f"had not arrived yet: the request ends with number {found['limit']}"
        case _:
            return f"was withheld by the hook {found['hook']}"


def _change_row(line: Json, left: list[Json], right: list[Json]) -> tuple[object, ...]:
    before, now = line["left"], line["right"]
    item = right[now] if now is not None else left[before]
    numbers = ("" if at is None else at + 1 for at in (before, now))
    return CHANGES[line["change"]], line["change"], *numbers, item["kind"], item["tokens"], line["piece"]
