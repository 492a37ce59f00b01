"""Users and API keys of a space (for administrators), and what the space has used."""

import secrets
from uuid import UUID

from fastapi import Request, Response

from api.admin_schemas import CreatedKey, CreateKey, CreateUser, KeyList, UserEntry, UserList
from api.auth import Admin, Caller
from api.openapi import refusals, router
from api.paging import Cursor, Limit
from api.schemas import UsageReport
from api.wiring import Services, Wired
from storage import reads
from storage.commits import create_key as keying
from storage.commits import create_space_user as adding
from storage.commits import revoke_key as revoking
from storage.reads.people import user as user_by_name

routes = router("people")


@routes.post("/users", status_code=201, responses=refusals(403, body=True))
async def create_user(wanted: CreateUser, caller: Admin, services: Wired) -> UserEntry:
    """Add a user to the space. One of that name that is there already stays as it is."""
    request = adding.CreateSpaceUser(wanted.name, wanted.role, caller.space_id)
    await adding.create_space_user(services.store, request)
    return UserEntry.model_validate(await user_by_name(services.store, caller.space_id, wanted.name))


@routes.get("/users", responses=refusals(403))
async def list_users(caller: Admin, services: Wired, limit: Limit = 50, cursor: Cursor = None) -> UserList:
    """Users of the space, by name."""
    return UserList.model_validate(await reads.users(services.store, caller.space_id, limit=limit, cursor=cursor))


@routes.post("/keys", status_code=201, responses=refusals(403, 404, body=True))
async def create_key(wanted: CreateKey, caller: Admin, services: Wired, request: Request) -> CreatedKey:
    """Make an API key. This answer is the only place that ever shows it."""
    user_id = await _user_id(services, caller, wanted.user)
    made = await keying.create_key(services.store, keying.CreateKey(user_id, _key_of_this_request(request)))
    return CreatedKey(key_id=made.key_id, user_id=user_id, api_key=made.key)


@routes.get("/keys", responses=refusals(403))
async def list_keys(caller: Admin, services: Wired, limit: Limit = 50, cursor: Cursor = None) -> KeyList:
    """Keys of the space, revoked ones too; each with its first characters only."""
    return KeyList.model_validate(await reads.keys(services.store, caller.space_id, limit=limit, cursor=cursor))


@routes.delete("/keys/{key_id}", status_code=204, responses=refusals(403, 404))
async def revoke_key(key_id: UUID, caller: Admin, services: Wired) -> Response:
    """Revoke a key: it stops working at once."""
    await revoking.revoke_key(services.store, revoking.RevokeKey(key_id, caller.space_id))
    return Response(status_code=204)


@routes.get("/usage", responses=refusals(404))
async def read_usage(caller: Caller, services: Wired, session: UUID | None = None) -> UsageReport:
    """Tokens and cost of all your Runs and sessions, or of one session."""
    store, owner_id = services.store, caller.user_id
    used = reads.session_usage(store, session, owner_id) if session else reads.usage(store, owner_id)
    return UsageReport.model_validate(await used)


async def _user_id(services: Services, caller: Admin, name: str | None) -> UUID:
    if name is None:
        return caller.user_id
    return (await user_by_name(services.store, caller.space_id, name)).user_id


def _key_of_this_request(request: Request) -> str:
    """The new key, the same if this request has to be made again after a lost commit."""
    if "new_key" not in request.state:
        request.state.new_key = "al_" + secrets.token_urlsafe(32)
    return str(request.state.new_key)
