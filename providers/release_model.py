"""The model of one release, as its activities use it: how its requests look, count, go out and cost.

Everything about the dialect is decided here from the release; callers hand over messages and get bytes, hand over bytes
and get an answer or a break.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

from pydantic import SecretStr

from context.budget import plan_budget, request_output_limit
from context.errors import CorruptPayloadError, ModelCallError
from context.formatting import MessageFormatter
from context.messages import ChatMessage
from context.policy import Release, RetryPolicy
from context.replies import SoFar, Usage
from context.steps import ModelAnswered, ModelBroke, RequestTerms
from context.stored_keys import KnownSecrets, StoredKey
from context.summaries import frame_tokens
from context.summariser import summarising, terms_of_compaction
from context.tokens import TokenCounter
from context.views import system_message
from providers.catalogue import cost
from providers.chat import ChatClient, ModelTarget
from providers.errors import BrokenStreamError, ConnectionUnusableError, EndpointRefusedError
from providers.profiles import Profile, profile_for
from providers.tokenizers import counter_for
from providers.wire import parameters_json, request_fields, tools_json
from providers.wire_list import WireList

ResolveKey = Callable[[str], Awaitable[StoredKey | None]]
ChatFor = Callable[[str], ChatClient]
FormatWith = Callable[[Profile, bool | None], MessageFormatter]
_KEPT_LISTS = 64


async def _none_known() -> frozenset[str]:
    """Of a model that only counts and formats."""
    return frozenset()


class ReleaseModel:
    """One release's model.

    `chat_for` gives the client for a provider, `demo_base_url` is where the demo provider listens in this process.
    `known_secrets` are replaced in whatever comes back, besides the model's own key (SPEC L6).
    `format_with` begins an empty list in the form of a dialect, with user messages joined or not.
    """

    def __init__(
        self,
        release: Release,
        *,
        chat_for: ChatFor,
        resolve_key: ResolveKey,
        demo_base_url: str | None,
        known_secrets: KnownSecrets = _none_known,
        format_with: FormatWith = WireList,
    ) -> None:
        self._release = release
        self._settings = release.definition.model
        self._chat_for = chat_for
        self._chat = chat_for(self._settings.provider)
        self._resolve_key = resolve_key
        self._known_secrets = known_secrets
        self._demo_base_url = demo_base_url
        self._base_url = release.base_url or demo_base_url
        self._profile = profile_for(self._settings.provider)
        self._format_with = format_with
        self._lists: OrderedDict[UUID, MessageFormatter] = OrderedDict()
        self.counter: TokenCounter = counter_for(release.estimator_id)
        self.terms = self._terms()
        self._fields = self._request_fields(self.terms.max_output_tokens)

    def _request_fields(self, max_output_tokens: int) -> bytes:
        return request_fields(
            profile=self._profile,
            model=self._settings.model,
            tools=self._release.tools,
            max_output_tokens=max_output_tokens,
            parameters=self._settings.parameters,
        )

    def _terms(self) -> RequestTerms:
        release, budget = self._release, plan_budget(self._release)
        settings = release.definition.context
        return RequestTerms(
            budget=budget,
            counter=self.counter,
            system=system_message(release.definition),
            tools_tokens=self._tools_tokens(),
            max_output_tokens=request_output_limit(release, budget),
            model=self._settings.model,
            recent_runs=settings.recent_runs,
            compaction=terms_of_compaction(release, budget),
            results=settings.results,
            frame=frame_tokens(self.counter),
            cost_of_input=self._cost_of_input,
            whole_session=settings.history == "session_view",
        )

    def _tools_tokens(self) -> int:
        """Of the tool list, and of what in `parameters` a model reads like one (SPEC B1)."""
        tools, read = tools_json(self._release.tools), parameters_json(self._settings.parameters)
        return (self.counter.count_tools(tools) if tools else 0) + (self.counter.count_text(read) if read else 0)

    def body(self, messages: Sequence[ChatMessage]) -> bytes:
        """The wire body of a request: the same messages always give the same bytes (SPEC A9)."""
        whole = self._new_list()
        whole.extend(messages)
        return whole.body(self._fields)[0]

    @cached_property
    def summariser(self) -> "ReleaseModel":
        """The model that writes summaries for this release; it has no tools (SPEC K1)."""
        return ReleaseModel(
            summarising(self._release),
            chat_for=self._chat_for,
            resolve_key=self._resolve_key,
            demo_base_url=self._demo_base_url,
            known_secrets=self._known_secrets,
            format_with=self._format_with,
        )

    @property
    def retry(self) -> RetryPolicy:
        """When a failed call of this model is tried again."""
        return self._settings.retry

    def limited_body(self, messages: Sequence[ChatMessage], max_output_tokens: int) -> tuple[bytes, bytes]:
        """The body, and its SHA-256, of a request whose answer may have only so many tokens."""
        whole = self._new_list()
        whole.extend(messages)
        return whole.body(self._request_fields(max_output_tokens))

    def summary_body(self, messages: Sequence[ChatMessage], max_output_tokens: int) -> bytes:
        """The body of a request to the summarising model."""
        return self.summariser.limited_body(messages, max_output_tokens)[0]

    def held(self, context_id: UUID) -> tuple[UUID, int] | None:
        """The view of a context that this process has in wire form, and how many of its messages."""
        known = self._lists.get(context_id)
        return (known.view_id, known.length) if known else None

    def grown_body(
        self, context_id: UUID, view_id: UUID, length: int, start: int, new: Sequence[ChatMessage]
    ) -> tuple[bytes, bytes]:
        """The body, and its SHA-256, of a request that is the first `length` messages of a view.

        `new` are those from `start` on. Raises CorruptPayloadError if they do not add up to what was frozen.
        """
        grown = self._lists[context_id] if start and self.held(context_id) == (view_id, start) else self._new_list()
        if grown.length != start or start + len(new) != length:
            raise CorruptPayloadError("The list of a request does not have the length that was frozen.")
        grown.view_id = view_id
        grown.extend(new)
        self._lists[context_id] = grown
        self._lists.move_to_end(context_id)
        while len(self._lists) > _KEPT_LISTS:
            self._lists.popitem(last=False)
        return grown.body(self._fields)

    def _new_list(self) -> MessageFormatter:
        return self._format_with(self._profile, self._settings.merge_user_messages)

    async def complete(
        self, body: bytes, *, on_first_output: Callable[[], Awaitable[None]], watch: Callable[[SoFar], None]
    ) -> ModelAnswered | ModelBroke:
        """One try with exactly these bytes. `watch` is given what tells how far the answer has come."""
        try:
            target = await self._target()
            hooks: dict[str, Any] = {"on_first_output": on_first_output, "on_bytes": _nothing, "watch": watch}
            call = await self._chat.complete(target, body, **hooks)
        except ModelCallError as error:
            return _broke(error)
        return ModelAnswered(call.reply, call.raw, self.cost(call.reply.usage), call.transforms)

    def cost(self, usage: Usage) -> Decimal | None:
        """What a call cost, or None if a price or the usage is unknown (SPEC L5)."""
        settings = self._settings
        return cost(settings.provider, settings.model, usage, settings.price, base_url=self._base_url)

    def _cost_of_input(self, tokens: int) -> Decimal | None:
        return self.cost(Usage(input_tokens=tokens, output_tokens=0))

    async def _target(self) -> ModelTarget:
        if self._base_url is None:
            raise EndpointRefusedError
        key = await self._key(self._settings.connection) if self._settings.connection else None
        others = tuple(map(SecretStr, sorted(await self._known_secrets())))
        return ModelTarget(self._base_url, key, idle_timeout_s=self._settings.timeout_s, other_secrets=others)

    async def _key(self, name: str) -> SecretStr | None:
        """The key of the stored connection, if it was stored for the address that this release calls (SPEC L3)."""
        stored = await self._resolve_key(name)
        official = self._profile.default_base_url or self._demo_base_url
        if stored is None or not stored.belongs_to(self._profile.name, self._base_url, official=official):
            raise ConnectionUnusableError
        return SecretStr(stored.secret) if stored.secret else None


def _broke(error: ModelCallError) -> ModelBroke:
    raw, came = (error.raw, error.fragment) if isinstance(error, BrokenStreamError) else (None, None)
    usage = came.usage if came and came.usage != Usage() else error.usage
    place = (error.reason, error.retryable, error.status, error.retry_after_s)
    return ModelBroke(*place, raw, came, usage, was_sent=error.was_sent)


def _nothing() -> None:
    """The transport's own read time-out watches for silence."""
