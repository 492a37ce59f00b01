"""Makes one attempt at a model call: sends a frozen body, reads the answer, returns it or fails by name (SPEC L1, L2).

It never retries, never follows a redirect, and decides nothing about the answer. Known credentials are replaced in
everything it returns (L6). How an answer is to be read is up to `reading`; what an error means, to `errors`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import httpx
from pydantic import SecretStr

from context.errors import ModelCallError
from context.messages import CREDENTIAL_REMOVED, SURROGATES_REPLACED
from context.replies import ModelReply, SoFar
from egress.credentials import Credentials
from egress.errors import (
    AddressRefusedError,
    AnswerEncodedError,
    AnswerTooLargeError,
    CertificateUntrustedError,
)
from providers import errors, redaction
from providers.evidence import Evidence
from providers.reading import AnswerReader

_LONGEST_ERROR_BODY = 256 << 10
_EVENT_STREAM = "text/event-stream"
_AFTER_SENDING = (httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError)
"""How the network fails once the whole request is out."""
_GRACE_AFTER_DONE_S = 0.25
"""After `[DONE]` the rest is waited for this long, so that the connection can be used again."""
_GRACE_AFTER_FINISH_S = 5.0
"""After the finish reason, usage and `[DONE]` are waited for this long since the last event; comments don't count."""
_LONGEST_EXPLANATION_S = 5.0
"""The body of an error answer is waited for this long; the status alone says enough."""


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """Where a call goes. `idle_timeout_s` is the longest silence of the provider; comments count as signs of life."""

    base_url: str
    api_key: SecretStr | None
    idle_timeout_s: float = 300
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each request; a secret among them belongs into `other_secrets` too."""
    other_secrets: tuple[SecretStr, ...] = ()
    """Further credentials to replace in what comes back."""


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A complete answer and what is kept of it. `raw` is the answer as received, with credentials replaced."""

    reply: ModelReply
    raw: bytes
    transforms: tuple[str, ...]
    """What was changed: credentials in both, or the text so that it encodes as UTF-8; `raw` has that as it came."""


def _by_nobody(so_far: SoFar) -> None:
    """Whoever reads an answer as a whole does not look on."""


