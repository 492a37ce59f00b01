"""What every test may ask for: real servers, a database of its own, a task queue of its own.

Servers start when a test first asks for one, so unit tests start none.
"""

import os
import secrets
from collections.abc import Iterator

import pytest
from temporalio.client import Client

from stack.postgres import PostgresServer
from tests.support import servers

OUTER_VARIABLES = ("AGENTLOOM_", "TEMPORAL_", "DATABASE_URL", "OPENAI_", "DEEPSEEK_", "PG")
"""Environment of whoever runs the tests that must not reach into them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-matrix", action="store_true", help="kill at every commit boundary, not at a sample of them"
    )


@pytest.fixture(autouse=True)
def _environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(OUTER_VARIABLES)]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def full_matrix(pytestconfig: pytest.Config) -> bool:
    """Whether every case is asked for, not only the sample that fits into the suite."""
    return bool(pytestconfig.getoption("--full-matrix"))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A real PostgreSQL, one for all tests."""
    with servers.running_postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_template(postgres_server: PostgresServer) -> str:
    """Name of a database with the newest schema, to clone from."""
    servers.run_now(servers.create_template(postgres_server))
    return servers.TEMPLATE


@pytest.fixture
def database_url(postgres_server: PostgresServer, migrated_template: str) -> Iterator[str]:
    """`postgresql://…` of a fresh database with the newest schema."""
    name = servers.run_now(servers.create_database(postgres_server, template=migrated_template))
    yield postgres_server.url(name)
    servers.run_now(servers.drop_database(postgres_server, name))


@pytest.fixture
def empty_database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """`postgresql://…` of a fresh database without any schema."""
    name = servers.run_now(servers.create_database(postgres_server))
    yield postgres_server.url(name)
    servers.run_now(servers.drop_database(postgres_server, name))


@pytest.fixture(scope="session")
def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a real Temporal development server with our search attributes, one for all tests."""
    with servers.running_temporal(tmp_path_factory.mktemp("temporal")) as server:
        yield server.address


@pytest.fixture
async def temporal_client(temporal_address: str) -> Client:
    """A plain client of the Temporal server."""
    return await Client.connect(temporal_address)


@pytest.fixture
def task_queue() -> str:
    """A task queue no other test uses."""
    return f"test-{secrets.token_hex(6)}"
