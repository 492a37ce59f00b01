"""Whatever is changed in what a summary tells of itself is found out, column by column (SPEC K10, M7)."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import pytest

from storage import reads
from storage.snapshot_tables import snapshot_pieces, snapshots
from tests.support.compactions import SMALL, repeated, scripted
from tests.support.replies import Reply
from tests.support.run_world import RunWorld

NO_EVIDENCE = {"created_at"}
SOME_ID, SOME_DIGEST = "gen_random_uuid()", "sha256('other')"
SNAPSHOT = {
    "snapshot_id": SOME_ID,
    "episode_id": SOME_ID,
    "session_id": SOME_ID,
    "context_id": SOME_ID,
    "generation": "generation + 40",
    "previous_id": "snapshot_id",
    "text_id": "message_id",
    "message_id": "text_id",
    "tokens": "tokens + 1",
    "ranges": "'[]'",
    "revisions": "(SELECT jsonb_object_agg(key, CAST(value AS integer) + 1) FROM jsonb_each_text(revisions))",
    "runs": "runs || 99",
    "pieces": "pieces + 1",
    "activated": "NOT activated",
    "outdated_at": "now()",
    "made_no": "-made_no",
}
SHAPES = {
    "ranges": ("'7'", '\'[{"context_id": "?"}]\''),
    "revisions": ("'{}'", "'[]'"),
    "previous_id": ("NULL",),
    "piece": ("split_part(piece, '/', 1) || '/no-id'",),
}
"""Further ways to change a column."""
PIECE = {
    "snapshot_id": SOME_ID,
    "piece": "split_part(piece, '/', 1) || '/' || gen_random_uuid()",
    "ordinal": "ordinal + 500",
    "digest": SOME_DIGEST,
    "run_no": "run_no + 1",
    "context_id": SOME_ID,
    "context_seq": "coalesce(context_seq, 0) + 1",
}
EPISODE = {
    "covered": "trim_array(covered, 1)",
    "folds": "NULL",
    "context_revision": "context_revision + 1",
    "summary_id": "plan_id",
    "source": "'overflow'",
    "causes": "'{manual}'",
    "estimated": "estimated + 1",
    "material": "material + 1",
    "target": "jsonb_set(target, '{summary}', '1')",
    "blocks": "blocks + 1",
    "cursor": "cursor - 1",
    "truncated": "NOT truncated",
    "status": "'cancelled'",
    "outcome": "'not_smaller'",
    "tokens_after": "tokens_after + 1",
    "reaches_target": "NOT reaches_target",
    "under_trigger": "NOT under_trigger",
}
ALSO_OF_EPISODES = (
    "target = jsonb_set(target, '{fixed}', '1')",
    "target = jsonb_set(target, '{room}', '1')",
    "plan_id = summary_id",
    "plan_id = (SELECT o.plan_id FROM compaction_episodes o WHERE o.plan_id <> x.plan_id LIMIT 1)",
    "plan_id = NULL",
)
"""Further ways to change an episode."""
REACHED = (
    *(f"sessions SET {column} = {column} {by}" for column in ("base_run_no", "base_seq") for by in ("- 1", "+ 1")),
    "role_contexts SET active_snapshot_id = NULL WHERE active_snapshot_id IS NOT NULL",
    "role_contexts SET active_snapshot_id = '$snapshot' WHERE active_snapshot_id IS NULL",
    "role_contexts SET material_mark = material_mark - 1 WHERE active_snapshot_id IS NOT NULL",
    "role_contexts SET material_mark = 1 WHERE active_snapshot_id IS NULL",
)
"""How far compaction has come, changed: from where triggers count, what is shown, what counts as new."""
KEPT = ("snapshots", "snapshot_pieces", "compaction_episodes", "sessions", "role_contexts")


def changes() -> Iterator[str]:
    """SQL that changes one column; `$snapshot` is a summary that another one was folded into."""
    for column, value in SNAPSHOT.items():
        for one in (value, *SHAPES.get(column, ())):
            yield f"UPDATE snapshots SET {column} = {one} WHERE snapshot_id = '$snapshot'"
    for kind in ("record", "input", "end"):
        at = f"(SELECT ctid FROM snapshot_pieces WHERE piece LIKE '{kind}/%' ORDER BY snapshot_id, ordinal LIMIT 1)"
        yield f"DELETE FROM snapshot_pieces WHERE ctid = {at}"
        for column, value in PIECE.items():
            for one in (value, *SHAPES.get(column, ())):
                yield f"UPDATE snapshot_pieces SET {column} = {one} WHERE ctid = {at}"
    at = "(SELECT episode_id FROM snapshots WHERE snapshot_id = '$snapshot')"
    for column, value in EPISODE.items():
        yield f"UPDATE compaction_episodes SET {column} = {value} WHERE episode_id = {at}"
    for change in ALSO_OF_EPISODES:
        yield f"UPDATE compaction_episodes x SET {change} WHERE episode_id = {at}"


@dataclass(frozen=True)
class Scene:
    """A session of two Runs; the second has compacted twice, what is left of the first among it."""

    world: RunWorld
    admin: asyncpg.Connection
    session_id: UUID
    owner_id: UUID
    snapshot_id: UUID

    async def breaks(self) -> set[str]:
        checked = await reads.verified(self.world.store, self.session_id, self.owner_id)
        return {one.kind for one in checked.breaks}

    @asynccontextmanager
    async def changed(self, sql: str) -> AsyncIterator[None]:
        """The session with this change in it, which no foreign key has stopped; as it was afterwards."""
        async with self.admin.transaction():
            await self.admin.execute("SET LOCAL session_replication_role = replica")
            told = await self.admin.execute(sql.replace("$snapshot", str(self.snapshot_id)))
            assert told.endswith(" 1"), "the change met no row"
        try:
            yield
        finally:
            async with self.admin.transaction():
                await self.admin.execute("SET LOCAL session_replication_role = replica")
                for table in KEPT:
                    await self.admin.execute(f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}")


@pytest.fixture
async def scene(world: RunWorld) -> AsyncIterator[Scene]:
    await world.publish(tools=["repeat"], **SMALL)
    answers: list[Reply | str] = [repeated(500), "first answer", *[repeated(1_200)] * 9, "second answer"]
    world.model.add(*[scripted(answers)] * 40)
    session = await world.open_session()
    for question in ("The first question.", "The second question."):
        assert (await world.ask(question, session))["status"] == "succeeded"
    admin = await asyncpg.connect(world.servers.database_url)
    for table in KEPT:
        await admin.execute(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")
    folded = await admin.fetchval("SELECT snapshot_id FROM snapshots WHERE previous_id IS NOT NULL LIMIT 1")
    owner = await admin.fetchval("SELECT owner_id FROM sessions")
    try:
        yield Scene(world, admin, UUID(session), owner, folded)
    finally:
        await admin.close()


async def test_a_change_of_any_column_that_tells_what_a_summary_covers_is_named(
    scene: Scene, subtests: pytest.Subtests
) -> None:
    """SPEC K10, M7: each column of a snapshot and of its pieces, whatever kind of piece, and what it was made of."""
    assert await scene.breaks() == set()
    for sql in changes():
        with subtests.test(sql):
            async with scene.changed(sql):
                assert "coverage" in await scene.breaks()
    assert await scene.breaks() == set()


async def test_a_change_of_how_far_compaction_has_come_is_named(scene: Scene, subtests: pytest.Subtests) -> None:
    """SPEC B2, K9, K14, M7: it decides when the next compaction begins, and is derived from what was published."""
    assert await scene.breaks() == set()
    for change in REACHED:
        with subtests.test(change):
            async with scene.changed(f"UPDATE {change}"):
                assert await scene.breaks() & {"coverage", "view"}


def test_no_column_of_a_summary_is_left_out() -> None:
    """SPEC M7: a new column is evidence, and changed by the test above, or named as none."""
    assert set(SNAPSHOT) == {column.name for column in snapshots.columns} - NO_EVIDENCE
    assert set(PIECE) == {column.name for column in snapshot_pieces.columns}
