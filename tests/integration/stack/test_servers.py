"""The embedded servers: what they promise to whoever starts them."""

import asyncio
import os
import pwd
import sys
import tempfile
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from stack import postgres, temporal
from stack.children import user_identity
from stack.errors import StackError
from stack.ports import any_free_port
from stack.postgres import PostgresServer
from stack.supervisor import Supervisor


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


async def test_after_a_crash_the_database_flushes_its_file_system_and_not_file_by_file(
    postgres_server: PostgresServer,
) -> None:
    """SPEC R1: a killed PostgreSQL is back before the Run misses it; some 1 500 files took it up to four seconds."""
    connection = await asyncpg.connect(postgres_server.url("postgres"))
    method = await connection.fetchval("SHOW recovery_init_sync_method")
    await connection.close()
    assert method == ("syncfs" if sys.platform == "linux" else "fsync")


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_where_user_namespaces_are_refused_root_runs_it_as_a_service_user() -> None:
    """Design 10: the fallback of the launcher, with the data folder handed to that user."""
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as folder:
        identities = [user_identity(nobody.pw_uid, nobody.pw_gid)]
        server = await asyncio.to_thread(
            postgres.prepare, Path(folder) / "postgres", port=any_free_port(), password="x", identities=identities
        )
        supervisor = Supervisor()
        try:
            await supervisor.start(server.child(log_file=Path(folder) / "postgres.log"))
            assert Path(f"/proc/{supervisor.pids['postgres']}").stat().st_uid == nobody.pw_uid
            assert await postgres.answers(server.url("postgres"))
        finally:
            await supervisor.stop()


async def test_a_data_folder_of_a_version_that_is_not_installed_is_said_clearly(tmp_path: Path) -> None:
    """SPEC 17: what, why, next."""
    (tmp_path / "PG_VERSION").write_text("12\n")
    with pytest.raises(StackError, match="could not be started") as caught:
        postgres.prepare(tmp_path, port=1, password="x")
    assert "PostgreSQL 12" in caught.value.why


async def test_a_data_folder_that_says_no_version_is_damaged(tmp_path: Path) -> None:
    """SPEC 17: half a copy of one, for example."""
    (tmp_path / "PG_VERSION").write_bytes(b"\xff\n")
    with pytest.raises(StackError, match="is damaged"):
        postgres.prepare(tmp_path, port=1, password="x")
