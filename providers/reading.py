"""Reads the bytes of an answer as they come, whether the server streams events or sends one JSON body (SPEC L1)."""

from context.replies import ModelReply, Usage
from providers.assembler import ReplyAssembler
from providers.errors import IncompleteAnswerError, MalformedAnswerError, NoApiError
from providers.stream import ServerEvent, StreamDecoder, UndecodableStreamError

_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


class AnswerReader:
    """Feed it the bytes, then finish it. Every failure is a ModelCallError by name."""

    def __init__(self) -> None:
        self._assembler = ReplyAssembler()
        self._decoder = StreamDecoder()
        self._start = bytearray()
        self._is_document: bool | None = None
        self.events = 0
        """Events of a stream that said something."""

    @property
    def has_begun(self) -> bool:
        """Whether anything but blanks has come."""
        return self._is_document is not None

    @property
    def has_output(self) -> bool:
        """Whether text, reasoning or a call has come."""
        return self._assembler.has_output

    @property
    def is_done(self) -> bool:
        """Whether the server said that nothing follows."""
        return self._assembler.is_done

    @property
    def is_complete(self) -> bool:
        """Whether what has come may be taken as the whole answer."""
        return self._assembler.is_complete

    @property
    def reported_usage(self) -> Usage | None:
        """What the provider has reported so far; None if nothing."""
        return self._assembler.usage if self._assembler.usage != Usage() else None

    @property
    def is_normalised(self) -> bool:
        """Whether lone surrogates were replaced in the reply that was built."""
        return self._assembler.is_normalised

    def feed(self, piece: bytes) -> None:
        """Take the next bytes. Raises NoApiError at the start of a web page."""
        if self._is_document is None:
            self._take_start(piece)
        elif self._is_document:
            self._start += piece
        else:
            self._take_events(piece)

    def finish(self) -> ModelReply:
        """The reply, once the bytes have ended. Raises IncompleteAnswerError or MalformedAnswerError."""
        if self._is_document:
            self._take_document()
        elif self._is_document is False:
            self._take_last_events()
        return self._assembler.reply()

    def fragment(self) -> ModelReply | None:
        """What has come so far; None if nothing has."""
        return self._assembler.fragment()

    def _take_start(self, piece: bytes) -> None:
        self._start += piece
        if _text_in(self._start).startswith(b"<"):
            raise NoApiError(200)
        self._is_document = _looks_like_document(self._start)
        if self._is_document is False:
            self._take_events(bytes(self._start))
        if not self._is_document and len(self._start) > len(_BOM):
            self._start.clear()  # events taken, or blanks, which mean nothing before the first byte of an answer

    def _take_events(self, piece: bytes) -> None:
        try:
            events = self._decoder.feed(piece)
        except UndecodableStreamError:
            raise MalformedAnswerError from None
        for event in events:
            self._take_event(event)

    def _take_last_events(self) -> None:
        """An unfinished last line counts if it can be read; if not, the stream was cut there."""
        try:
            for event in self._decoder.close():
                self._take_event(event)
        except (UndecodableStreamError, MalformedAnswerError):
            if not self.is_complete:
                raise IncompleteAnswerError from None

    def _take_event(self, event: ServerEvent) -> None:
        self.events += bool(event.data.strip())
        self._assembler.take_event(event.data, is_error=event.type == "error")

    def _take_document(self) -> None:
        try:
            text = bytes(self._start).removeprefix(_BOM).decode()
        except UnicodeDecodeError:
            raise MalformedAnswerError from None
        self._assembler.take_body(text)


def _text_in(start: bytes | bytearray) -> bytes:
    return bytes(start).removeprefix(_BOM).lstrip(_BLANK)


def _looks_like_document(start: bytes | bytearray) -> bool | None:
    """True for JSON, False for events, None while there are only blanks."""
    text = _text_in(start)
    if not text or (len(start) < len(_BOM) and _BOM.startswith(bytes(start))):
        return None
    return text[:1] in (b"{", b"[")
