"""`agentloom keys …`: makes, lists and revokes API keys (for administrators), and the first one of an installation.

`bootstrap` and `reencrypt` work on the database itself, with the environment of the API process.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.ids import id_of, name_of
from cli.output import CommandError, ExitCode, note, print_json, print_lines, print_table

if TYPE_CHECKING:
    from cli.client import Api
    from storage.store import Store

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(
        help="Make, list and revoke API keys, for administrators.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command()(create)
    group.command("list")(list_keys)
    group.command()(revoke)
    group.command()(bootstrap)
    group.command()(reencrypt)
    app.add_typer(group, name="keys")


def create(
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the user, made as a member if new; default yourself.",
            callback=name_of("user"),
        ),
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
    """List the keys of the space.

    Only the first characters of each are known.
    """
    from cli.client import call_api

    found = call_api(lambda api: api.pages("/keys"))
    if json:
        print_json(found)
        return 0
    columns = ("key", "user", "begins with", "created", "revoked")
    rows = ((k["key_id"], k["user_id"], k["hint"], k["created_at"][:19], (k["revoked_at"] or "")[:19]) for k in found)
    print_table(columns, rows)
    return 0


def revoke(key: Annotated[str, typer.Argument(help="Id of the key.", callback=id_of("key"))]) -> int:
    """Revoke a key: it stops working at once."""
    from cli.client import call_api

    call_api(lambda api: api.delete(f"/keys/{key}"))
    print_lines([f"key {key} revoked"])
    return 0


def bootstrap(
    name: Annotated[
        str, typer.Argument(help="Name of the administrator, made if new.", callback=name_of("user"))
    ] = "admin",
    json: AsJson = False,
) -> int:
    """Make the first administrator's key.

    It is made straight in the database, for an installation that has none yet. Reads the environment of the API
    process (DATABASE_URL, AGENTLOOM_MASTER_KEYS, AGENTLOOM_INDEX_KEY).
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
    from storage.commits.create_key import CreateKey, create_key
    from storage.commits.create_space_user import CreateSpaceUser, create_space_user

    async with _store(then="agentloom keys bootstrap") as store:
        user = await create_space_user(store, CreateSpaceUser(name, "admin"))
        if user.role != "admin":
            raise CommandError(f"{name} is there already and no administrator.", mend="agentloom keys bootstrap OTHER")
        made = await create_key(store, CreateKey(user.user_id))
    return {"key_id": str(made.key_id), "user_id": str(user.user_id), "api_key": made.key}


def reencrypt(
    rows: Annotated[int, typer.Option(min=1, max=10_000, help="Payloads of one batch, at most.")] = 500,
    json: AsJson = False,
) -> int:
    """Encrypt anew what older master keys encrypted.

    It is then under the first of AGENTLOOM_MASTER_KEYS, and the others can go. Needs the environment of the API
    process, and may run beside it. Each batch is committed by itself: stopped or killed, it goes on when it is
    started again.
    """
    import asyncio

    done = asyncio.run(_reencrypt(rows))
    if json:
        print_json(done)
    else:
        print_lines([f"{done['reencrypted']} payloads encrypted anew under {done['key']}", *_left(done)])
    return ExitCode.ENDED_OTHERWISE if done["left"] else ExitCode.DONE


async def _reencrypt(rows: int) -> dict[str, Any]:
    from storage.commits.reencrypt_payloads import ReencryptPayloads
    from storage.reencrypting import keys_in_use, reencrypted

    async with _store(then="agentloom keys reencrypt") as store:
        current = store.payloads.vault.current_key
        before = _others(await keys_in_use(store), current)
        total, count, unreadable = sum(before.values()), 0, 0
        async for batch in reencrypted(store, ReencryptPayloads(rows=rows)):
            told, count = _tenths(count, total), count + batch.count
            unreadable += len(batch.unreadable)
            if _tenths(count, total) > told:
                note(f"{count} of {total}")
        left = _others(await keys_in_use(store), current)
    return {"key": current, "reencrypted": count, "unreadable": unreadable, "left": left}


def _others(in_use: Mapping[str, int], current: str) -> dict[str, int]:
    return {key_id: count for key_id, count in in_use.items() if key_id != current}


def _tenths(count: int, total: int) -> int:
    return count * 10 // max(total, 1)


def _left(done: Mapping[str, Any]) -> Sequence[str]:
    """What is still under other keys, and what that means."""
    if not done["left"]:
        return ["nothing is left under another key: the others can be taken out of AGENTLOOM_MASTER_KEYS"]
    left = ", ".join(f"{count} under {key_id}" for key_id, count in done["left"].items())
    broken = done["unreadable"]
    return [
        f"left: {left}; keep these keys",
        f"{broken} of them do not decrypt: restore them from a backup"
        if broken
        else "written meanwhile: restart worker and API with the new key first, then run this again",
    ]


@asynccontextmanager
async def _store(*, then: str) -> "AsyncIterator[Store]":
    """A store on the database of the environment, with keys that open it. `then` is the command that needs it."""
    from cli.databases import check_schema
    from settings import load_settings
    from storage.fitting_keys import check_keys
    from storage.payloads import Keys
    from storage.store import Store

    settings = load_settings()
    url = settings.database_url.get_secret_value()
    await check_schema(url, then=then)
    store = Store.open(url, Keys(settings.keys_by_id, settings.index_key), pool_size=1)
    try:
        await check_keys(store, lost=settings.lost_keys)
        yield store
    finally:
        await store.aclose()
