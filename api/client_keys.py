"""The key under which a client may send a request again, wherever it stands (SPEC S5)."""

from typing import Annotated
from uuid import uuid4

from fastapi import Header, Request

from api.schemas import ClientKey
from context.errors import InputInvalidError

KeyHeader = Annotated[
    ClientKey | None, Header(alias="Idempotency-Key", description="The same as `client_key` in the body.")
]


def client_key(in_body: str | None, in_header: str | None) -> str | None:
    """The client's key. Raises InputInvalidError if the two places disagree."""
    if in_body and in_header and in_body != in_header:
        raise InputInvalidError("client_key and the Idempotency-Key header must be the same.")
    return in_body or in_header


def key_of_this_request(request: Request) -> str:
    """A key for a client that sent none: it lets this request be made again after a commit whose end was not seen."""
    if "own_key" not in request.state:
        request.state.own_key = f"request:{uuid4()}"
    return str(request.state.own_key)
