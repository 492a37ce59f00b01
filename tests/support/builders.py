"""Small valid values of the domain, for tests that care about one field of them."""

from typing import Any
from uuid import UUID, uuid5

from context.messages import ChatMessage, ToolCall
from context.policy import AgentDefinition, Release
from context.replies import ModelReply, ReplyCall

ROOT = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


def uid(*path: str | int) -> UUID:
    """An id that is the same in each test run."""
    return uuid5(ROOT, "/".join(str(part) for part in path))


def release(*, window: int = 32768, output_limit: int | None = None, **definition: Any) -> Release:
    """A release of a small agent; `definition` overrides its keys."""
    model = {"provider": "openai_compatible", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    parts = {"name": "scout", "instructions": "Be brief."} | definition
    parts["model"] = model | parts.get("model", {})
    return Release(
        definition=AgentDefinition.model_validate(parts),
        tools=(),
        context_window=window,
        window_source="manual",
        provider_output_limit=output_limit,
        estimator_id="utf8-bytes/openai/v1",
        base_url=model["base_url"],
    )


def asks(*names: str) -> ChatMessage:
    """An assistant message that calls these tools, with ids `c0`, `c1` …"""
    calls = tuple(ToolCall(call_id=f"c{n}", name=name, arguments="{}") for n, name in enumerate(names))
    return ChatMessage(role="assistant", tool_calls=calls)


def reply(content: str | None = None, *calls: ReplyCall, finish_reason: Any = "stop", **more: Any) -> ModelReply:
    """A complete answer of a model."""
    return ModelReply(content=content, calls=calls, finish_reason=finish_reason, **more)
