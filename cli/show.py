"""`agentloom show …`: what a Run did, what each request contained, and the request itself."""

from hashlib import sha256
from json import loads
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.json_text import member_text
from cli.output import CommandError, ExitCode, note, print_bytes, print_json, print_lines, print_table

if TYPE_CHECKING:
    from cli.client import Api

EXPLAINED = ("position", "transform", "snapshot_id", "rule", "limit", "hook")
RunId = Annotated[str, typer.Argument(help="Id of a Run.")]
RunOrOperation = Annotated[str, typer.Argument(help="Id of an Operation, or of a Run for its last model call.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(
        help="Show a Run, its requests and its Operations.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command()(run)
    group.command()(inputs)
    group.command()(operations)
    group.command()(manifest)
    group.command()(request)
    group.command()(view)
    group.command()(compactions)
    group.command()(explain)
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
    from cli.following import DELIVERY

    found = call_api(lambda api: api.pages(f"/runs/{run}/inputs", limit=200))
    if json:
        print_json(found)
        return 0
    rows = ((one["input_seq"], one["kind"], DELIVERY[one["state"]], _line(one["text"])) for one in found)
    print_table(("no", "kind", "", "text"), rows)
    return 0


def _line(text: str, *, most: int = 80) -> str:
    """The beginning of a text, on one line."""
    words = " ".join(text.split())
    return words if len(words) <= most else f"{words[: most - 1]}…"


def operations(run: RunId, json: AsJson = False) -> int:
    """List a Run's model and tool calls in order."""
    from cli.client import call_api

    found = call_api(lambda api: api.pages(f"/runs/{run}/operations", limit=200))
    if json:
        print_json(found)
        return 0
    columns = ("operation", "loop", "purpose", "name", "state", "attempts", "failures")
    names = ("operation_id", "loop", "purpose", "name", "state")
    print_table(columns, ((*(o[name] for name in names), len(o["attempts"]), failures(o["attempts"])) for o in found))
    return 0


def failures(attempts: list[dict[str, Any]]) -> str:
    """Why tries failed, in their order: `busy 429, timeout`."""
    failed = [one["error"] for one in attempts if one["error"]]
    return ", ".join(f"{one['reason']} {one['status']}" if one.get("status") else one["reason"] for one in failed)


def manifest(identity: RunOrOperation, json: AsJson = False) -> int:
    """Show what a request contained and how full its budget was."""
    from cli.client import call_api
    from cli.following import gauge

    found = call_api(lambda api: _manifest(api, identity))
    if json:
        print_json(found)
        return 0
    method = f"{found['counting_method']}{'' if found['exact'] else ', estimated'}"
    print_lines([f"operation {found['operation_id']} · {found['purpose']} · {found['model']} · {found['validation']}"])
    print_lines([f"input {gauge(found['estimated_input_tokens'], found['input_limit'], width=40)} · {method}"])
    columns = ("kind", "placement", "run", "tokens", "content", "transform")
    print_table(columns, (_item_row(item) for item in found["items"]))
    for transform in found["transforms"]:
        print_lines([f"transform {transform}"])
    for remark in found["notes"]:
        print_lines([f"note {remark}"])
    return 0


def request(identity: RunOrOperation, json: AsJson = False) -> int:
    """Print the request byte for byte as it was sent, and a line end; its SHA-256 goes to standard error.

    It is JSON in any case, so --json changes nothing.
    """
    from cli.client import call_api

    body, digest = call_api(lambda api: _request_bytes(api, identity))
    print_bytes(body)
    note(f"sha256 {digest}")
    return 0


def view(identity: RunOrOperation, json: AsJson = False) -> int:
    """Show the messages of a request as the model saw them."""
    from cli.client import call_api
    from cli.sessions import message_lines, message_title

    messages = call_api(lambda api: _request(api, identity))["request"]["messages"]
    if json:
        print_json(messages)
        return 0
    for number, message in enumerate(messages, 1):
        print_lines([f"── {number} {message_title(message)}", *message_lines(message)])
    return 0


def compactions(run: RunId, json: AsJson = False) -> int:
    """List a Run's compactions: how far each came, and what it gained."""
    from cli.client import call_api

    found = call_api(lambda api: api.pages(f"/runs/{run}/compactions"))
    if json:
        print_json(found)
        return 0
    columns = ("episode", "source", "causes", "status", "blocks", "before", "after", "target", "calls", "cost")
    print_table(columns, (_compaction_row(one) for one in found))
    return 0


def explain(
    identity: RunOrOperation,
    record: Annotated[str, typer.Option(help="Id of the record that is asked about.")] = "",
    given: Annotated[str, typer.Option("--input", help="Id of the input that is asked about.")] = "",
    json: AsJson = False,
) -> int:
    """Say why a record or an input was or was not in a request."""
    from cli.client import call_api

    if bool(record) == bool(given):
        raise CommandError("name a record or an input, and only one.", mend="agentloom show explain RUN --input ID")
    found = call_api(lambda api: _explained(api, identity, {"record": record} if record else {"input": given}))
    if json:
        print_json(found)
        return 0
    facts = (f"{name} {found[name]}" for name in EXPLAINED if found[name] is not None)
    print_lines([" · ".join((found["piece"], found["explanation"].replace("_", " "), *facts))])
    return 0


async def _explained(api: "Api", identity: str, subject: dict[str, str]) -> dict[str, Any]:
    operation = await _model_call(api, identity)
    found: dict[str, Any] = await api.get(f"/operations/{operation['operation_id']}/explain", **subject)
    return found


async def _request(api: "Api", identity: str) -> dict[str, Any]:
    operation = await _model_call(api, identity)
    rebuilt: dict[str, Any] = await api.get(f"/operations/{operation['operation_id']}/request")
    return rebuilt


async def _request_bytes(api: "Api", identity: str) -> tuple[bytes, str]:
    """The request as it was sent, and its SHA-256 in hex.

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
    return body, digest


async def _manifest(api: "Api", identity: str) -> dict[str, Any]:
    operation = await _model_call(api, identity)
    for one in await api.pages(f"/runs/{operation['run_id']}/manifests"):
        if one["operation_id"] == operation["operation_id"]:
            found: dict[str, Any] = one
            return found
    raise CommandError(f"operation {identity} has no manifest.", why="Only model calls have one.")


async def _model_call(api: "Api", identity: str) -> dict[str, Any]:
    """The Operation of that id, or the last model call of the Run of that id."""
    from cli.client import ApiRefusedError

    try:
        operation: dict[str, Any] = await api.get(f"/operations/{identity}")
        return operation
    except ApiRefusedError as refused:
        if refused.status != 404:
            raise
    calls = [one for one in await api.pages(f"/runs/{identity}/operations", limit=200) if one["purpose"] != "tool"]
    if not calls:
        raise CommandError(f"run {identity} has called no model yet.", mend=f"agentloom watch {identity}")
    return dict(calls[-1])


def _facts(run: dict[str, Any]) -> list[tuple[str, object]]:
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
    ]


def _item_row(item: dict[str, Any]) -> tuple[object, ...]:
    run_no = "" if item["run_no"] is None else item["run_no"]
    return item["kind"], item["placement"], run_no, item["tokens"], item["content_hash"][:12], item["transform"] or ""


def _compaction_row(one: dict[str, Any]) -> tuple[object, ...]:
    status = one["status"] if one["outcome"] in (None, "activated") else f"{one['status']} ({one['outcome']})"
    if one["failure"]:
        status = f"{status} ({one['failure']['reason']})"
    blocks = "" if one["blocks"] is None else f"{one['cursor']}/{one['blocks']}"
    after = "" if one["tokens_after"] is None else one["tokens_after"]
    cost = "unknown" if one["cost"] is None else one["cost"]
    sizes = (one["tokens_before"], after, one["target"], one["calls"], cost)
    return one["episode_id"], one["source"], ", ".join(one["causes"]), status, blocks, *sizes
