"""How a large result looks to the model: head, tail, what was left out, and where the whole of it is (SPEC T5).

Pure. The result itself is stored whole elsewhere; nothing here changes it.
"""

import json

from context.policy import FrozenTool


def never_offloaded(tool: FrozenTool) -> bool:
    """Whether the tool pages by itself, so that its result is always shown whole."""
    return tool.kind == "builtin" and (tool.name == "result_read" or tool.name.startswith("session_"))


def preview(content: str, *, max_result_chars: int, preview_chars: int, result_ref: str) -> str:
    """The content, or if it is longer than `max_result_chars` a line of JSON and its first and last `preview_chars`.

    Characters are Unicode code points. The same content and numbers always give the same text, so that a prefix
    once sent stays as it was (SPEC A7).
    """
    total = len(content)
    if total <= max_result_chars:
        return content
    edge = min(preview_chars, max_result_chars // 2)
    head, tail = (0, edge), (total - edge, total)
    notice = json.dumps(
        {
            "truncated": True,
            "result_ref": result_ref,
            "total_chars": total,
            "shown_ranges": [head, tail],
            "hint": "Only the ranges shown are below. Read any part with result_read(result_ref, offset, limit).",
        },
        ensure_ascii=False,
    )
    parts = (_part(content, *span) for span in (head, tail))
    return "\n".join((notice, *parts))


def _part(content: str, start: int, end: int) -> str:
    return f"--- characters {start} to {end} ---\n{content[start:end]}"
