"""Parameters that lists share."""

from typing import Annotated

from fastapi import Query

from api.schemas import MAX_INT

Limit = Annotated[int, Query(ge=1, le=200, description="Items per page.")]
Cursor = Annotated[
    str | None,
    Query(
        pattern=r"^[A-Za-z0-9_\-=]{1,200}$",
        description="`next` of the page before.",
    ),
]
After = Annotated[int, Query(ge=0, le=MAX_INT, description="Leave out everything up to this sequence number.")]
