"""How every route is entered: query, headers and body read strictly, and a lost database waited for (SPEC R8, Y5).

A route without a body takes none, but for an object without fields, which many clients send with every POST.

A request that meets `UnavailableError` is made again until 15 seconds have passed since it first did. That is sound
because every commit can be sent twice: what identifies a repeat is fixed once per request, in `request.state`.
"""

import asyncio
import email.message
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from api.auth import known_caller
from api.bodies import strict_json
from api.parameters import check_headers, check_ids, check_query, path_ids, query_kinds
from api.wiring import services_of
from context.errors import InputInvalidError, RefusedError, UnavailableError

PATIENCE_S = 15.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

JSON_SPACE = b" \t\r\n"

T = TypeVar("T")


class StrictRequest(Request):
    """A request whose JSON has been parsed by our rules before the framework asks for it."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self._parsed: Any = None

    async def parse(self, *, takes_body: bool) -> None:
        """Parse the body, if there is one. Raises InputInvalidError, or 415 for another content type."""
        if body := await self.body():
            if not takes_body and body.translate(None, JSON_SPACE) != b"{}":
                raise InputInvalidError("This address takes no body; send the request without one.")
            if not _is_json(self.headers.get("content-type", "")) or "content-encoding" in self.headers:
                raise HTTPException(415)
            self._parsed = strict_json(body)

    async def json(self) -> Any:
        return self._parsed


class PatientRoute(APIRoute):
    """A route that parses strictly and waits for a database or Temporal that is away."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        known, ids = query_kinds(self.dependant), path_ids(self.dependant)

        async def patiently(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            patience_s = services_of(request).options.patience_s
            try:
                check_headers(request)
                check_ids(request, ids)
                check_query(request, known)
                await strict.parse(takes_body=self.body_field is not None)
            except (RefusedError, HTTPException, RequestValidationError):  # said to those who may ask at all
                await with_patience(lambda: known_caller(request), patience_s=patience_s)
                raise
            return await with_patience(lambda: answer(strict), patience_s=patience_s)

        return patiently


async def with_patience(call: Callable[[], Awaitable[T]], *, patience_s: float = PATIENCE_S) -> T:
    """The result of `call`, made again while it raises UnavailableError, for `patience_s` after the first time.

    Only tries are limited: a call that found the database back may wait for a Run as long as it likes.
    """
    try:
        return await call()
    except UnavailableError:
        return await _until_it_works(call, asyncio.get_running_loop().time() + patience_s)


async def _until_it_works(call: Callable[[], Awaitable[T]], deadline: float) -> T:
    pause = FIRST_PAUSE_S
    while True:
        await asyncio.sleep(pause)
        try:
            return await call()
        except UnavailableError:
            if asyncio.get_running_loop().time() + pause > deadline:
                raise
        pause = min(pause * 2, LONGEST_PAUSE_S)


def _is_json(content_type: str) -> bool:
    message = email.message.Message()
    message["content-type"] = content_type
    subtype, charset = message.get_content_subtype(), message.get_content_charset("utf-8")
    is_json = message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))
    return is_json and charset in ("utf-8", "utf8", "us-ascii")
