"""A session far longer than the window, whose worker is killed after each commit of its compaction (SPEC K5-K7, R2).

The session is filled once and its database cloned for each kill, so that every byte of an undisturbed episode can be
asked for again. The suite does it with 45 000 tokens, `--full-matrix` with 500 000, on a window of 32 768.
"""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.postgres import PostgresServer
from storage.payloads import Keys
from tests.support.child_worker import WorkerNursery, place_of
from tests.support.faults import Fault
from tests.support.long_sessions import SMALL, digesting, fill, is_block
from tests.support.model_server import ModelServer, RecordedRequest
from tests.support.run_world import Json, RunWorld, Servers, running_world, working_world
from tests.support.servers import create_database, drop_database, run_now

QUESTION = "What counts most in all of these notes?"
TOKENS, BLOCKS = 45_000, 3
FULL_TOKENS, FULL_BLOCKS = 500_000, 34
SAMPLE = [("finish_block.after_commit", 2)]
ONCE = ("prepare_request", "plan_episode", "publish_snapshot", "freeze_request")
FULL = [
    *((f"{commit}.after_commit", 1) for commit in ONCE),
    *((f"{commit}.after_commit", n + 1) for commit in ("prepare_block", "finish_block") for n in range(FULL_BLOCKS)),
]


@dataclass(frozen=True)
class Filled:
    """A filled session in a database that is cloned, who may speak in it, and the blocks that it takes."""

    server: PostgresServer
    temporal: str
    database: str
    keys: Keys
    api_key: str
    session: str
    tokens: int
    blocks: int

    @asynccontextmanager
    async def clone(self, folder: Path) -> AsyncIterator[RunWorld]:
        """A world of its own that goes on from there, without a worker; its agent has the small window now."""
        name = await create_database(self.server, template=self.database)
        servers = Servers(self.server.url(name), self.temporal, f"clone-{secrets.token_hex(6)}", folder)
        async with (
            ModelServer([digesting] * 200, strict="plain") as model,
            running_world(servers, model, keys=self.keys, api_key=self.api_key) as world,
        ):
            await world.publish(**SMALL)
            yield world
        await drop_database(self.server, name)

    @classmethod
    async def build(cls, server: PostgresServer, temporal: str, database: str, folder: Path, full: bool) -> "Filled":
        servers = Servers(server.url(database), temporal, f"fill-{secrets.token_hex(6)}", folder)
        async with working_world(servers) as world:
            long = await fill(world, FULL_TOKENS if full else TOKENS)
        blocks = FULL_BLOCKS if full else BLOCKS
        return cls(server, temporal, database, world.keys, world.api_key, long.session_id, long.tokens, blocks)


@pytest.fixture(scope="module")
def filled(
    postgres_server: PostgresServer,
    migrated_template: str,
    temporal_address: str,
    tmp_path_factory: pytest.TempPathFactory,
    full_matrix: bool,
) -> Iterator[Filled]:
    """The session, filled once."""
    name = run_now(create_database(postgres_server, template=migrated_template))
    yield run_now(Filled.build(postgres_server, temporal_address, name, tmp_path_factory.mktemp("long"), full_matrix))
    run_now(drop_database(postgres_server, name))


