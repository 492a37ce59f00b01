"""Who is asking: `Authorization: Bearer <key>` to a principal, and how often that key may ask (SPEC Y1)."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.wiring import services_of
from context.errors import ForbiddenError, UnauthenticatedError
from storage.reads import Principal, find_key

BEARER = HTTPBearer(auto_error=False, scheme_name="api_key", description="An API key of AgentLoom, `al_…`.")
MAX_KEY = 200


async def authenticated(
    request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
) -> Principal:
    """The principal of the key. Raises UnauthenticatedError or RateLimitedError."""
    if sent is None or not 0 < len(sent.credentials) <= MAX_KEY:
        raise UnauthenticatedError
    services = services_of(request)
    principal = await find_key(services.store, sent.credentials)
    if principal is None:
        raise UnauthenticatedError
    services.limits.take(services.store.payloads.vault.keyed_hash(sent.credentials.encode()))
    return principal


async def known_caller(request: Request) -> Principal:
    """The principal of a request that is about to be refused for its form."""
    return await authenticated(request, await BEARER(request))


Caller = Annotated[Principal, Depends(authenticated)]


def asked_again(
    request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
) -> Callable[[], Awaitable[bool]]:
    """Whether the key of this request still is one: for an answer that goes on after it was checked."""

    async def is_valid() -> bool:
        return sent is not None and await find_key(services_of(request).store, sent.credentials) is not None

    return is_valid


StillValid = Annotated[Callable[[], Awaitable[bool]], Depends(asked_again)]


async def administrator(caller: Caller) -> Principal:
    """The principal, if it may manage users and keys. Raises ForbiddenError."""
    if caller.role != "admin":
        raise ForbiddenError
    return caller


Admin = Annotated[Principal, Depends(administrator)]
