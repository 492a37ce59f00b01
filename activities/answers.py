"""From a model's answer to what will be stored of it: message, decision, planned calls, token counts."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from activities.releases import Kit
from context.ids import tool_operation_id
from context.messages import ChatMessage, ToolCall, message_bytes
from context.operations import (
    CUT_CALL,
    EMPTY_ANSWER,
    UNREADABLE_CALL,
    CallTools,
    CutInsideCall,
    Decision,
    EmptyAnswer,
    UnreadableCall,
    assistant_message,
    decide,
    not_executed,
)
from context.policy import Effect
from context.steps import AcceptModel, Content, ModelAnswered, PlannedCall, ToolCallFacts, ToolPlan
from context.tokens import TokenCounter
from context.tool_answers import ToolAccepted

if TYPE_CHECKING:
    from storage.requests import FrozenRequest

LARGE = 20_000  # characters from which counting leaves the event loop, whose heartbeats must go on


@dataclass(frozen=True)
class Tried:
    """Which try brought the answer, and the SHA-256 of the body it was made with."""

    execution_no: int
    attempt_no: int
    request_hash: bytes


async def accepted_answer(
    kit: Kit, request: "FrozenRequest", answer: ModelAnswered, tried: Tried, *, taken: frozenset[str]
) -> AcceptModel:
    """Everything that `accept_model` stores. `taken` are provider ids that the Session has seen before."""
    counter, limits = kit.model.counter, kit.release.definition.limits
    decision = decide(answer.reply)
    message = assistant_message(answer.reply, request.operation_id, taken)
    calls: list[PlannedCall] = []
    if isinstance(decision, CallTools | CutInsideCall | UnreadableCall):
        calls = [await _planned(kit, request, at, call, decision) for at, call in enumerate(message.tool_calls)]
    feedback = _feedback(decision, has_calls=bool(calls))
    return AcceptModel(
        context_id=request.context_id,
        operation_id=request.operation_id,
        execution_no=tried.execution_no,
        attempt_no=tried.attempt_no,
        request_hash=tried.request_hash,
        loop=request.loop_no,
        decision=decision,
        reply=answer.reply,
        raw=Content(answer.raw),
        record=await counted(counter, message),
        estimator_id=counter.estimator_id,
        calls=tuple(calls),
        feedback=await counted(counter, feedback) if feedback else None,
        cost=answer.cost,
        max_total_tokens=limits.max_total_tokens,
        max_cost=limits.max_cost,
        transforms=answer.transforms,
    )


def open_calls(request: "FrozenRequest", accepted: AcceptModel) -> tuple[ToolCallFacts, ...]:
    """The calls of a stored answer that are still to be made."""
    return tuple(
        ToolCallFacts(
            operation_id=tool_operation_id(request.operation_id, ordinal),
            session_id=request.session_id,
            run_id=request.run_id,
            release_id=request.release_id,
            name=planned.call.name,
            call_id=planned.call.call_id,
            arguments=planned.call.arguments,
        )
        for ordinal, planned in enumerate(accepted.calls)
        if planned.plan is not None
    )


def _feedback(decision: Decision, *, has_calls: bool) -> ChatMessage | None:
    """What the model is told where no result of a call tells it."""
    match decision:
        case EmptyAnswer():
            return ChatMessage(role="user", content=EMPTY_ANSWER)
        case UnreadableCall() if not has_calls:
            return ChatMessage(role="user", content=UNREADABLE_CALL)
    return None


async def _planned(kit: Kit, request: "FrozenRequest", ordinal: int, call: ToolCall, decision: Decision) -> PlannedCall:
    if not isinstance(decision, CallTools):
        known = kit.tools.known(call.name)
        words = CUT_CALL if isinstance(decision, CutInsideCall) else UNREADABLE_CALL
        refusal = not_executed(call, words, "not_executed")
        return await _refused(kit, call, known.effect if known else "side_effect", refusal)
    if ordinal:
        await asyncio.sleep(0)  # many short checks are a long one
    verdict = await kit.tools.check(call.name, call.arguments)
    if not isinstance(verdict, ToolAccepted):
        refusal = ChatMessage(
            role="tool", content=verdict.content, tool_call_id=call.call_id, name=call.name, status="error"
        )
        return await _refused(kit, call, "read_only", refusal)
    plan = ToolPlan(
        ordinal=ordinal,
        name=call.name,
        timeout_s=verdict.timeout_s,
        **({"local": True} if verdict.local else {}),
        **({} if verdict.effect == "side_effect" else {"durable": False}),
    )
    return PlannedCall(call, verdict.effect, plan)


async def _refused(kit: Kit, call: ToolCall, effect: Effect, refusal: ChatMessage) -> PlannedCall:
    return PlannedCall(call, effect, None, await counted(kit.model.counter, refusal), refusal.status)


async def counted(counter: TokenCounter, message: ChatMessage) -> Content:
    """A message as it is stored, with its tokens."""
    body = message_bytes(message)
    if len(body) < LARGE:
        return Content(body, counter.count_message(message))
    return Content(body, await asyncio.to_thread(counter.count_message, message))