@pytest.fixture(scope="module")
def undisturbed(filled: Filled, nursery: WorkerNursery, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The bytes of every request of the same question with nobody killed."""
    return run_now(_undisturbed(filled, nursery, tmp_path_factory.mktemp("undisturbed")))


async def _undisturbed(filled: Filled, nursery: WorkerNursery, folder: Path) -> list[bytes]:
    async with filled.clone(folder) as world, nursery.worker(place_of(world)):
        run = await world.over(await world.start(QUESTION, filled.session))
        await assert_one_episode(world, run, filled)
        return bodies(world.model.requests)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every commit of the episode with --full-matrix, one of them without."""
    if "point" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full-matrix")
        metafunc.parametrize(("point", "nth"), FULL if full else SAMPLE)


@pytest.mark.timeout(180)
async def test_a_worker_killed_after_a_commit_of_a_long_episode_calls_no_finished_block_again(
    filled: Filled, undisturbed: list[bytes], nursery: WorkerNursery, tmp_path: Path, point: str, nth: int
) -> None:
    """SPEC K7, R2, K1: each block is called once, with the same bytes; the published summary is the same."""
    reached = tmp_path / "reached"
    async with filled.clone(tmp_path) as world, nursery.kept(place_of(world), Fault(point, str(reached), nth=nth)):
        run = await world.over(await world.start(QUESTION, filled.session))
        assert reached.exists(), f"{point} was never passed {nth} times"
        finished = {"prepare_block": nth - 1, "finish_block": nth}.get(point.partition(".")[0], 0)
        finished = filled.blocks if point.startswith(("publish_snapshot", "freeze_request")) else finished
        assert_nothing_finished_is_called_again(world, undisturbed, [(reached.stat().st_mtime, finished)])
        await assert_one_episode(world, run, filled)


@pytest.mark.timeout(1_200)
async def test_an_episode_whose_worker_dies_after_every_single_commit_comes_to_the_same_summary(
    filled: Filled, undisturbed: list[bytes], nursery: WorkerNursery, tmp_path: Path, full_matrix: bool
) -> None:
    """SPEC K7, R2: no worker lives longer than one commit, and no block is called twice."""
    if not full_matrix:
        pytest.skip("only with --full-matrix")
    async with filled.clone(tmp_path) as world, dying(world, nursery, tmp_path) as deaths:
        run = await world.over(await world.start(QUESTION, filled.session))
        finished = [path.stat().st_mtime for path in deaths if path.name.endswith("finish_block")]
        known = [(at, number) for number, at in enumerate(sorted(finished), start=1)]
        assert_nothing_finished_is_called_again(world, undisturbed, known)
        await assert_one_episode(world, run, filled)
    assert len(known) == filled.blocks
    assert len(deaths) >= 2 * filled.blocks + len(ONCE)


@asynccontextmanager
async def dying(world: RunWorld, nursery: WorkerNursery, folder: Path) -> AsyncIterator[list[Path]]:
    """Workers one after the other, each killed after its first commit of an episode; a file for each death.

    A commit that a later worker sends again, and finds made, kills nobody a second time.
    """
    deaths: list[Path] = []

    async def keep() -> None:
        for number in itertools.count():
            struck = [path.name.partition("-")[2] for path in deaths]
            commits = ["finish_block", *(one for one in ONCE if one not in struck)]
            commits += ["prepare_block"] if struck[-1:] != ["prepare_block"] else []
            reached = {commit: folder / f"{number}-{commit}" for commit in commits}
            faults = [Fault(f"{commit}.after_commit", str(path)) for commit, path in reached.items()]
            async with nursery.worker(place_of(world), *faults) as child:
                while child.lives:
                    await asyncio.sleep(0.01)
            deaths.extend(path for path in reached.values() if path.exists())

    keeping = asyncio.create_task(keep())
    try:
        yield deaths
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


def bodies(requests: list[RecordedRequest]) -> list[bytes]:
    """What was sent, request by request; one that was sent again, once."""
    return list(dict.fromkeys(request.body for request in requests))


def assert_nothing_finished_is_called_again(
    world: RunWorld, undisturbed: list[bytes], known: list[tuple[float, int]]
) -> None:
    """The bytes of an undisturbed episode in its order. `known`: at this time, so many blocks were finished.

    A call that was under way when its worker died, or when a busy machine took it for dead, is no finished one.
    """
    assert bodies(world.model.requests) == undisturbed
    sent = [(request.at, undisturbed.index(request.body)) for request in world.model.requests]
    assert [place for _, place in sent] == sorted(place for _, place in sent)
    again = [(at, place) for number, (at, place) in enumerate(sent) if place in {one for _, one in sent[:number]}]
    assert [place for at, place in again for when, finished in known if at > when and place < finished] == []


async def assert_one_episode(world: RunWorld, run: Json, filled: Filled) -> None:
    """The Run was answered in one loop, after one episode that summarised all and got under the target."""
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "Noted.", 1)
    (episode,) = await world.items(f"/runs/{run['run_id']}/compactions")
    assert (episode["outcome"], episode["blocks"], episode["cursor"]) == ("activated", filled.blocks, filled.blocks)
    assert (episode["reaches_target"], episode["tokens_before"] >= filled.tokens) == (True, True)
    sent = world.model.requests
    assert len({request.body for request in sent if is_block(request)}) == filled.blocks
    assert {"role": "user", "content": QUESTION} in sent[-1].json["messages"]
    assert world.model.refusals == []
    assert (await world.get(f"/sessions/{filled.session}/verify"))["breaks"] == []
