"""Parameters that lists share."""

from typing import Annotated

from fastapi import Query

from api.schemas import MAX_INT

CURSOR = r"^[A-Za-z0-9_\-=]{1,200}$"
INSTANCE = r"^[A-Za-z0-9-]{1,64}$"
EVENT_ID = r"^[0-9]{1,15}$"

Limit = Annotated[int, Query(ge=1, le=200, description="Items per page.")]
Cursor = Annotated[
    str | None,
    Query(
        pattern=CURSOR,
        description="`next` of the page before.",
    ),
]
After = Annotated[int, Query(ge=0, le=MAX_INT, description="Leave out everything up to this sequence number.")]
