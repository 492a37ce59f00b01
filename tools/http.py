"""HTTP tools: the arguments as a JSON body by POST, the answer as the result (SPEC T1, T4, T7, Y4).

Goes through the guarded client it is given and follows no redirect. A 4xx is the tool's answer; what says nothing about
the call, such as a broken connection or a 503, is raised for the caller to decide.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from context.messages import UNDECODABLE_REPLACED, canonical_json
from context.policy import FrozenTool, ToolEntry
from egress.errors import AddressRefusedError, AnswerEncodedError, AnswerTooLargeError
from tools.errors import ToolTimeoutError, ToolUnavailableError
from tools.http_fields import check_http_fields
from tools.outcomes import artifact_note, encodable, error_outcome, exact_json, sniffed_media_type, without_credentials
from tools.port import Artifact, Delivery, ToolInvocation, ToolOutcome, single_effect, wants_key
from tools.schemas import checked_schema
from tools.secrets import ConnectionMissingError, ResolveSecret, secret_of

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""A longer answer is an error result, since it can't be kept whole."""

_IMPOSSIBLE = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, ValueError)
"""What httpx raises about a request that it can't put into bytes: before the first of them."""
_LONGEST_WAIT_S = 86_400.0
_BUSY = frozenset({408, 429})
_GATEWAY = frozenset({502, 503, 504})
_NO_CHARSETS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
"""Python's names for what no server writes text in; some take longer than linear time."""
_CONTROL = re.compile(r"[\x01-\x07\x0e-\x1a\x1c-\x1f]")
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")


