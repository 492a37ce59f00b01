"""Plays a Run through its real commits, without Temporal and without a model: a tool call first, then an answer."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from context.budget import plan_budget
from context.compaction import compaction_terms
from context.ids import model_operation_id, tool_operation_id
from context.messages import ChatMessage, ToolCall, message_bytes
from context.operations import Answer, CallTools, Decision
from context.policy import ContextSettings, ResultSettings
from context.replies import ModelReply, Usage
from context.steps import (
    AcceptModel,
    BeginAttempt,
    Begun,
    Content,
    FinishRun,
    OpenRun,
    PlannedCall,
    PrepareRequest,
    RecordToolResult,
    RequestTerms,
    ToolPlan,
)
from context.summaries import frame_tokens
from storage.commits.accept_model import accept_model
from storage.commits.begin_attempt import begin_attempt
from storage.commits.finish_run import finish_run
from storage.commits.open_run import open_run
from storage.commits.prepare_request import prepare_request
from storage.commits.record_tool_result import record_tool_result
from storage.store import Store
from tests.integration.storage.world import World, release, say


class ByteCounter:
    """One token per byte of the stored message."""

    estimator_id = "test-bytes"
    exact = False
    request_overhead = 0

    def count_text(self, text: str) -> int:
        return len(text.encode())

    def count_message(self, message: ChatMessage) -> int:
        return len(message_bytes(message))

    def count_tools(self, tools_json: str) -> int:
        return len(tools_json)


COUNTER = ByteCounter()
TERMS = RequestTerms(
    budget=plan_budget(release()),
    counter=COUNTER,
    system=ChatMessage(role="system", content="Be brief."),
    tools_tokens=0,
    max_output_tokens=1_000,
    model="demo-1",
    recent_runs=2,
    compaction=compaction_terms(ContextSettings(), plan_budget(release()), output_reserve=4096, output_limit=None),
    results=ResultSettings(),
    frame=frame_tokens(COUNTER),
    cost_of_input=Decimal,  # a token costs one unit
)
USAGE = Usage(input_tokens=100, output_tokens=20, cached_tokens=40)


@dataclass(frozen=True)
class Played:
    """The ids of a played Run; `models` and `tools` are its Operations in order."""

    run_id: UUID
    models: tuple[UUID, ...]
    tools: tuple[UUID, ...]


async def play(store: Store, world: World, question: str = "What is the weather?", *, loops: int = 1) -> Played:
    """Ask, call a tool in each of `loops` loops, answer, end."""
    run_id = (await say(store, world, question)).run_id
    opened = await open_run(store, OpenRun(run_id=run_id, execution_no=1))
    models, tools, batch = [], [], None
    for loop in range(1, loops + 2):
        operation_id = model_operation_id(run_id, "root", loop)
        await _prepare(store, world, opened.context_id, operation_id, loop, batch)
        last = loop == loops + 1
        await _answer(store, opened.context_id, operation_id, loop, calls=not last)
        models.append(operation_id)
        if not last:
            batch = operation_id
            tools.append(await _run_tool(store, operation_id, loop))
    await finish_run(store, FinishRun(run_id=run_id, execution_no=1, status="succeeded", end_reason="answered"))
    return Played(run_id, tuple(models), tuple(tools))


async def _prepare(
    store: Store, world: World, context_id: UUID, operation_id: UUID, loop: int, batch: UUID | None
) -> None:
    place = {"context_id": context_id, "operation_id": operation_id, "loop": loop, "batch_id": batch}
    await prepare_request(store, PrepareRequest(release_id=world.release_id, execution_no=1, **place), TERMS)


async def _begin(store: Store, operation_id: UUID) -> int:
    begun = await begin_attempt(store, BeginAttempt(operation_id, 1))
    assert isinstance(begun, Begun)
    return begun.attempt_no


async def _answer(store: Store, context_id: UUID, operation_id: UUID, loop: int, *, calls: bool) -> None:
    call = ToolCall(call_id=f"call-{operation_id}", name="weather", arguments='{"place":"Paris"}')
    said = {"content": f"loop {loop}", "tool_calls": (call,)} if calls else {"content": "It is sunny."}
    record = _content(ChatMessage(role="assistant", **said))
    decision: Decision = CallTools() if calls else Answer()
    plan = ToolPlan(ordinal=0, name="weather", timeout_s=1, local=False)
    more: dict[str, Any] = {"calls": (PlannedCall(call, "read_only", plan),)} if calls else {}
    reply = ModelReply(content="said", finish_reason="stop", usage=USAGE)
    accepted = AcceptModel(
        context_id=context_id,
        operation_id=operation_id,
        execution_no=1,
        attempt_no=1,
        request_hash=b"h" * 32,
        loop=loop,
        decision=decision,
        reply=reply,
        raw=Content(f'{{"raw":"{operation_id}"}}'.encode()),
        record=record,
        estimator_id=COUNTER.estimator_id,
        cost=Decimal("0.25"),
        **more,
    )
    await accept_model(store, accepted)


async def _run_tool(store: Store, model: UUID, loop: int) -> UUID:
    operation_id = tool_operation_id(model, 0)
    attempt = await _begin(store, operation_id)
    message = ChatMessage(role="tool", content=f"sunny {loop}", tool_call_id=f"call-{model}", status="error")
    result = RecordToolResult(
        operation_id=operation_id,
        call_id=f"call-{model}",
        execution_no=1,
        attempt_no=attempt,
        state="accepted",
        status="error",
        raw=Content(f'"sunny {loop}"'.encode()),
        message=_content(message),
        estimator_id=COUNTER.estimator_id,
    )
    assert await record_tool_result(store, result)
    return operation_id


def _content(message: ChatMessage) -> Content:
    return Content(message_bytes(message), COUNTER.count_message(message))
