"""Taking older master keys out of use: everything under them, batch by batch, and what is still left (SPEC Y2)."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from sqlalchemy import text

from storage.commits.reencrypt_payloads import ReencryptedBatch, ReencryptPayloads, reencrypt_payloads
from storage.database import fetch_all
from storage.store import Store

IN_USE = text("SELECT key_id, count(*) AS payloads FROM payloads GROUP BY key_id ORDER BY key_id")


async def keys_in_use(store: Store) -> Mapping[str, int]:
    """Payloads by the id of the master key that encrypted them."""
    async with store.reading() as connection:
        return {row["key_id"]: row["payloads"] for row in await fetch_all(connection, IN_USE)}


async def reencrypted(store: Store, first: ReencryptPayloads | None = None) -> AsyncIterator[ReencryptedBatch]:
    """Each batch once it is committed, until nothing is left beyond the last one."""
    request = first or ReencryptPayloads()
    while (batch := await reencrypt_payloads(store, request)).last is not None:
        yield batch
        request = replace(request, after=batch.last)
