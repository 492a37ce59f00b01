"""`agentloom keys …`: makes, lists and revokes API keys (for administrators), and the first one of an installation."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.output import CommandError, note, print_json, print_lines, print_table

if TYPE_CHECKING:
    from cli.client import Api

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True, rich_markup_mode=None)
    group.command()(create)
    group.command("list")(list_keys)
    group.command()(revoke)
    group.command()(bootstrap)
    app.add_typer(group, name="keys")


def create(
    user: Annotated[
        str | None, typer.Option(help="Name of the user, made as a member if new; default yourself.")
    ] = None,
    json: AsJson = False,
) -> int:
    """Make a key. It is shown this once and never again."""
    from cli.client import call_api

    async def work(api: "Api") -> dict[str, Any]:
        if user is not None:
            await api.post("/users", {"name": user})
        created: dict[str, Any] = await api.post("/keys", {"user": user})
        return created

    created = call_api(work)
    if json:
        print_json(created)
        return 0
    print_lines([created["api_key"]])
    note(f"key {created['key_id']}; keep it now, it is not shown again")
    return 0


def list_keys(json: AsJson = False) -> int:
    """List the keys of the space; only the first characters of each are known."""
    from cli.client import call_api

    found = call_api(lambda api: api.pages("/keys"))
    if json:
        print_json(found)
        return 0
    columns = ("key", "user", "begins with", "created", "revoked")
    rows = ((k["key_id"], k["user_id"], k["hint"], k["created_at"][:19], (k["revoked_at"] or "")[:19]) for k in found)
    print_table(columns, rows)
    return 0


def revoke(key: Annotated[str, typer.Argument(help="Id of the key.")]) -> int:
    """Revoke a key: it stops working at once."""
    from cli.client import call_api

    call_api(lambda api: api.delete(f"/keys/{key}"))
    print_lines([f"key {key} revoked"])
    return 0


def bootstrap(
    name: Annotated[str, typer.Argument(help="Name of the administrator, made if new.")] = "admin", json: AsJson = False
) -> int:
    """Make an administrator's key straight in the database, for an installation that has none yet.

    Reads the environment of the API process (DATABASE_URL, AGENTLOOM_MASTER_KEYS, AGENTLOOM_INDEX_KEY).
    """
    import asyncio

    made = asyncio.run(_bootstrap(name))
    if json:
        print_json(made)
        return 0
    print_lines([made["api_key"]])
    note(f"key {made['key_id']} of {name}; keep it now, it is not shown again")
    return 0


async def _bootstrap(name: str) -> dict[str, str]:
    from settings import load_settings
    from storage.commits.create_key import CreateKey, create_key
    from storage.commits.create_space_user import CreateSpaceUser, create_space_user
    from storage.payloads import Keys
    from storage.store import Store

    settings = load_settings()
    keys = Keys({key.id: key.key for key in settings.master_keys}, settings.index_key)
    store = Store.open(settings.database_url.get_secret_value(), keys, pool_size=1)
    try:
        user = await create_space_user(store, CreateSpaceUser(name, "admin"))
        if user.role != "admin":
            raise CommandError(f"{name} is there already and no administrator.", mend="agentloom keys bootstrap OTHER")
        made = await create_key(store, CreateKey(user.user_id))
    finally:
        await store.aclose()
    return {"key_id": str(made.key_id), "user_id": str(user.user_id), "api_key": made.key}
