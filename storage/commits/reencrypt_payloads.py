"""A batch of what older master keys encrypted, encrypted anew under the current one (SPEC Y2).

Nothing about the content changes: id, digest, size and the tokens that were counted stay. Each batch is a commit of its
own and is found by what is still under another key, so that whoever was stopped or killed goes on by starting again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import CorruptPayloadError
from storage.database import fetch_all
from storage.payloads import Vault
from storage.store import Store

# Locked as an update would lock it: what refers to a payload does not wait, what deletes or measures it does.
BATCH = text("""
    SELECT payload_id, key_id, body FROM (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY payload_id) AS bytes_so_far,
                  row_number() OVER (ORDER BY payload_id) AS place
        FROM (SELECT payload_id, key_id, body FROM payloads
              WHERE payload_id > :after AND key_id <> :current
              ORDER BY payload_id LIMIT :rows FOR NO KEY UPDATE) AS old
    ) AS sized
    WHERE bytes_so_far <= :max_bytes OR place = 1 ORDER BY payload_id
""")
REPLACE = text("""
    UPDATE payloads p SET key_id = :current, body = n.body
    FROM unnest(CAST(:ids AS bytea[]), CAST(:bodies AS bytea[])) AS n(payload_id, body)
    WHERE p.payload_id = n.payload_id
""")


@dataclass(frozen=True)
class ReencryptPayloads:
    """The first rows beyond the payload `after` that are under another key than the current one."""

    after: bytes = b""
    rows: int = 500
    max_bytes: int = 16 << 20  # at least one row is taken, however large


@dataclass(frozen=True)
class ReencryptedBatch:
    """`last` is where the next batch begins, None if there was nothing left. `unreadable` stay as they are."""

    last: bytes | None
    count: int = 0
    size: int = 0
    unreadable: tuple[bytes, ...] = field(default=(), repr=False)


async def reencrypt_payloads(store: Store, request: ReencryptPayloads) -> ReencryptedBatch:
    """Encrypt one batch anew; a repeat finds it done."""
    vault = store.payloads.vault
    async with store.transaction("reencrypt_payloads") as connection:
        binds = {"after": request.after, "rows": request.rows, "max_bytes": request.max_bytes}
        found = await fetch_all(connection, BATCH, current=vault.current_key, **binds)
        bodies = {row["payload_id"]: _anew(vault, row) for row in found}
        readable = {payload_id: body for payload_id, body in bodies.items() if body is not None}
        await _replace(connection, vault.current_key, readable)
    return ReencryptedBatch(
        last=found[-1]["payload_id"] if found else None,
        count=len(readable),
        size=sum(len(body) for body in readable.values()),
        unreadable=tuple(payload_id for payload_id, body in bodies.items() if body is None),
    )


def _anew(vault: Vault, row: Mapping[str, Any]) -> bytes | None:
    """The body under the current key, or None if it does not decrypt: one such row must not keep all others back."""
    try:
        return vault.reseal(row["payload_id"], row["key_id"], row["body"])
    except CorruptPayloadError:
        return None


async def _replace(connection: AsyncConnection, current: str, bodies: Mapping[bytes, bytes]) -> None:
    if bodies:
        await fetch_all(connection, REPLACE, current=current, ids=list(bodies), bodies=list(bodies.values()))
