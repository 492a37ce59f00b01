"""Any past request, rebuilt byte for byte from what is stored, its hash checked (SPEC A9)."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from api.wiring import Rebuilt
from context.errors import CorruptPayloadError, NotFoundError
from context.messages import ChatMessage
from context.policy import Release
from storage import reads
from storage.requests import FrozenRequest, Requests
from storage.store import Store

KEPT_MODELS = 32


class WireForm(Protocol):
    """Turns the messages of a release's request into the bytes that are sent."""

    def body(self, messages: Sequence[ChatMessage]) -> bytes: ...

    def summary_body(self, messages: Sequence[ChatMessage], max_output_tokens: int) -> bytes: ...

    def grown_body(
        self, context_id: UUID, view_id: UUID, length: int, start: int, new: Sequence[ChatMessage]
    ) -> tuple[bytes, bytes]: ...


BuildModel = Callable[[Release], WireForm]


class Rebuilding:
    """Rebuilds requests; keeps the wire forms of the releases it used last."""

    def __init__(self, store: Store, *, build_model: BuildModel) -> None:
        self._store = store
        self._requests = Requests(store)
        self._build_model = build_model
        self._models: OrderedDict[UUID, WireForm] = OrderedDict()

    async def rebuild(self, operation_id: UUID) -> Rebuilt:
        """The bytes that were sent for a model Operation.

        Raises NotFoundError for an Operation without a request, CorruptPayloadError if the bytes are not those whose
        hash was stored when the request was first sent.
        """
        request = await self._requests.load(operation_id)
        model = await self._model(request.release_id)
        if request.purpose == "compaction":
            body = model.summary_body(request.new, request.max_output_tokens)
        else:
            body = model.body(request.new)
        digest = hashlib.sha256(body)
        if request.request_hash is not None and request.request_hash != digest.digest():
            raise CorruptPayloadError("The rebuilt request is not the one that was sent.")
        return Rebuilt(body, digest.hexdigest())

    async def not_as_sent(self, operation_ids: Iterable[UUID]) -> list[UUID]:
        """Those of these requests that can't be rebuilt with the hash they were sent with.

        What several begin with is read and put into wire form once, if they come list by list, each from its shortest
        to its longest (SPEC M7).
        """
        check = _Check(self._store, self._requests, self._build_model)
        return [one for one in operation_ids if not await check.is_as_sent(one)]

    async def _model(self, release_id: UUID) -> WireForm:
        model = self._models.get(release_id)
        if model is None:
            model = self._models[release_id] = self._build_model(await reads.release(self._store, release_id))
            if len(self._models) > KEPT_MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(release_id)
        return model


class _Check:
    """Rebuilds requests one after the other, going on from the list that is at hand."""

    def __init__(self, store: Store, requests: Requests, build_model: BuildModel) -> None:
        self._store = store
        self._requests = requests
        self._build_model = build_model
        self._models: dict[UUID, WireForm] = {}
        self._held: tuple[UUID, int] | None = None  # list and length of the request before

    async def is_as_sent(self, operation_id: UUID) -> bool:
        try:
            request = await self._requests.load(operation_id, held=self._held)
            digest = self._digest(request, await self._model(request.release_id))
        except (CorruptPayloadError, NotFoundError):
            return False
        return request.request_hash in (None, digest)

    def _digest(self, request: FrozenRequest, model: WireForm) -> bytes:
        if request.purpose == "compaction":
            return hashlib.sha256(model.summary_body(request.new, request.max_output_tokens)).digest()
        place = (request.view_id, request.view_length)
        _, digest = model.grown_body(request.context_id, *place, request.start, request.new)
        self._held = place
        return digest

    async def _model(self, release_id: UUID) -> WireForm:
        """A model of this check alone: the lists that it keeps go with it."""
        if release_id not in self._models:
            self._models[release_id] = self._build_model(await reads.release(self._store, release_id))
        return self._models[release_id]
