"""What every message formatter holds to, and that a release works with any that does (SPEC B8)."""

import hashlib
import json
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from context.formatting import MessageFormatter
from context.messages import ChatMessage
from providers.profiles import profile_for
from providers.release_model import FormatWith, ReleaseModel
from providers.wire_list import WireList
from tests.support.builders import asks, release

FIELDS = b'{"model":"m"}'
MESSAGES = (
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="user", content="What is it?"),
    asks("weather"),
    ChatMessage(role="tool", content="sunny", tool_call_id="c0"),
    ChatMessage(role="assistant", content="It is sunny."),
    ChatMessage(role="user", content="And now?"),
)


class PlainList:
    """The simplest formatter there could be."""

    def __init__(self, profile: object, merge_user_messages: bool | None) -> None:
        self.view_id = UUID(int=0)
        self._messages: list[ChatMessage] = []

    @property
    def length(self) -> int:
        return len(self._messages)

    def extend(self, messages: Sequence[ChatMessage]) -> None:
        self._messages += messages

    def body(self, fields: bytes) -> tuple[bytes, bytes]:
        shown = ",".join(json.dumps({"role": one.role, "content": one.content}) for one in self._messages)
        body = b'{"messages":[' + shown.encode() + b"]," + fields[1:]
        return body, hashlib.sha256(body).digest()


FORMATTERS: list[FormatWith] = [WireList, PlainList]


def filled(format_with: FormatWith, *pieces: Sequence[ChatMessage]) -> MessageFormatter:
    made = format_with(profile_for("openai_compatible"), None)
    for piece in pieces:
        made.extend(piece)
    return made


@pytest.mark.parametrize("format_with", FORMATTERS)
def test_the_bytes_do_not_depend_on_the_pieces_and_their_hash_is_told(format_with: FormatWith) -> None:
    """SPEC A9, B8."""
    whole = filled(format_with, MESSAGES)
    for at in range(1, len(MESSAGES)):
        parted = filled(format_with, MESSAGES[:at], MESSAGES[at:])
        assert parted.body(FIELDS) == whole.body(FIELDS)
        assert parted.length == whole.length == len(MESSAGES)
    body, digest = whole.body(FIELDS)
    assert hashlib.sha256(body).digest() == digest
    assert json.loads(body)["model"] == "m"


@pytest.mark.parametrize("format_with", FORMATTERS)
def test_a_longer_list_begins_with_the_bytes_of_a_shorter_one(format_with: FormatWith) -> None:
    """SPEC A7, B8."""
    shorter = filled(format_with, MESSAGES[:5]).body(FIELDS)[0]
    longer = filled(format_with, MESSAGES).body(FIELDS)[0]
    assert longer.startswith(shorter[: -len(b"]," + FIELDS[1:])])


def test_a_release_and_its_summariser_speak_in_the_form_they_are_given() -> None:
    """SPEC B8: the form is replaced in one place, for requests and summaries alike."""

    async def no_key(*given: object) -> None:
        return None

    unused: Callable[[str], object] = lambda provider: None  # noqa: E731
    wiring = {"chat_for": unused, "resolve_key": no_key, "demo_base_url": None}
    model = ReleaseModel(release(), format_with=PlainList, **wiring)  # type: ignore[arg-type]
    expected = json.loads(filled(PlainList, MESSAGES).body(FIELDS)[0])["messages"]
    assert json.loads(model.body(MESSAGES))["messages"] == expected
    assert json.loads(model.summary_body(MESSAGES, 100))["messages"] == expected
