"""What is decided by what came first, while the database's clock goes back an hour between commits (SPEC S13)."""

import asyncio
from dataclasses import replace
from math import inf
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from context.episodes import IDLE, EpisodeRef
from context.ids import model_operation_id
from context.messages import message_from_bytes
from context.mutations import MutateRecords, Mutation
from context.steps import OpenRun, PrepareRequest, RequestTerms
from storage import reads
from storage.commits.mutate_records import mutate_records
from storage.commits.open_idle_episode import open_idle_episode
from storage.commits.open_run import open_run
from storage.commits.prepare_request import prepare_request
from storage.commits.resume_run import ResumeRun, resume_run
from storage.covering import covered_among
from storage.database import fetch_one, fetch_value
from storage.episodes import open_episode, sources
from storage.store import Store
from storage.weighing import LAST
from tests.integration.commits.episode import BLOCKS, EAGER, Episode, ask, episode_of_a_run, idle_episode
from tests.integration.commits.life import Life, counted
from tests.integration.storage.played import COUNTER, play
from tests.integration.storage.world import World, count, end_run, execute, rows, say, set_clock_back

WHOLE = replace(EAGER, whole_session=True)
"""The next Run would see each earlier one with its calls."""


async def published(store: Store, episode: Episode) -> str | None:
    """What becomes of the episode's summary."""
    await episode.up_to(store, BLOCKS)
    return (await episode.publish(store)).outcome


async def another(store: Store, world: World, terms: RequestTerms = EAGER) -> Episode:
    """A further idle Session's episode, open; a Run more has ended since the last one."""
    await play(store, world, f"And then? {uuid4()} {'word ' * 300}")
    asked = await ask(store, world)
    assert asked.episode_id is not None
    ref = EpisodeRef(episode_id=asked.episode_id, release_id=world.release_id, execution_no=IDLE)
    await open_idle_episode(store, ref, terms)
    return Episode(ref, world, asked.run_id)


async def first_list(store: Store, world: World) -> list[dict[str, Any]]:
    """What the next Run begins with."""
    run_id = (await say(store, world, "And now?")).run_id
    opened = await open_run(store, OpenRun(run_id=run_id, execution_no=1))
    place: dict[str, Any] = {"context_id": opened.context_id, "operation_id": model_operation_id(run_id, "root", 1)}
    request = PrepareRequest(release_id=world.release_id, execution_no=1, loop=1, batch_id=None, **place)
    await prepare_request(store, request, EAGER)
    items = "SELECT i.* FROM view_items i JOIN operations USING (view_id) WHERE operation_id = :id ORDER BY pos"
    return await rows(store, items, id=place["operation_id"])


async def change_an_answer(store: Store, world: World) -> None:
    """Another version of the first answer of the Session."""
    answers = "context_records c JOIN runs r ON r.answer_record_id = c.record_id"
    row = (await rows(store, f"SELECT context_id, record_id, payload_id FROM {answers} ORDER BY seq"))[0]
    view = await reads.context_view(store, row["context_id"], world.owner_id)
    async with store.reading() as connection:
        before = message_from_bytes(await store.payloads.read_one(connection, row["payload_id"]))
    message = counted(before.model_copy(update={"content": "Another version."}))
    mutation = Mutation(uuid4(), row["record_id"], "test", message)
    change = MutateRecords(row["context_id"], view.revision, "test", COUNTER.estimator_id, (mutation,))
    await mutate_records(store, change)


async def test_a_summary_stands_for_all_that_was_folded_into_it(store: Store, world: World) -> None:
    """SPEC K10, S13: the later one begins with the earlier, by whatever time that was; `verify` agrees."""
    first = await idle_episode(store, world)
    assert await published(store, first) == "activated"
    await set_clock_back(store)
    second = await another(store, world)
    assert await published(store, second) == "activated"
    (row,) = await rows(store, "SELECT snapshot_id, pieces FROM snapshots WHERE previous_id IS NOT NULL")
    pieces = [one["piece"] for one in await rows(store, "SELECT piece FROM snapshot_pieces")]
    async with store.reading() as connection:
        assert len(await covered_among(connection, row["snapshot_id"], pieces)) == row["pieces"]
    checked = await reads.verified(store, world.session_id, world.owner_id)
    assert [one for one in checked.breaks if one.kind == "coverage" and one.subject.startswith("snapshot/")] == []
    assert [item["source_id"] for item in await first_list(store, world) if item["kind"] == "summary"] == [
        row["snapshot_id"]
    ]


