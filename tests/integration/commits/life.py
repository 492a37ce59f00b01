"""The commits of a Run's life as values that can be sent: once, twice, by two writers. And what a database holds."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import text

from context.errors import AgentLoomError
from context.ids import model_operation_id, tool_operation_id
from context.messages import ChatMessage, ToolCall, message_bytes
from context.operations import Answer, CallTools
from context.replies import ModelReply, Usage
from context.steps import (
    Acceptance,
    AcceptModel,
    BeginAttempt,
    Begun,
    Content,
    FinishRun,
    ModelVerdict,
    PlannedCall,
    PreparedRequest,
    PrepareRequest,
    RecordToolResult,
    RequestTerms,
    Settled,
    Stopping,
    ToolPlan,
)
from storage.commits.accept_model import accept_model
from storage.commits.begin_attempt import begin_attempt
from storage.commits.finish_run import finish_run
from storage.commits.prepare_request import prepare_request
from storage.commits.record_tool_result import record_tool_result
from storage.store import Store
from storage.tables import metadata
from tests.integration.storage.played import COUNTER, TERMS
from tests.integration.storage.world import World

T = TypeVar("T")
HASH = b"h" * 32
NOT_YET = UUID(int=0)


@dataclass
class Life:
    """One Run; `loop` is the one it is in, `context_id` is known once it is open.

    The first try at a model call begins with the freezing of its request; `begin` begins a further one, or a tool's.
    """

    world: World
    run_id: UUID
    context_id: UUID = NOT_YET
    loop: int = 1
    batch_id: UUID | None = None
    terms: RequestTerms = TERMS

    @property
    def operation_id(self) -> UUID:
        return model_operation_id(self.run_id, "root", self.loop)

    def tool(self, ordinal: int = 0) -> UUID:
        return tool_operation_id(self.operation_id, ordinal)

    async def prepare(self, store: Store, settled: RecordToolResult | None = None) -> PreparedRequest:
        place = {"context_id": self.context_id, "operation_id": self.operation_id, "batch_id": self.batch_id}
        request = PrepareRequest(release_id=self.world.release_id, execution_no=1, loop=self.loop, **place)
        return await prepare_request(store, request, self.terms, settled)

    async def go_on(self, store: Store) -> PreparedRequest:
        """Prepare the next loop, with the result of the only call of this one."""
        settled = self.result(0, attempt=None, says="sunny")
        self.batch_id, self.loop = self.operation_id, self.loop + 1
        return await self.prepare(store, settled)

    async def begin(self, store: Store, operation_id: UUID | None = None) -> Begun | Settled | Stopping:
        wire = HASH if operation_id is None else None
        return await begin_attempt(store, BeginAttempt(operation_id or self.operation_id, 1, wire))

    async def accept(self, store: Store, *names: str, attempt: int = 1) -> ModelVerdict:
        """Accept an answer that calls these tools, or an answer."""
        return (await self.accepted(store, *names, attempt=attempt)).verdict

    async def accepted(
        self,
        store: Store,
        *names: str,
        attempt: int = 1,
        usage: Usage | None = None,
        cost: Decimal | None = None,
        execution_no: int = 1,
    ) -> Acceptance:
        """The same, with what else is said of it."""
        calls = tuple(
            ToolCall(call_id=f"{self.operation_id}/{n}", name=name, arguments="{}") for n, name in enumerate(names)
        )
        message = ChatMessage(role="assistant", content=None if calls else "It is sunny.", tool_calls=calls)
        plans = [ToolPlan(ordinal=n, name=one.name, timeout_s=1, local=False) for n, one in enumerate(calls)]
        request = AcceptModel(
            context_id=self.context_id,
            operation_id=self.operation_id,
            execution_no=execution_no,
            attempt_no=attempt,
            request_hash=HASH,
            loop=self.loop,
            decision=CallTools() if calls else Answer(),
            reply=ModelReply(content="said", finish_reason="stop", usage=usage or Usage()),
            cost=cost,
            raw=Content(b"raw"),
            record=counted(message),
            estimator_id=COUNTER.estimator_id,
            calls=tuple(PlannedCall(call, "side_effect", plan) for call, plan in zip(calls, plans, strict=True)),
        )
        return await accept_model(store, request)

    async def record(self, store: Store, *, ordinal: int = 0, attempt: int = 1, says: str = "sunny") -> bool:
        return await record_tool_result(store, self.result(ordinal, attempt=attempt, says=says))

    def result(self, ordinal: int, *, attempt: int | None, says: str) -> RecordToolResult:
        message = ChatMessage(role="tool", content=says, tool_call_id=f"{self.operation_id}/{ordinal}")
        return RecordToolResult(
            operation_id=self.tool(ordinal),
            call_id=f"{self.operation_id}/{ordinal}",
            execution_no=1,
            attempt_no=attempt,
            state="accepted",
            status=None,
            raw=Content(says.encode()),
            message=counted(message),
            estimator_id=COUNTER.estimator_id,
        )

    async def finish(self, store: Store, status: Any = "succeeded", reason: str = "answered") -> Any:
        return await finish_run(store, FinishRun(run_id=self.run_id, execution_no=1, status=status, end_reason=reason))


def counted(message: ChatMessage) -> Content:
    """A message as it is stored."""
    return Content(message_bytes(message), COUNTER.count_message(message))


async def everything(store: Store) -> dict[str, list[str]]:
    """All rows of all tables, as text, in an order of their own."""
    found = {}
    async with store.reading() as connection:
        for table in metadata.sorted_tables:
            rows = await connection.execute(text(f'SELECT CAST(t AS text) FROM "{table.name}" t'))
            found[table.name] = sorted(row[0] for row in rows)
    return found


async def sent_twice(store: Store, commit: Callable[[Store], Awaitable[T]]) -> T:
    """Send the commit, and again: the second finds the outcome of the first and changes no row."""
    first = await commit(store)
    before = await everything(store)
    assert await commit(store) == first
    assert await everything(store) == before
    return first


async def sent_by_two(one: Store, other: Store, commit: Callable[[Store], Awaitable[T]]) -> T:
    """Both writers send the commit at once: both get the same outcome, and a third sending changes no row."""
    first, second = await asyncio.gather(commit(one), commit(other))
    assert first == second
    before = await everything(one)
    assert await commit(other) == first
    assert await everything(one) == before
    return first


async def refused(call: Awaitable[object]) -> type[AgentLoomError]:
    """The domain error that the call meets."""
    try:
        found = await call
    except AgentLoomError as error:
        return type(error)
    raise AssertionError(f"it was not refused but gave {found}")
