"""HTTP tools: the arguments as a JSON body by POST, the answer as the result (SPEC T1, T4, T7, Y4).

Goes through the guarded client it is given and follows no redirect. What says nothing about the call, such as a broken
connection, is raised for the caller to decide; what an answer says is read in `tools.http_answers`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from context.messages import canonical_json
from context.policy import FrozenTool, ToolEntry
from egress.errors import EgressError
from tools.errors import ToolTimeoutError, ToolUnavailableError
from tools.http_answers import HttpAnswer, http_outcome, raise_unless_answered, refused_outcome
from tools.http_fields import check_http_fields
from tools.outcomes import error_outcome, without_credentials
from tools.port import Delivery, ToolInvocation, ToolOutcome, single_effect, wants_key
from tools.schemas import checked_schema
from tools.secrets import ConnectionMissingError, ResolveSecret, secret_of

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""A longer answer is an error result, since it can't be kept whole."""

_IMPOSSIBLE = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, ValueError)
"""What httpx raises about a request that it can't put into bytes: before the first of them."""


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
        except EgressError as error:
            return refused_outcome(error)
        return outcome

    async def _exchange(self, call: ToolInvocation, secret: str | None, on_progress: Callable[[], None]) -> ToolOutcome:
        with call.delivery.preparing() as delivery:
            response = await self._sent(call, secret, delivery)
        if isinstance(response, ToolOutcome):
            return response
        try:
            body = await self._body(response, on_progress)
        finally:
            await response.aclose()
        answer = HttpAnswer(response.status_code, response.headers, response.charset_encoding, body or b"")
        too_large = error_outcome("ResultTooLarge", f"The answer has over {self._max_answer_bytes} bytes.")
        outcome = without_credentials(too_large if body is None else http_outcome(answer, call), secret)
        raise_unless_answered(self.frozen, answer, outcome)
        return outcome

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
