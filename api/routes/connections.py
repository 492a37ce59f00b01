"""Stored connections: a provider's address, key and known models. No answer ever holds a key (SPEC L6)."""

from typing import Annotated

from fastapi import Path, Response

from api.admin_schemas import ConnectionEntry, ConnectionList, ConnectionSettings, NewConnection
from api.auth import Admin, Caller
from api.openapi import refusals, router
from api.wiring import Wired
from context.written import NAME
from storage import reads
from storage.commits import delete_connection as deleting
from storage.commits import put_connection as putting

routes = router("connections")

ConnectionName = Annotated[str, Path(pattern=NAME)]


@routes.post("/connections", status_code=201, responses=refusals(403, body=True))
async def create_connection(wanted: NewConnection, caller: Admin, services: Wired) -> ConnectionEntry:
    """Store a connection, or replace the one of that name."""
    return await _put(wanted.name, wanted, caller, services)


@routes.put("/connections/{name}", responses=refusals(403, 404, body=True))
async def put_connection(
    name: ConnectionName, wanted: ConnectionSettings, caller: Admin, services: Wired
) -> ConnectionEntry:
    """Store or replace the connection of this name."""
    return await _put(name, wanted, caller, services)


@routes.get("/connections", responses=refusals())
async def list_connections(caller: Caller, services: Wired) -> ConnectionList:
    """The connections of the space, by name."""
    return ConnectionList.model_validate({"items": await reads.connections(services.store, caller.space_id)})


@routes.get("/connections/{name}", responses=refusals(404))
async def read_connection(name: ConnectionName, caller: Caller, services: Wired) -> ConnectionEntry:
    """One connection; `has_key` says whether a key is stored."""
    return ConnectionEntry.model_validate(await reads.connection(services.store, caller.space_id, name))


@routes.delete("/connections/{name}", status_code=204, responses=refusals(403, 404))
async def delete_connection(name: ConnectionName, caller: Admin, services: Wired) -> Response:
    """Forget a connection and its key; releases that name it can no longer call their model."""
    await deleting.delete_connection(services.store, deleting.DeleteConnection(caller.space_id, name))
    return Response(status_code=204)


async def _put(name: str, wanted: ConnectionSettings, caller: Admin, services: Wired) -> ConnectionEntry:
    models = None if wanted.models is None else tuple(one.model_dump() | {"source": "manual"} for one in wanted.models)
    request = putting.PutConnection(caller.space_id, name, wanted.provider, wanted.base_url, wanted.api_key, models)
    await putting.put_connection(services.store, request)
    return ConnectionEntry.model_validate(await reads.connection(services.store, caller.space_id, name))