class ChatClient:
    """Calls chat-completions servers through the guarded client it is given, which it does not close."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def complete(
        self,
        target: ModelTarget,
        body: bytes,
        *,
        on_first_output: Callable[[], Awaitable[None]],
        on_bytes: Callable[[], None],
        watch: Callable[[SoFar], None] = _by_nobody,
    ) -> CompletedCall:
        """One attempt with exactly these bytes.

        `on_first_output` runs once, beside the reading, when the first text, reasoning or call has come (SPEC S6); its
        error ends the call. `on_bytes` is called at each piece from the network, `watch` at the start with what tells
        how far the answer has come. Raises ModelCallError, and BrokenStreamError if output had come. Cancellation
        closes the connection.
        """
        attempt = _Attempt(on_bytes)
        watch(attempt.so_far)
        credentials = _credentials(target)
        async with Evidence(on_first_output) as evidence:
            try:
                async with self._opened(target, body) as response:
                    await attempt.read(response, evidence)
                reply = attempt.reply(evidence)
            except ModelCallError as failure:
                failure.__context__ = None  # what it was made from can hold pieces of the answer (SPEC Y6)
                await evidence.settled()
                raise attempt.failure(failure, credentials) from None
            await evidence.settled()
        return attempt.completed(reply, credentials)

    @asynccontextmanager
    async def _opened(self, target: ModelTarget, body: bytes) -> AsyncIterator[httpx.Response]:
        with _failures_named():
            response = await self._answered(target, body)
            try:
                if not response.is_success:
                    raise errors.classify(response.status_code, response.headers, await _beginning(response))
                yield response
            finally:
                await response.aclose()

    async def _answered(self, target: ModelTarget, body: bytes) -> httpx.Response:
        """The answer once its head is complete. A head that trickles has no more time than a silent one."""
        own = self._http.timeout
        timeout = httpx.Timeout(connect=own.connect, read=target.idle_timeout_s, write=own.write, pool=own.pool)
        address = target.base_url.rstrip("/") + "/chat/completions"
        headers = _headers(target)
        try:
            request = self._http.build_request("POST", address, content=body, headers=headers, timeout=timeout)
        except UnicodeError:  # a host that is no name in any alphabet
            raise errors.EndpointRefusedError from None
        phases = (timeout.connect, timeout.pool, timeout.write, timeout.read)
        try:
            async with asyncio.timeout(sum(phase or 0 for phase in phases)):
                return await self._http.send(request, stream=True, follow_redirects=False)
        except TimeoutError:
            raise errors.unreachable(was_sent=True) from None


class _Attempt:
    """What one attempt has received."""

    def __init__(self, on_bytes: Callable[[], None]) -> None:
        self._on_bytes = on_bytes
        self._reader = AnswerReader()
        self._pieces: list[bytes] = []

    @property
    def raw(self) -> bytes:
        return b"".join(self._pieces)

    def so_far(self) -> ModelReply | None:
        """What has come; a document only as a whole."""
        return self._reader.fragment()

    async def read(self, response: httpx.Response, evidence: Evidence) -> None:
        """Read until the server says that it is done, or to the end."""
        try:
            async with asyncio.timeout(None) as limit:
                await self._read(response.aiter_raw(), evidence, limit)
        except (httpx.TransportError, AnswerTooLargeError, TimeoutError):
            # What breaks after the finish reason takes nothing away from the answer.
            if not self._reader.is_complete:
                raise
        if not self._reader.has_begun and not response.headers.get("content-type", "").startswith(_EVENT_STREAM):
            raise errors.NoApiError(response.status_code, retryable=True)

    async def _read(self, pieces: AsyncIterator[bytes], evidence: Evidence, limit: asyncio.Timeout) -> None:
        """Once the answer could be the whole one, the server has some seconds for each event that follows."""
        events = 0
        async for piece in pieces:
            self._take(piece, evidence)
            if self._reader.is_done:
                await self._take_rest(pieces)
                return
            if self._reader.is_complete and self._reader.events > events:
                events = self._reader.events
                limit.reschedule(asyncio.get_running_loop().time() + _GRACE_AFTER_FINISH_S)

    def reply(self, evidence: Evidence) -> ModelReply:
        """The complete answer; raises a ModelCallError by name if it isn't one."""
        reply = self._reader.finish()
        if self._reader.has_output:
            evidence.begin()  # an answer in one body shows its first output only now
        return reply

    def completed(self, reply: ModelReply, credentials: Credentials) -> CompletedCall:
        """The answer as it is kept."""
        shown, kept = redaction.reply_without(credentials, reply), redaction.raw_without(credentials, self.raw, reply)
        changes = {
            SURROGATES_REPLACED: self._reader.is_normalised,
            CREDENTIAL_REMOVED: shown != reply or kept != self.raw,
        }
        transforms = tuple(name for name, happened in changes.items() if happened)
        return CompletedCall(shown, kept, transforms)

    def failure(self, cause: ModelCallError, credentials: Credentials) -> ModelCallError:
        """The error of this attempt: with a fragment, if output had come."""
        if not self._reader.has_output:
            cause.usage = self._reader.reported_usage
            return cause
        fragment = self._reader.fragment()
        return errors.BrokenStreamError(
            cause,
            fragment=redaction.reply_without(credentials, fragment) if fragment else None,
            raw=redaction.raw_without(credentials, self.raw, fragment),
        )

    def _take(self, piece: bytes, evidence: Evidence) -> None:
        self._on_bytes()
        self._pieces.append(piece)
        self._reader.feed(piece)
        if self._reader.has_output:
            evidence.begin()
        evidence.check()

    async def _take_rest(self, pieces: AsyncIterator[bytes]) -> None:
        try:
            async with asyncio.timeout(_GRACE_AFTER_DONE_S):
                async for piece in pieces:
                    self._pieces.append(piece)
        except TimeoutError:
            return  # the server keeps the connection open; it will not be used again


@contextmanager
def _failures_named() -> Iterator[None]:
    """Turns what the guard and the network raise into errors by name, without their texts (SPEC Y6)."""
    try:
        yield
    except AnswerEncodedError as refused:
        raise errors.encoded(refused.status) from None
    except AnswerTooLargeError:
        raise errors.AnswerRefusedError from None
    except (AddressRefusedError, httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise errors.EndpointRefusedError from None
    except CertificateUntrustedError:
        raise errors.EndpointUntrustedError from None
    except httpx.TransportError as broken:
        raise errors.unreachable(broken.__cause__, was_sent=isinstance(broken, _AFTER_SENDING)) from None


async def _beginning(response: httpx.Response) -> bytes:
    """The first part of an error's body, or what came of it; the connection is closed after it."""
    body = bytearray()
    try:
        async with asyncio.timeout(_LONGEST_EXPLANATION_S):
            async for piece in response.aiter_raw():
                body += piece
                if len(body) >= _LONGEST_ERROR_BODY:
                    break
    except (httpx.TransportError, AnswerTooLargeError, TimeoutError):
        pass  # the status has come, and decides
    return bytes(body[:_LONGEST_ERROR_BODY])


def _headers(target: ModelTarget) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": f"{_EVENT_STREAM}, application/json", **target.headers}
    if target.api_key is not None:
        headers["authorization"] = f"Bearer {target.api_key.get_secret_value()}"
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise errors.ConnectionUnusableError
    return headers


def _credentials(target: ModelTarget) -> Credentials:
    secrets = [target.api_key] if target.api_key is not None else []
    return Credentials(secret.get_secret_value() for secret in (*secrets, *target.other_secrets))
