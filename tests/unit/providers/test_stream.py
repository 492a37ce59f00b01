"""The framing of server-sent events, byte by byte."""

import time

import pytest

from providers.stream import ServerEvent, StreamDecoder, UndecodableStreamError
from tests.support import stream_fuzz


def events_of(*pieces: bytes, close: bool = True) -> list[str]:
    decoder = StreamDecoder()
    found = [event for piece in pieces for event in decoder.feed(piece)]
    return [event.data for event in (found + (decoder.close() if close else []))]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_ends_a_line(end: bytes) -> None:
    """SPEC L1."""
    assert events_of(b"data: a", end, b"data: b", end, end, b"data: c", end, end) == ["a\nb", "c"]


def test_a_line_end_cut_between_cr_and_lf_is_one_line_end() -> None:
    """SPEC L1."""
    assert events_of(b"data: a\r", b"\n\r", b"\ndata: b\r\n\r", b"\n") == ["a", "b"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_no_cut_changes_what_is_read(size: int) -> None:
    """Case 033: also inside a character."""
    body = "\ufeffdata: 好🙂\r\n\r\n: comment\n\ndata:x\n\n".encode()
    assert events_of(*(body[i : i + size] for i in range(0, len(body), size))) == ["好🙂", "x"]


def test_comments_and_blank_lines_make_no_event() -> None:
    """Case 029."""
    assert events_of(b"\n\n: keep-alive\n\n:\n", b"id: 7\n\n", b"event: ping\n\n") == []


def test_an_event_with_empty_data_is_an_event_without_content() -> None:
    """Case 029: `data:` alone."""
    decoder = StreamDecoder()
    assert decoder.feed(b"event: ping\ndata:\n\n") == [ServerEvent("ping", "")]


def test_only_one_space_after_the_colon_belongs_to_the_framing() -> None:
    """SPEC L1."""
    assert events_of(b"data:  a\n\ndata:b\n\ndata\n\n") == [" a", "b", ""]


def test_the_end_of_the_bytes_ends_the_last_event() -> None:
    """SPEC L1: servers forget the last blank line, and the last line's end."""
    assert events_of(b"data: a\n") == ["a"]
    assert events_of(b"data: a") == ["a"]
    assert events_of(b"data: a\n", close=False) == []


def test_a_byte_order_mark_is_dropped_at_the_start_only() -> None:
    """SPEC L1."""
    assert events_of(b"\xef", b"\xbb", b"\xbfdata: a\n\ndata: \xef\xbb\xbf\n\n") == ["a", "\ufeff"]
    assert events_of(b"\xef\xbb\xbfdata: a") == ["a"]


def test_data_that_is_no_utf8_is_refused_by_name() -> None:
    """Case 033: never a replacement character in an answer."""
    with pytest.raises(UndecodableStreamError):
        events_of(b"data: \xff\n\n")


def test_comments_may_hold_any_bytes() -> None:
    """SPEC L1."""
    assert events_of(b": \xff\xfe\n\ndata: a\n\n") == ["a"]


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    """SPEC L1: a tool call of megabytes is one line."""
    piece = b"x" * 16
    decoder = StreamDecoder()
    decoder.feed(b"data: ")
    started = time.perf_counter()
    for _ in range(100_000):
        decoder.feed(piece)
    (event,) = decoder.feed(b"\n\n")
    assert len(event.data) == 1_600_000
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("block", range(8))
def test_what_is_read_is_what_was_sent_or_a_named_failure(block: int) -> None:
    """SPEC L1: interleaved and id-less calls, noise, cuts at every byte, errors in the stream; never a difference."""
    for seed in range(block * 300, block * 300 + 300):
        difference = stream_fuzz.check(stream_fuzz.make(seed))
        assert difference is None, f"seed {seed}: {difference}"


def test_the_fuzz_notices_a_difference() -> None:
    """The check itself: a stream that says something else than was meant is found."""
    seeds = (stream_fuzz.make(seed) for seed in range(1_000))
    sent = next(sent for sent in seeds if sent.fault is None and b'"content": "' in b"".join(sent.pieces))
    changed = b"".join(sent.pieces).replace(b'"content": "', b'"content": "!', 1)
    assert stream_fuzz.check(stream_fuzz.Sent(sent.meant, (changed,), None)) is not None
