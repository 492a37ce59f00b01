"""`agentloom sessions …`: lists, shows and tidies one's own sessions."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.ids import HIGHEST, id_of
from cli.output import one_line, print_json, print_lines, print_table

if TYPE_CHECKING:
    from cli.client import Api

SessionId = Annotated[
    str, typer.Argument(help="Id of the session; `agentloom sessions list` tells it.", callback=id_of("session"))
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="List, show and tidy sessions.", no_args_is_help=True, rich_markup_mode=None)
    group.command("list")(list_sessions)
    group.command()(show)
    group.command()(messages)
    group.command()(inputs)
    group.command()(archive)
    group.command()(unarchive)
    group.command()(rename)
    app.add_typer(group, name="sessions")


def list_sessions(
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most this many, newest first.")] = 20,
    json: AsJson = False,
) -> int:
    """List sessions, newest first."""
    from cli.client import call_api

    async def work(api: "Api") -> list[Any]:
        return await api.pages("/sessions", at_most=limit, include_archived=archived, limit=min(limit, 200))

    found = call_api(work)
    if json:
        print_json(found)
        return 0
    columns = ("session", "agent", "runs", "active run", "title", "created")
    print_table(columns, (_row(one) for one in found))
    return 0


def show(session: SessionId, json: AsJson = False) -> int:
    """Show a session and its Runs."""
    from cli.client import call_api

    async def work(api: "Api") -> dict[str, Any]:
        found: dict[str, Any] = await api.get(f"/sessions/{session}")
        return found | {"runs": await api.pages(f"/sessions/{session}/runs")}

    found = call_api(work)
    if json:
        print_json(found)
        return 0
    state = "archived" if found["archived"] else "open"
    print_lines([f"{found['title'] or '(no title)'} · agent {found['agent']} · {state}"])
    if compaction := found["active_compaction_id"]:
        print_lines([f"compaction {compaction} is under way   (stop it: agentloom compact {session} --stop)"])
    columns = ("no", "run", "status", "end", "loops", "tokens in/out")
    print_table(columns, (_run_row(run) for run in found["runs"]))
    return 0


def messages(
    session: SessionId,
    after: Annotated[int, typer.Option(min=0, max=HIGHEST, help="Leave out messages up to this seq.")] = 0,
    json: AsJson = False,
) -> int:
    """Print a session's messages in order."""
    from cli.client import call_api

    async def work(api: "Api") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        place = after
        while (page := await api.get(f"/sessions/{session}/messages", after=place, limit=200))["items"]:
            found += page["items"]
            place = page["next_after"]
        return found

    found = call_api(work)
    if json:
        print_json(found)
        return 0
    for one in found:
        print_lines([f"── {one['seq']} {message_title(one['message'])}", *message_lines(one["message"])])
    return 0


def inputs(session: SessionId, json: AsJson = False) -> int:
    """List what the user sent, and what became of each."""
    from cli.client import call_api
    from cli.following import stands

    found = call_api(lambda api: api.pages(f"/sessions/{session}/inputs", limit=200))
    if json:
        print_json(found)
        return 0
    names = ("input_seq", "input_id", "kind")
    rows = ((*(one[name] for name in names), one["run_id"] or "", stands(one), one_line(one["text"])) for one in found)
    print_table(("no", "input", "kind", "run", "", "text"), rows)
    return 0


def archive(session: SessionId) -> int:
    """Archive a session: it leaves lists and takes no new questions."""
    return _patch(session, {"archived": True}, f"session {session} archived")


def unarchive(session: SessionId) -> int:
    """Take a session back out of the archive."""
    return _patch(session, {"archived": False}, f"session {session} is open again")


def rename(session: SessionId, title: Annotated[str, typer.Argument(help="The new title.")]) -> int:
    """Give a session a title."""
    return _patch(session, {"title": title}, f"session {session} renamed")


def message_title(message: dict[str, Any]) -> str:
    """Who speaks in a message, and to what end."""
    role = str(message["role"])
    name = f" {message['name']}" if message.get("name") else ""
    status = f" ({message['status']})" if message.get("status") else ""
    return f"{role}{name}{status}"


def message_lines(message: dict[str, Any]) -> list[str]:
    """The content of a message and the calls it makes."""
    calls = [
        f"→ {call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls") or ()
    ]
    return [*(str(message["content"]).splitlines() if message.get("content") else ()), *calls]


def _patch(session: str, change: dict[str, Any], done: str) -> int:
    from cli.client import call_api

    async def work(api: "Api") -> None:
        await api.patch(f"/sessions/{session}", change)

    call_api(work)
    print_lines([done])
    return 0


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    marks = [" (archived)"] if one["archived"] else []
    marks += [" (compacting)"] if one["active_compaction_id"] else []
    title = "".join([one["title"] or "", *marks]).strip()
    return one["session_id"], one["agent"], one["run_head"], one["active_run_id"] or "", title, one["created_at"][:19]


def _run_row(run: dict[str, Any]) -> tuple[object, ...]:
    usage = run["usage"]
    tokens = f"{usage['input_tokens']}/{usage['output_tokens']}"
    return run["run_no"], run["run_id"], run["status"], run["end_reason"] or "", run["loops"], tokens
