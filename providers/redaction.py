"""Replaces known credentials in a model's answer, raw and read (SPEC L6, Y3)."""

from context.errors import ModelCallError
from context.messages import canonical_json
from context.replies import ModelReply, ReplyCall
from egress.credentials import Credentials
from providers.reading import AnswerReader

WITHHELD = "The raw answer is withheld: it held a credential in several pieces."

TEXTS = ("content", "reasoning_content", "provider_finish_reason", "provider_model", "provider_request_id")
"""What a reply says beside its calls; a credential can stand in any of it."""


def reply_without(credentials: Credentials, reply: ModelReply) -> ModelReply:
    """The reply with every known credential replaced; the same reply if there is none."""
    if not _holds(credentials, reply):
        return reply
    clean = credentials.removed_from
    texts = {name: clean(said) for name in TEXTS if (said := getattr(reply, name)) is not None}
    calls = tuple(
        ReplyCall(
            provider_id=clean(call.provider_id) if call.provider_id else call.provider_id,
            name=clean(call.name),
            arguments=clean(call.arguments),
        )
        for call in reply.calls
    )
    return reply.model_copy(update={**texts, "calls": calls})


def raw_without(credentials: Credentials, raw: bytes, reply: ModelReply | None) -> bytes:
    """The raw answer with every known credential replaced.

    A stream can carry a credential in pieces that no search of the bytes finds. Then the reading of it is kept instead.
    """
    clean = credentials.removed_from_bytes(raw)
    if reply is None or not _holds(credentials, reply) or not _read_again_holds(credentials, clean):
        return clean
    kept = reply_without(credentials, reply).model_dump(mode="json", exclude_none=True)
    return canonical_json({"agentloom": WITHHELD, "reply": kept})


def _read_again_holds(credentials: Credentials, raw: bytes) -> bool:
    reader = AnswerReader()
    try:
        reader.feed(raw)
        reader.finish()
    except ModelCallError:
        pass  # it broke off the first time, too; what was understood before is in the fragment
    fragment = reader.fragment()
    return fragment is not None and _holds(credentials, fragment)


def _holds(credentials: Credentials, reply: ModelReply) -> bool:
    texts = [getattr(reply, name) for name in TEXTS]
    for call in reply.calls:
        texts += [call.provider_id, call.name, call.arguments]
    return any(text is not None and credentials.occur_in(text) for text in texts)
