"""A stored message in chat-completions form, as the API shows it (SPEC 16)."""

from typing import Any

from api.schemas import MessageEntry
from context.messages import ChatMessage
from storage.reads import MessageRow


def shown_message(row: MessageRow) -> MessageEntry:
    """One record of a session's message list."""
    return MessageEntry(
        seq=row.seq,
        run_id=row.run_id,
        instance=row.instance,
        kind=row.kind,
        record_id=row.record_id,
        context_seq=row.context_seq,
        message=chat_form(row.message),
        created_at=row.created_at,
    )


def chat_form(message: ChatMessage) -> dict[str, Any]:
    """`{role, content, …}` and the fields that the message has; `status` where it is no plain success."""
    fields = {
        "tool_calls": [_call(call.call_id, call.name, call.arguments) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "reasoning_content": message.reasoning_content,
        "status": message.status,
    }
    return {"role": message.role, "content": message.content} | {name: value for name, value in fields.items() if value}


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