class HttpTool:
    """One address that is called with POST."""

    def __init__(
        self,
        frozen: FrozenTool,
        entry: ToolEntry,
        *,
        client: httpx.AsyncClient,
        resolve_secret: ResolveSecret,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.frozen = frozen
        self._entry = entry
        self._client = client
        self._resolve_secret = resolve_secret
        self._max_answer_bytes = max_answer_bytes

    async def run(self, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
        try:
            with call.delivery.preparing():
                secret = await secret_of(self._entry, self._resolve_secret)
            async with _network_errors(call.delivery):
                outcome = await self._exchange(call, secret, on_progress)
        except ConnectionMissingError as error:
            return error_outcome("ConnectionMissing", error.message)
        except AddressRefusedError as error:
            return error_outcome("AddressRefused", error.message)
        except (AnswerTooLargeError, AnswerEncodedError) as error:
            return error_outcome("ResultTooLarge", error.message)
        return without_credentials(outcome, secret)

    async def _exchange(self, call: ToolInvocation, secret: str | None, on_progress: Callable[[], None]) -> ToolOutcome:
        with call.delivery.preparing() as delivery:
            response = await self._sent(call, secret, delivery)
        if isinstance(response, ToolOutcome):
            return response
        try:
            body = await self._body(response, on_progress)
        finally:
            await response.aclose()
        self._raise_unless_answered(response)
        if body is None:
            return error_outcome("ResultTooLarge", f"The answer has over {self._max_answer_bytes} bytes.")
        return _outcome(response, body, call)

    async def _sent(self, call: ToolInvocation, secret: str | None, delivery: Delivery) -> httpx.Response | ToolOutcome:
        try:
            request = self._request(call, secret)
            request.extensions["trace"] = _noting_the_first_byte(delivery)
            return await self._client.send(request, stream=True, follow_redirects=False)
        except _IMPOSSIBLE:
            words = "Its address, a header or its stored secret can't be sent by HTTP; nothing was sent."
        return error_outcome("ToolMisconfigured", words)

    def _request(self, call: ToolInvocation, secret: str | None) -> httpx.Request:
        headers = {**self._entry.headers, "Content-Type": "application/json"}
        if wants_key(self.frozen):
            headers["Idempotency-Key"] = call.idempotency_key
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        body, timeout = canonical_json(call.arguments), httpx.Timeout(self.frozen.timeout_s)
        return self._client.build_request("POST", self._entry.url or "", headers=headers, content=body, timeout=timeout)

    async def _body(self, response: httpx.Response, on_progress: Callable[[], None]) -> bytes | None:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            on_progress()
            body += chunk
            if len(body) > self._max_answer_bytes:
                return None
        return bytes(body)

    def _raise_unless_answered(self, response: httpx.Response) -> None:
        """A 5xx of the tool itself is an answer where the call must not be repeated: the model should see it."""
        status = response.status_code
        wait = retry_after_s(response.headers.get("Retry-After"))
        if status in _BUSY:
            raise ToolUnavailableError("busy", may_have_run=False, status=status, retry_after_s=wait)
        repeatable = self.frozen.effect != "side_effect" or self.frozen.retry_unknown
        if status in _GATEWAY or (status >= 500 and repeatable):
            raise ToolUnavailableError("server_error", may_have_run=True, status=status, retry_after_s=wait)


def freeze_http(entry: ToolEntry) -> FrozenTool:
    """The tool as frozen into a release; without a schema it takes any object. Raises ConfigurationInvalidError."""
    check_http_fields(entry)
    schema = entry.schema_ or {"type": "object", "properties": {}}
    return FrozenTool(
        name=entry.name,
        description=entry.description or "",
        parameters=checked_schema(schema, tool=entry.name),
        kind="http",
        entry_name=entry.name,
        effect=single_effect(entry),
        timeout_s=entry.timeout_s,
        retry_unknown=entry.retry_unknown,
    )


def _noting_the_first_byte(delivery: Delivery) -> Callable[[str, Any], Awaitable[None]]:
    """Listens to the steps of an exchange, which httpcore tells by name."""

    async def trace(event: str, details: Any) -> None:
        if event.endswith(".send_request_headers.started"):
            delivery.begins()

    return trace


@asynccontextmanager
async def _network_errors(delivery: Delivery) -> AsyncIterator[None]:
    """Turns the client's errors into ours; their words may hold an address or content and are dropped."""
    try:
        yield
    except httpx.HTTPError as error:
        late = isinstance(error, httpx.TimeoutException)
    else:
        return
    if not delivery.has_begun:
        raise ToolUnavailableError("unreachable", may_have_run=False)
    raise ToolTimeoutError if late else ToolUnavailableError("connection_lost", may_have_run=True)


def _outcome(response: httpx.Response, body: bytes, call: ToolInvocation) -> ToolOutcome:
    media_type = response.headers.get("Content-Type", "").split(";")[0].strip().lower()
    text, transforms, artifacts = _shown(response, body, media_type, call)
    raw_type = media_type or "application/octet-stream"
    if response.is_success:
        return ToolOutcome("ok", text, body, artifacts, transforms, raw_type)
    kind = "RedirectRefused" if response.has_redirect_location else "HttpError"
    error = error_outcome(kind, text.strip(), status=response.status_code)
    return ToolOutcome("error", error.content, body, artifacts, transforms, raw_type)


def _shown(
    response: httpx.Response, body: bytes, media_type: str, call: ToolInvocation
) -> tuple[str, tuple[str, ...], tuple[Artifact, ...]]:
    """The body as text, or as the reference of an artifact (SPEC T7)."""
    is_labelled_text = media_type.startswith(_TEXT_TYPES) or media_type.endswith(("+json", "+xml"))
    if is_labelled_text or not body or media_type in ("", "application/x-www-form-urlencoded"):
        text, marks = _decoded(body, response.charset_encoding)
        if not _is_binary(text, marks, is_labelled_text):
            return text, marks, ()
        media_type = sniffed_media_type(body)
    artifact = Artifact(media_type, body)
    return exact_json(artifact_note(call.operation_id, 1, artifact)).decode(), (), (artifact,)


def _is_binary(text: str, marks: tuple[str, ...], is_labelled_text: bool) -> bool:
    """A label makes no text: text has no NUL, and if some of it does not decode no control characters either."""
    return "\0" in text or (bool(marks) and (not is_labelled_text or _CONTROL.search(text) is not None))


def _decoded(body: bytes, charset: str | None) -> tuple[str, tuple[str, ...]]:
    for encoding in filter(None, (charset, "utf-8")):
        if encoding.lower().replace("_", "-") in _NO_CHARSETS:
            continue
        try:
            return encodable(body.decode(encoding))
        except (ValueError, LookupError):  # a UnicodeError, a name that is none
            continue
    return body.decode(errors="replace"), (UNDECODABLE_REPLACED,)


def retry_after_s(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, in either of its forms; None if it says nothing usable."""
    if not value:
        return None
    if re.fullmatch(r"\s*[0-9]+\s*", value):
        return min(float(value), _LONGEST_WAIT_S)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(0.0, (moment - datetime.now(UTC)).total_seconds()), _LONGEST_WAIT_S)
