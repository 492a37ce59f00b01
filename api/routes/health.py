"""Whether the process lives, whether it can serve, and its counters. No key is needed and no content is shown."""

from fastapi import APIRouter, Response
from pydantic import BaseModel
from sqlalchemy import text

from api.errors import UNAVAILABLE_RETRY_S, problem
from api.openapi import problem_answer
from api.wiring import Services, Wired
from context.errors import UnavailableError

routes = APIRouter(tags=["health"])

TAKES_WRITES = text("SELECT current_setting('transaction_read_only') = 'off'")


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


class Readiness(BaseModel):
    """Everything that requests need answers."""

    status: str = "ready"
    database: str = "ok"
    temporal: str = "ok"


@routes.get("/healthz")
async def healthz() -> Health:
    """The process lives."""
    return Health()


@routes.get("/readyz", response_model=Readiness, responses={503: problem_answer(503)})
async def readyz(services: Wired) -> Readiness | Response:
    """The database takes writes, and Temporal answers."""
    database = await _database_state(services)
    temporal = "ok" if await services.temporal_answers() else "away"
    if database == temporal == "ok":
        return Readiness()
    headers = {"Retry-After": str(UNAVAILABLE_RETRY_S)}
    sentence = UnavailableError.sentence
    return problem(503, UnavailableError.code, sentence, headers=headers, database=database, temporal=temporal)


@routes.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def metrics(services: Wired) -> Response:
    """Counters of this process in the Prometheus text format."""
    return services.metrics.exposition()


async def _database_state(services: Services) -> str:
    """`read_only` after a fail-over to a server that is not the primary (yet)."""
    try:
        async with services.store.reading() as connection:
            if (await connection.execute(TAKES_WRITES)).scalar():
                return "ok"
            await connection.invalidate()  # the next look is at what is the primary then
    except UnavailableError:
        return "away"
    return "read_only"
