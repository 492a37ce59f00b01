"""What a test reads off the bytes that a model was sent, without asking the code that made them."""

import json
from dataclasses import dataclass
from itertools import pairwise

from tests.support.model_server import RecordedRequest


def messages_bytes(body: bytes) -> bytes:
    """The bytes of the message list in a request body, from behind its opening bracket to before its closing one."""
    return _value(body, b'"messages":')[1:-1]


def input_bytes(body: bytes) -> int:
    """Bytes of everything the model reads: the message list and the tool schemas."""
    return len(_value(body, b'"messages":')) + (len(_value(body, b'"tools":')) if b'"tools":[' in body else 0)


def _value(body: bytes, key: bytes) -> bytes:
    """The JSON value behind the first occurrence of a key, as it was written."""
    text = body.decode()
    start = text.index(key.decode()) + len(key)
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end].encode()


@dataclass(frozen=True)
class Prefixes:
    """How much of each request's messages the next request begins with, over requests that follow each other."""

    pairs: int
    whole: int
    """Pairs whose second request begins with all messages of the first."""
    bytes_before: int
    bytes_kept: int

    @property
    def share(self) -> float:
        """Kept bytes of all bytes."""
        return self.bytes_kept / self.bytes_before if self.bytes_before else 1.0


def prefixes(runs_of_requests: list[list[RecordedRequest]]) -> Prefixes:
    """Compare each request with the next one in its list."""
    sent = [[messages_bytes(one.body) for one in requests] for requests in runs_of_requests]
    found = [(len(one), common_prefix(one, two)) for requests in sent for one, two in pairwise(requests)]
    return Prefixes(
        pairs=len(found),
        whole=sum(size == kept for size, kept in found),
        bytes_before=sum(size for size, _ in found),
        bytes_kept=sum(kept for _, kept in found),
    )


def common_prefix(one: bytes, two: bytes) -> int:
    """Length of the bytes that both begin with."""
    if two.startswith(one):
        return len(one)
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == two[:middle] else (low, middle - 1)
    return low
