"""What it means when the database refuses a write: the one place where constraint names become domain errors.

The checks in the commits come first and name the numbers; the constraint is what holds if a check was wrong. The
driver's own text quotes values, so it never goes on (SPEC Y6).
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg
from sqlalchemy.exc import IntegrityError

from context.errors import AgentLoomError, NotFoundError, RunActiveError

REFUSALS: Mapping[str, type[AgentLoomError]] = {
    "uq_runs_one_active": RunActiveError,
    "fk_sessions_agent_id_agents": NotFoundError,
    "fk_users_space_id_spaces": NotFoundError,
    "fk_api_keys_user_id_users": NotFoundError,
    "fk_agents_space_id_spaces": NotFoundError,
    "fk_agents_owner_id_users": NotFoundError,
    "fk_connections_space_id_spaces": NotFoundError,
}


@asynccontextmanager
async def translated_constraints() -> AsyncIterator[None]:
    """Turns a violated constraint into the error of the domain, without the driver's text or cause."""
    try:
        yield
    except asyncpg.IntegrityConstraintViolationError as error:
        raise refusal(str(error.constraint_name or "")) from None
    except IntegrityError as error:
        raise refusal(constraint_name(error)) from None


def refusal(constraint: str) -> AgentLoomError:
    """The domain's word for a violated constraint; one that no caller can cause stays an internal error."""
    if known := REFUSALS.get(constraint):
        return known()
    return AgentLoomError(f"The database refused a write ({constraint or 'unnamed constraint'}).")


def constraint_name(error: IntegrityError) -> str:
    """The violated constraint's name, as the server reports it; empty for a NOT NULL."""
    return str(getattr(getattr(error.orig, "__cause__", None), "constraint_name", None) or "")
