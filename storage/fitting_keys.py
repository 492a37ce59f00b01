"""Whether the configured keys open what the database holds: asked once, before a process works with it (SPEC Y1, Y2).

With other keys it would end each Run that it gets, and write what nobody else can read. A few payloads of each master
key's id tell; nothing is stored for it, so that there is nothing that could become untrue.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import text

from context.errors import AgentLoomError
from storage.database import fetch_all, fetch_value
from storage.payloads import Vault
from storage.store import Store

# Else a table that is full of one key would be read through to find a few rows of another (615 ms for 600 000).
BY_INDEX = text("SELECT set_config('enable_seqscan', 'off', true)")
HAS_TABLES = text("SELECT to_regclass('payloads') IS NOT NULL")
# From one id to the next by the index, whatever the table holds. Several of each, since one may be damaged.
SAMPLES = text("""
    WITH RECURSIVE used (key_id) AS (
        SELECT ''
        UNION ALL
        SELECT (SELECT min(p.key_id) FROM payloads p WHERE p.key_id > used.key_id)
        FROM used WHERE used.key_id IS NOT NULL
    )
    SELECT s.* FROM used CROSS JOIN LATERAL (
        SELECT payload_id, key_id, codec, body FROM payloads p WHERE p.key_id = used.key_id LIMIT 5
    ) AS s
    ORDER BY s.key_id
""")

OTHER_DATABASE = "or DATABASE_URL names the database of another installation"

Row = Mapping[str, Any]


class UnfitKeysError(AgentLoomError):
    """A process with these keys can't work with this database: what is wrong, `why`, and what mends it; no secret."""

    code = "CONFIGURATION_INVALID"

    def __init__(self, message: str, *, why: str, mend: str) -> None:
        super().__init__(message)
        self.why = why
        self.mend = mend

    def __str__(self) -> str:
        return f"{self.message} {self.why} {self.mend}"


async def check_keys(store: Store, *, lost: frozenset[str] = frozenset()) -> None:
    """Raises UnfitKeysError, or UnavailableError if the database can't be asked.

    `lost` are the ids of master keys that nobody has any more: what they encrypted stays unreadable and hinders nobody.
    """
    vault = store.payloads.vault
    async with store.snapshot() as connection:
        await fetch_value(connection, BY_INDEX)
        if not await fetch_value(connection, HAS_TABLES):
            raise UnfitKeysError("The database is empty.", why="It has no tables yet.", mend="Run: agentloom migrate")
        rows = await fetch_all(connection, SAMPLES)
    samples = {key_id: list(group) for key_id, group in groupby(rows, lambda row: str(row["key_id"]))}
    wanted = {key_id: some for key_id, some in samples.items() if key_id not in lost}
    _check_given(wanted.keys() - vault.known_keys)
    _check_opening(key_id for key_id, some in wanted.items() if not any(vault.decrypts(*_sealed(one)) for one in some))
    _check_index(vault, [one for some in wanted.values() for one in some])


def _check_given(missing: Iterable[str]) -> None:
    if ids := sorted(missing):
        raise UnfitKeysError(
            f"Content is encrypted under keys that are not given: {', '.join(ids)}.",
            why=f"They were taken out of AGENTLOOM_MASTER_KEYS too early, {OTHER_DATABASE}.",
            mend="Put them back behind the first one, until `agentloom keys reencrypt` has left nothing under them"
            + _or_if_lost(ids),
        )


def _check_opening(wrong: Iterable[str]) -> None:
    if ids := sorted(wrong):
        raise UnfitKeysError(
            f"Key {', '.join(ids)} of AGENTLOOM_MASTER_KEYS opens nothing of what is stored under that id.",
            why=f"That was encrypted with another key, {OTHER_DATABASE}.",
            mend="Give the key that it was encrypted with" + _or_if_lost(ids),
        )


def _or_if_lost(ids: Iterable[str]) -> str:
    return f"; or, if nobody has it any more: AGENTLOOM_LOST_KEYS={','.join(ids)}"


def _check_index(vault: Vault, samples: Iterable[Row]) -> None:
    """What opens and has another name than the index key gives it was named by another index key."""
    named = [vault.is_named(*_sealed(one)) for one in samples]
    if False in named and True not in named:
        raise UnfitKeysError(
            "AGENTLOOM_INDEX_KEY is another one than the content of this database was named with.",
            why=f"It never changes, {OTHER_DATABASE}.",
            mend="Give the key that this database was begun with.",
        )


def _sealed(row: Row) -> tuple[bytes, str, str, bytes]:
    return row["payload_id"], row["key_id"], row["codec"], row["body"]