async def test_of_two_summaries_that_stand_for_as_much_the_later_is_taken(store: Store, world: World) -> None:
    """SPEC P7, S13."""
    episode = await idle_episode(store, world)
    assert await published(store, episode) == "activated"
    await set_clock_back(store)
    later = await copied(store)
    shown = [item["source_id"] for item in await first_list(store, world) if item["kind"] == "summary"]
    assert shown == [later]


async def copied(store: Store) -> UUID:
    """The only summary of a Session once more, with its episode and its pieces, published now."""
    ids = {"episode": uuid4(), "snapshot": uuid4()}
    copies = {
        "compaction_episodes": {"episode_id": "CAST(:episode AS uuid)"},
        "snapshots": {
            "snapshot_id": "CAST(:snapshot AS uuid)",
            "episode_id": "CAST(:episode AS uuid)",
            "generation": "generation + 1",
        },
        "snapshot_pieces": {"snapshot_id": "CAST(:snapshot AS uuid)"},
    }
    for table, changed in copies.items():
        query = "SELECT column_name FROM information_schema.columns WHERE table_name = :table"
        names = [row["column_name"] for row in await rows(store, query, table=table)]
        names = [name for name in names if name not in ("created_at", "made_no")]
        values = [changed.get(name, name) for name in names]
        insert = f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {table}"
        used = {name: one for name, one in ids.items() if f":{name} " in insert}
        await execute(store, insert, **used)
    return ids["snapshot"]


async def test_a_change_after_the_sources_were_frozen_is_noticed(store: Store, world: World) -> None:
    """SPEC K9, S13: whatever the time of the change says."""
    episode = await idle_episode(store, world)
    await set_clock_back(store)
    await change_an_answer(store, world)
    assert await published(store, episode) == "sources_changed"


async def test_what_was_frozen_is_read_as_it_was_then(store: Store, world: World) -> None:
    """SPEC K5, S13: what the list shows shorter is summarised whole, in the version of the frozen revision."""
    episode = await idle_episode(store, world)
    await execute(store, "UPDATE view_items SET transform = 'args_truncated' WHERE kind = 'assistant'")
    await set_clock_back(store)
    await change_an_answer(store, world)
    covered = (await open_episode(store, episode.ref.episode_id)).covered
    read = [one.message.content for one in await sources(store, episode.ref.episode_id, covered)]
    assert "Another version." not in read
    assert "It is sunny." in read


async def test_a_change_before_the_sources_were_frozen_is_none(store: Store, world: World) -> None:
    """SPEC K9, S13: it is what was summarised."""
    for _ in range(2):
        await play(store, world, f"What is the weather? {uuid4()} {'word ' * 300}")
    await change_an_answer(store, world)
    await set_clock_back(store)
    assert await published(store, await another(store, world)) == "activated"


async def test_a_resume_after_the_sources_were_frozen_is_noticed(store: Store, opened: Life) -> None:
    """SPEC K9, S13: the Run went on with its open call and has ended again; that call may have been made."""
    world = opened.world
    await opened.prepare(store)
    await opened.accept(store, "one")
    await end_run(store, opened.run_id)
    episode = await another(store, world, WHOLE)
    await set_clock_back(store)
    await resume_run(store, ResumeRun(opened.run_id, world.owner_id))
    await end_run(store, opened.run_id, execution_no=2)
    assert await published(store, episode) == "sources_changed"


async def test_a_resume_before_the_sources_were_frozen_is_none(store: Store, opened: Life) -> None:
    """SPEC K9, S13."""
    world = opened.world
    await opened.prepare(store)
    await opened.accept(store, "one")
    await end_run(store, opened.run_id)
    await resume_run(store, ResumeRun(opened.run_id, world.owner_id))
    await end_run(store, opened.run_id, execution_no=2)
    await set_clock_back(store)
    assert await published(store, await another(store, world, WHOLE)) == "activated"


