"""The embedded servers: what they promise to whoever starts them."""

import asyncpg
import pytest
from temporalio.client import Client

from stack import temporal
from stack.postgres import PostgresServer


async def test_every_database_connection_needs_the_password(postgres_server: PostgresServer) -> None:
    """Design 10: password users only, so that another user of the machine reads nothing."""
    address = postgres_server.url("postgres").replace(postgres_server.password, "not-it")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(address)


async def test_the_database_log_shows_neither_statements_nor_values(postgres_server: PostgresServer) -> None:
    """SPEC Y6."""
    connection = await asyncpg.connect(postgres_server.url("postgres"))
    try:
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute("select 1 / (length('planted-marker-word') - length('planted-marker-word'))")
    finally:
        await connection.close()
    assert "planted-marker-word" not in (postgres_server.data_dir.parent / "postgres.log").read_text()


async def test_the_temporal_server_knows_our_search_attributes(temporal_client: Client) -> None:
    """SPEC W3: an unregistered search attribute would make each start fail."""
    assert await temporal.missing_search_attributes(temporal_client) == ()


async def test_registering_search_attributes_twice_is_fine(temporal_client: Client) -> None:
    """SPEC W3."""
    await temporal.register_search_attributes(temporal_client)
    assert await temporal.missing_search_attributes(temporal_client) == ()


async def test_a_task_queue_without_a_worker_is_seen_as_not_polled(temporal_client: Client, task_queue: str) -> None:
    """SPEC 17: doctor looks for a polling worker."""
    assert not await temporal.is_polled(temporal_client, task_queue)
