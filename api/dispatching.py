"""Sending an intent right after its commit, behind the answer (SPEC W7).

Whether Temporal takes it is no business of the client's: what was committed stays true, and the worker's relay sends
what could not be sent here.
"""

from uuid import UUID

from api.wiring import Services
from storage.outbox import dispatch


def dispatch_behind(services: Services, outbox_id: UUID | None) -> None:
    """Start sending the intent, if there is one, without waiting for it."""
    if outbox_id is not None:
        services.spawn(dispatch(services.store, services.sender, outbox_id))