async def test_compactions_are_listed_as_they_began(store: Store, world: World) -> None:
    """SPEC S13, 16: over pages; one that waited for its opening began with it."""
    episodes = [await idle_episode(store, world)]
    for _ in range(2):
        await episodes[-1].fail(store)
        await set_clock_back(store)
        asked = await ask(store, world)
        assert asked.episode_id is not None
        ref = EpisodeRef(episode_id=asked.episode_id, release_id=world.release_id, execution_no=IDLE)
        await open_idle_episode(store, ref, EAGER)
        episodes.append(Episode(ref, world, asked.run_id))
    listed, cursor = [], None
    for _ in episodes:
        page = await reads.compactions(store, episodes[0].run_id, world.owner_id, limit=1, cursor=cursor)
        listed += [one.episode_id for one in page.items]
        cursor = page.next
    assert (listed, cursor) == ([one.ref.episode_id for one in episodes], None)


@pytest.mark.parametrize("calls", [2, 5])
async def test_calls_of_one_answer_are_listed_in_their_order(store: Store, opened: Life, calls: int) -> None:
    """SPEC S13, 16: they become true at the same moment; a page may end between two of them."""
    await opened.prepare(store)
    await opened.accept(store, *(f"tool{n}" for n in range(calls)))
    found: list[UUID] = []
    cursor: str | None = None
    while not found or cursor:
        page = await reads.operations(store, opened.run_id, opened.world.owner_id, limit=1, cursor=cursor)
        found += [one.operation_id for one in page.items]
        cursor = page.next
    assert found == [opened.operation_id, *(opened.tool(n) for n in range(calls))]


async def last_of(store: Store, episode: Episode) -> Any:
    """What the next weighing in its context goes by."""
    context = "SELECT context_id FROM compaction_episodes WHERE episode_id = :id"
    (row,) = await rows(store, context, id=episode.ref.episode_id)
    async with store.reading() as connection:
        return await fetch_one(connection, LAST, context_id=row["context_id"])


async def test_the_last_compaction_of_a_run_is_the_one_that_began_last(store: Store, world: World) -> None:
    """SPEC K8, K14, S13: a failure before a success holds nothing back."""
    episode = await episode_of_a_run(store, world)
    await episode.fail(store)
    await set_clock_back(store)
    await episode_copied(store, "succeeded")
    last = await last_of(store, episode)
    assert (last["status"], last["failures"]) == ("succeeded", 0)
    await set_clock_back(store)
    await episode_copied(store, "failed")
    last = await last_of(store, episode)
    assert (last["status"], last["failures"]) == ("failed", 1)


async def episode_copied(store: Store, status: str) -> None:
    """One more episode of the Run, that ends now and so."""
    insert = """
        INSERT INTO compaction_episodes (episode_id, session_id, run_id, context_id, operation_id, source, causes,
          view_id, view_length, target, prompt_version, status, ended_at)
        SELECT gen_random_uuid(), session_id, run_id, context_id, operation_id, source, causes, view_id, view_length,
          target, prompt_version, :status, now() FROM compaction_episodes LIMIT 1
    """
    await execute(store, insert, status=status)


async def test_a_failure_by_a_clock_that_was_ahead_holds_nothing_back(store: Store, world: World) -> None:
    """SPEC K8, S13: how long ago it was, nobody knows; waiting ends."""
    episode = await episode_of_a_run(store, world)
    await episode.fail(store)
    assert 0 <= (await last_of(store, episode))["seconds_since"] < 60
    await set_clock_back(store)
    assert (await last_of(store, episode))["seconds_since"] == inf
    assert await count(store, "compaction_episodes", "status = 'failed'") == 1


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_number_is_given_under_the_sessions_lock(
    store: Store, rival: Store, opened: Life, at_once: bool
) -> None:
    """SPEC S13: who waits for a commit comes behind what that commit has numbered, with one statement or several."""
    await opened.prepare(store)
    await opened.accept(store, "forecast")
    async with rival.transaction("holder") as connection:
        await connection.execute(text("SELECT 1 FROM sessions FOR UPDATE"))
        waiting = asyncio.create_task(opened.go_on(store if at_once else rival))
        await until_somebody_waits(store)
        number = await fetch_value(connection, text("SELECT nextval('fact_order')"))
    await waiting
    [made] = await rows(store, "SELECT made_no FROM operations WHERE operation_id = :id", id=opened.operation_id)
    [of_list] = await rows(store, "SELECT max(made_no) AS made_no FROM context_revisions")
    assert min(made["made_no"], of_list["made_no"]) > number


async def until_somebody_waits(store: Store) -> None:
    """Until a statement of this database waits for a lock."""
    waits = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while not await rows(store, f"SELECT 1 FROM {waits}"):
            await asyncio.sleep(0.01)
