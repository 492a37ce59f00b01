"""Agents and their releases: publish, list, read."""

from typing import Annotated
from uuid import UUID

from fastapi import Path, Query

from api.auth import Caller
from api.openapi import refusals, router
from api.paging import Cursor, Limit
from api.publishing import check_may_publish, resolve
from api.schemas import AgentEntry, AgentList, PublishAgent, PublishedRelease, ReleaseEntry, ReleaseList
from api.wiring import Wired
from context.written import NAME
from storage import reads
from storage.commits import publish_release as publishing

routes = router("agents")

AgentName = Annotated[str, Path(pattern=NAME)]
FewReleases = Annotated[int, Query(ge=1, le=20, description="Items per page; a definition can have some megabytes.")]


@routes.post("/agents", status_code=201, responses=refusals(403, body=True))
async def publish_agent(wanted: PublishAgent, caller: Caller, services: Wired) -> PublishedRelease:
    """Publish a definition as the agent's next release. The same content again is the same release.

    Further releases of an agent are published by whoever made it, or by an administrator. A Python tool, an MCP server
    started by command, or a tool that gets a stored secret needs an administrator's key.
    """
    check_may_publish(wanted.definition, role=caller.role)
    release = await resolve(wanted.definition, space_id=caller.space_id, ports=services.ports)
    request = publishing.PublishRelease(
        caller.space_id, release, publisher_id=caller.user_id, over_others=caller.role == "admin"
    )
    return PublishedRelease.model_validate(await publishing.publish_release(services.store, request))


@routes.get("/agents", responses=refusals())
async def list_agents(caller: Caller, services: Wired, limit: Limit = 50, cursor: Cursor = None) -> AgentList:
    """Agents of the space, by name."""
    return AgentList.model_validate(await reads.agents(services.store, caller.space_id, limit=limit, cursor=cursor))


@routes.get("/agents/{name}", responses=refusals(404))
async def read_agent(name: AgentName, caller: Caller, services: Wired) -> AgentEntry:
    """One agent with its newest release."""
    return AgentEntry.model_validate(await reads.agent(services.store, caller.space_id, name))


@routes.get("/agents/{name}/releases", responses=refusals(404))
async def list_releases(
    name: AgentName, caller: Caller, services: Wired, limit: FewReleases = 20, cursor: Cursor = None
) -> ReleaseList:
    """The agent's releases, newest first, each with everything that was resolved when it was published."""
    page = await reads.releases(services.store, caller.space_id, name, limit=limit, cursor=cursor)
    return ReleaseList.model_validate(page)


@routes.get("/releases/{release_id}", responses=refusals(404))
async def read_release(release_id: UUID, caller: Caller, services: Wired) -> ReleaseEntry:
    """One release, with everything that was resolved when it was published."""
    return ReleaseEntry.model_validate(await reads.release_row(services.store, caller.space_id, release_id))
