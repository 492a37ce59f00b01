"""Whole request bodies, made at once by the same functions that a worker makes them with piece by piece."""

from collections.abc import Mapping, Sequence
from typing import Any

from context.messages import ChatMessage
from context.policy import FrozenTool
from providers.profiles import Profile
from providers.wire import assemble, request_fields, unit_bytes, wire_units


def build_body(
    *,
    profile: Profile,
    model: str,
    messages: Sequence[ChatMessage],
    tools: Sequence[FrozenTool],
    max_output_tokens: int,
    parameters: Mapping[str, Any],
    merge_user_messages: bool | None = None,
) -> bytes:
    """The body of a request whose messages all go into wire form now."""
    units = wire_units(messages, profile=profile, merge_user_messages=merge_user_messages)
    fields = request_fields(
        profile=profile, model=model, tools=tools, max_output_tokens=max_output_tokens, parameters=parameters
    )
    return assemble((unit_bytes(unit, profile=profile) for unit in units), fields=fields)
