"""A change of records as a commit: once, whoever sends it, and never on top of another one (SPEC H4, H5, W5, K10)."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from context.errors import NotFoundError, RevisionConflictError
from context.messages import ChatMessage, message_bytes, message_from_bytes
from context.mutations import MutateRecords, Mutation
from context.steps import Content
from storage import reads
from storage.commits.mutate_records import mutate_records
from storage.store import Store
from tests.integration.commits.life import Life, counted, refused, sent_by_two, sent_twice
from tests.integration.storage.played import COUNTER
from tests.integration.storage.world import count, rows


@pytest.fixture
async def answered(store: Store, opened: Life) -> UUID:
    """The record of a result that a request carried."""
    await opened.prepare(store)
    await opened.accept(store, "one")
    await opened.begin(store, opened.tool())
    await opened.record(store)
    opened.batch_id, opened.loop = opened.operation_id, 2
    await opened.prepare(store)
    (row,) = await rows(store, "SELECT record_id FROM context_records WHERE kind = 'tool_result'")
    found: UUID = row["record_id"]
    return found


async def change(store: Store, life: Life, record_id: UUID, content: str = "rainy") -> MutateRecords:
    """A change of a record on top of what the context is now."""
    view = await reads.context_view(store, life.context_id, life.world.owner_id)
    before = next(one.message for one in view.items if one.record_id == record_id)
    message = counted(before.model_copy(update={"content": content}))
    mutation = Mutation(uuid4(), record_id, "test", message)
    return MutateRecords(life.context_id, view.revision, "test", COUNTER.estimator_id, (mutation,))


async def test_a_change_sent_twice_is_one(store: Store, opened: Life, answered: UUID) -> None:
    """SPEC W5, H4: one revision, one list, one mutation; what was recorded stays."""
    request = await change(store, opened, answered)
    mutated = await sent_twice(store, lambda writer: mutate_records(writer, request))
    assert mutated.revision == request.base_revision + 1
    assert await count(store, "context_mutations") == 1
    assert await count(store, "request_views", "cause = 'mutation'") == 1
    view = await reads.context_view(store, opened.context_id, opened.world.owner_id)
    before = await reads.context_view(store, opened.context_id, opened.world.owner_id, revision=request.base_revision)
    assert [one.message.content for one in view.items if one.record_id == answered] == ["rainy"]
    assert [one.message.content for one in before.items if one.record_id == answered] == ["sunny"]


async def test_a_change_sent_by_two_is_one(store: Store, rival: Store, opened: Life, answered: UUID) -> None:
    """SPEC W5."""
    request = await change(store, opened, answered)
    await sent_by_two(store, rival, lambda writer: mutate_records(writer, request))
    assert await count(store, "context_mutations") == 1


async def test_the_list_that_goes_on_shows_the_change_and_counts_it(store: Store, opened: Life, answered: UUID) -> None:
    """SPEC K10, H5: the frozen request keeps its list, the next one has the newest version and its size."""
    request = await change(store, opened, answered, "rainy all day")
    await mutate_records(store, request)
    (context,) = await rows(store, "SELECT view_id, view_length, view_tokens FROM role_contexts")
    items = await rows(store, f"SELECT * FROM view_items WHERE view_id = '{context['view_id']}' ORDER BY pos")
    assert context["view_length"] == len(items)
    assert context["view_tokens"] == sum(item["tokens"] for item in items)
    (shown,) = [item for item in items if item["source_id"] == answered]
    assert (shown["tokens"], shown["revision"]) == (request.mutations[0].message.tokens, request.base_revision + 1)
    async with store.reading() as connection:
        stored = await store.payloads.read_one(connection, shown["payload_id"])
    assert message_from_bytes(stored).content == "rainy all day"
    frozen = f"SELECT view_id FROM operations WHERE operation_id = '{opened.operation_id}'"
    assert (await rows(store, frozen))[0]["view_id"] != context["view_id"]


async def test_a_change_decided_on_an_older_version_is_void(store: Store, opened: Life, answered: UUID) -> None:
    """SPEC H5: the same record has changed since; a change of another one in between is no hindrance."""
    first, late = await change(store, opened, answered), await change(store, opened, answered, "foggy")
    await mutate_records(store, first)
    assert await refused(mutate_records(store, late)) is RevisionConflictError
    (said,) = await rows(store, "SELECT record_id FROM context_records WHERE kind = 'assistant'")
    of_other = replace(await change(store, opened, said["record_id"], "Let me see."), base_revision=0)
    assert (await mutate_records(store, of_other)).revision == first.base_revision + 2


async def test_what_a_context_does_not_have_can_not_change(store: Store, opened: Life, answered: UUID) -> None:
    """SPEC H10, H8: neither a record of nobody nor the user's own words."""
    request = await change(store, opened, answered)
    unknown = replace(request.mutations[0], mutation_id=uuid4(), record_id=uuid4())
    assert await refused(mutate_records(store, replace(request, mutations=(unknown,)))) is NotFoundError
    (said,) = await rows(store, "SELECT record_id FROM context_records WHERE kind = 'user_ref'")
    words = Content(message_bytes(ChatMessage(role="user", content="Something else")), 1)
    of_input = replace(unknown, record_id=said["record_id"], message=words)
    with pytest.raises(ValueError, match="can't be changed"):
        await mutate_records(store, replace(request, mutations=(of_input,)))
    assert await count(store, "context_mutations") == 0
