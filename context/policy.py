"""The agent definition (SPEC 18): what a person writes, checked, with every default in one place.

A definition is frozen into a numbered, hashed AgentRelease; a Run reads its release and nothing else. Field
descriptions here are the text of `docs/agent-definition.md`.
"""

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Tag, field_validator, model_validator

from context.written import (
    CURRENCY,
    LIST,
    MAPPING,
    MAX_TEXT,
    MAX_TOOLS,
    TEXT,
    WORD,
    Count,
    Exact,
    HeaderValue,
    Json,
    Line,
    Many,
    Money,
    Name,
    Prompt,
    Ratio,
    Tokens,
    named_once,
    one_of,
)

HEADER_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?|")


class Part(BaseModel):
    """A piece of a definition: frozen; an unknown key and a value of another kind are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Instruction(Part):
    name: Name
    """Name of this part of the instructions."""
    text: Prompt
    """The text, which goes to the system message."""


class RetryPolicy(Part):
    max_attempts: int = Field(5, ge=1, le=50)
    """Attempts at one model call, the first included."""
    max_elapsed_s: float = Field(600, gt=0, le=86_400)
    """Seconds after which no further attempt starts."""


class Price(Part):
    """Prices per million tokens; what is not given is unknown, not zero."""

    input: Money | None = None
    """Price of a million input tokens."""
    output: Money | None = None
    """Price of a million output tokens."""
    cached: Money | None = None
    """Price of a million cached input tokens."""
    currency: str = Field("USD", pattern=CURRENCY)
    """Currency of the prices."""

    @property
    def is_whole(self) -> bool:
        """Whether the cost of a call can be told by it."""
        return self.input is not None and self.output is not None


class ModelSettings(Part):
    provider: Literal["openai", "deepseek", "openai_compatible", "demo"]
    """Which dialect of the chat-completions protocol the server speaks; `demo` is the offline stand-in."""
    model: str = Field(min_length=1, max_length=200)
    """The model's id at the provider."""
    base_url: Line | None = None
    """Address of the API, for example `https://api.openai.com/v1`; all providers but `openai_compatible` have one."""
    connection: Name | None = None
    """Name of a stored connection that holds the key; none for servers without one."""
    context_window: Tokens | None = None
    """The model's context window W in tokens; needed unless the connection or the catalogue knows it."""
    max_output_tokens: Tokens | None = None
    """Limit of one answer; it is both the output reserve and the limit sent with each request."""
    encoding: str | None = Field(None, max_length=100)
    """tiktoken encoding to count with (`o200k_base`, `cl100k_base`), if the model's own is not known."""
    merge_user_messages: bool | None = None
    """Join adjacent user messages visibly; none leaves it to the provider's profile."""
    parameters: Json = Field(default_factory=dict)
    """Further request fields sent as they are, such as `temperature`; `stream_options: null` leaves that field out."""
    retry: RetryPolicy = RetryPolicy()
    """When a failed model call is tried again."""
    timeout_s: float = Field(300, gt=0, le=3_600)
    """Longest silence of the provider, in seconds, before the attempt is given up."""
    price: Price | None = None
    """Prices; they go before the public ones, which are known for official models at their official address."""

    @field_validator("parameters")
    @classmethod
    def _own_fields_stay_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = {"messages", "tools", "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"}
        if clash := sorted(taken & {key for key in value if (key, value[key]) != ("stream_options", None)}):
            raise ValueError(f"these request fields are set by AgentLoom: {', '.join(clash)}")
        return value


class ResultSettings(Part):
    max_result_chars: int = Field(24_000, ge=100, le=100_000_000)
    """A longer tool result is shown to the model as head and tail with a reference."""
    preview_chars: int = Field(2_000, ge=10, le=50_000_000)
    """Characters of head, and of tail, in such a preview."""
    protect_tokens: Count = 40_000
    """Newest tool output that is never pruned."""
    prune_tokens: Tokens = 20_000
    """Older tool output is pruned once this much of it can go."""
    max_argument_chars: int | None = Field(None, ge=20, le=100_000_000)
    """Old call arguments longer than this are cut in the view; none leaves them whole."""

    @model_validator(mode="after")
    def _preview_is_smaller(self) -> "ResultSettings":
        if self.preview_chars * 2 > self.max_result_chars:
            raise ValueError("two previews must fit into max_result_chars")
        return self


class ContextSettings(Part):
    history: Literal["recent_runs", "session_view"] = "recent_runs"
    """How earlier Runs appear: the last N whole and older ones in outline, or the whole session."""
    recent_runs: int = Field(2, ge=0, le=100)
    """N: ended Runs that appear with their whole process; `session_view` does not look at it."""
    trigger_ratio: Ratio = Decimal("0.80")
    """Share of the input budget at which compaction is considered."""
    target_ratio: Ratio = Decimal("0.60")
    """Share of the input budget that compaction aims for."""
    output_reserve_tokens: Tokens | None = None
    """O: tokens kept free for the answer."""
    safety_margin_tokens: Count | None = None
    """S: tokens kept free for what the estimate may miss; default max(256, 1 % of the window)."""
    summary_target_tokens: Tokens | None = None
    """Length a summary aims for."""
    keep_recent_tokens: Count | None = None
    """Newest complete groups that are not summarised; default a tenth of the budget."""
    user_turns: Tokens | None = None
    """Also compact after this many questions."""
    model_steps: Tokens | None = None
    """Also compact after this many accepted answers of the root role."""
    messages: Tokens | None = None
    """Also compact at this many records in the view."""
    compaction_prompt: Prompt | None = None
    """Added to the built-in prompt of the summariser."""
    summary_model: ModelSettings | None = None
    """Model that summarises, with window, limits, key and price of its own; default the role's own."""
    max_compaction_calls: int | None = Field(None, ge=1, le=16)
    """A plan with more calls is refused before the first."""
    late_input: Literal["carry", "continue"] = "carry"
    """Whether an input that came during the last answer waits for the next question or, while loops, tokens and money
    are left and it fits the window, gets one more loop.
    """
    on_overflow: Literal["end", "compact_once"] = "end"
    """What happens when the provider itself says that the request is too long."""
    results: ResultSettings = ResultSettings()
    """How large tool results appear to the model."""

    @model_validator(mode="after")
    def _target_below_trigger(self) -> "ContextSettings":
        if self.target_ratio >= self.trigger_ratio:
            raise ValueError("target_ratio must be below trigger_ratio")
        return self


class Limits(Part):
    max_loops: int = Field(50, ge=1, le=100_000)
    """Model calls one Run may make, over all crashes and resumes."""
    deadline_s: float = Field(3_600, gt=0, le=2_592_000)
    """Active seconds one Run may take."""
    max_parallel_tools: int = Field(8, ge=1, le=64)
    """Tool calls of one message that run at once."""
    max_cost: Annotated[Exact, Field(gt=0, le=1_000_000_000)] | None = None
    """Cost at which a Run ends as exhausted, in the currency of the price; the price must be known or given."""
    max_total_tokens: Tokens | None = None
    """Tokens, in and out, at which a Run ends as exhausted."""


Effect = Literal["read_only", "idempotent", "side_effect"]
Effects = Annotated[
    Annotated[Effect, Tag(WORD)] | Annotated[dict[str, Effect], Field(max_length=MAX_TOOLS), Tag(MAPPING)],
    one_of({str: WORD, dict: MAPPING}, sentence="should be one effect, or a mapping of tools to effects"),
]


class ToolEntry(Part):
    kind: Literal["builtin", "python", "http", "mcp"]
    """Where the tool runs."""
    name: Name
    """Name the model calls it by; for MCP the prefix of its tools' names is up to `allow`."""
    entry: Line | None = None
    """For `python`: `module:function`."""
    url: Line | None = None
    """For `http`, and for `mcp` over streamable HTTP."""
    command: Many[Line] | None = None
    """For `mcp` over stdio: program and arguments."""
    headers: dict[str, HeaderValue] = Field(default_factory=dict, max_length=100)
    """Sent with each request of an `http` or `mcp` tool; never a secret, use `connection` for that."""
    connection: Name | None = None
    """Stored secret, sent as bearer token."""
    description: str | None = Field(None, max_length=20_000)
    """What the model is told about it; default the function's docstring."""
    schema_: Json | None = Field(None, alias="schema")
    """JSON schema of the arguments; default derived from the function's signature."""
    effect: Effects = "side_effect"
    """What a call does to the world; decides what happens when its outcome is unknown. Per tool for `mcp`."""
    timeout_s: float = Field(60, gt=0, le=86_400)
    """Seconds one call may take."""
    retry_unknown: bool = False
    """Allow a repeat of a side effect whose outcome is unknown."""
    allow: Annotated[Many[Line], Field(max_length=MAX_TOOLS)] | None = None
    """For `mcp`: names of the server's tools that may be used; default all."""

    @field_validator("headers")
    @classmethod
    def _headers_can_be_sent(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not HEADER_NAME.fullmatch(name):
                raise ValueError("the name of a header is letters, digits and - or _")
            if not HEADER_VALUE.fullmatch(text):
                raise ValueError("the value of a header is visible ASCII characters and blanks, without a line break")
        return value

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> "ToolEntry":
        needed = {"python": self.entry, "http": self.url, "mcp": self.url or self.command, "builtin": self.name}
        if not needed[self.kind]:
            keys = {"python": "entry", "http": "url", "mcp": "url or command", "builtin": "name"}
            raise ValueError(f"a {self.kind} tool needs {keys[self.kind]}")
        if isinstance(self.effect, dict) and self.kind != "mcp":
            raise ValueError("an effect per tool is for mcp servers only")
        return self


class Match(Part):
    tool: Line | None = None
    """Name or glob of a tool."""
    purpose: Literal["business", "tool", "compaction", "verification"] | None = None
    """Purpose of the Operation."""


class HookEntry(Part):
    name: Name
    """Name of the hook."""
    point: Literal["model.request", "model.response", "tool.request", "tool.response"]
    """Where it runs."""
    kind: Literal["http", "python"]
    """How it is reached."""
    url: Line | None = None
    """For `http`."""
    entry: Line | None = None
    """For `python`: `module:function`."""
    secret: Name | None = None
    """Stored secret that signs the request."""
    match: Match = Match()
    """Which Operations it sees."""
    timeout_s: float = Field(10, gt=0, le=600)
    """Seconds it may take."""
    on_error: Literal["open", "closed"] = "open"
    """Whether its failure drops its change or denies."""


class SharedField(Part):
    name: Name
    """Name of the field."""
    schema_: Json = Field(alias="schema")
    """JSON schema of its value."""
    readers: Many[Name] = ()
    """Roles that see it."""


Instructions = Annotated[
    Annotated[Prompt, Tag(TEXT)] | Annotated[Many[Instruction], AfterValidator(named_once), Tag(LIST)],
    one_of({str: TEXT, list: LIST, tuple: LIST}, sentence="should be text, or a list of {name, text}"),
]


class AgentDefinition(Part):
    """One agent: who it is, which model it uses, what it may do, and how its context is kept."""

    name: Name
    """Name of the agent, unique within the space."""
    instructions: Instructions = ""
    """What goes to the system message: one text, or named parts."""
    model: ModelSettings
    """The model that answers."""
    context: ContextSettings = ContextSettings()
    """How the context is projected, budgeted and compacted."""
    limits: Limits = Limits()
    """What ends a Run."""
    tools: Annotated[Many[ToolEntry], Field(max_length=MAX_TOOLS), AfterValidator(named_once)] = ()
    """What the model may call."""
    hooks: Annotated[Many[HookEntry], AfterValidator(named_once)] = ()
    """What may allow, deny or change a call, in order."""
    shared_fields: Annotated[Many[SharedField], AfterValidator(named_once)] = ()
    """Fields that several roles of a Run share."""
    sources: Many[Json] = ()
    """What is read at each request preparation."""
    task_context: Json | None = None
    """Which task state is shown to the model."""
    verification: Json | None = None
    """Check of a candidate answer."""
    executors: Many[Json] = ()
    """Agents that work can be delegated to."""

    @property
    def connections(self) -> frozenset[str]:
        """Names of the stored connections that it uses."""
        named = {self.model.connection, *(tool.connection for tool in self.tools)}
        if self.context.summary_model:
            named.add(self.context.summary_model.connection)
        return frozenset(name for name in named if name is not None)

    @property
    def currency(self) -> str:
        """What its calls cost is in: of its prices, else of the public ones. Publishing takes no two (SPEC L5)."""
        prices = (one.price for one in (self.model, self.context.summary_model) if one and one.price)
        return next((price.currency for price in prices if price.is_whole), Price().currency)

    @field_validator("instructions")
    @classmethod
    def _parts_are_no_longer_than_one_text(cls, value: str | tuple[Instruction, ...]) -> str | tuple[Instruction, ...]:
        if not isinstance(value, str) and sum(len(part.text) for part in value) > MAX_TEXT:
            raise ValueError(f"all parts together should have at most {MAX_TEXT} characters")
        return value


class FrozenTool(Part):
    """One callable tool as frozen into a release: the model sees name, description and parameters."""

    name: str
    """Name the model calls it by."""
    description: str
    """What the model is told."""
    parameters: dict[str, Any]
    """JSON schema of the arguments object."""
    kind: Literal["builtin", "python", "http", "mcp"]
    """Where it runs."""
    entry_name: str
    """Name of the ToolEntry it comes from."""
    remote_name: str | None = None
    """For MCP: its name at the server."""
    effect: Effect = "side_effect"
    """What a call does to the world."""
    timeout_s: float = 60
    """Seconds one call may take."""
    retry_unknown: bool = False
    """Repeat allowed although the outcome is unknown."""
    code: dict[str, str] | None = None
    """For Python: SHA-256 of each source that it stands on, by module."""


class Summariser(Part):
    """What publishing resolved for `context.summary_model`."""

    context_window: int
    """Its W."""
    provider_output_limit: int | None
    """Its own limit, if known."""
    estimator_id: str
    """Which TokenCounter measures its requests."""
    base_url: str | None
    """Address of its provider."""


class Release(Part):
    """What a Run is bound to for ever: the definition with everything resolved that could change later."""

    definition: AgentDefinition
    """As published."""
    tools: tuple[FrozenTool, ...]
    """With schemas frozen."""
    context_window: int
    """W, resolved."""
    window_source: Literal["manual", "provider", "official_manifest"]
    """Where W comes from."""
    provider_output_limit: int | None
    """The model's own limit, if known."""
    estimator_id: str
    """Which TokenCounter measures the requests of this release."""
    base_url: str | None
    """Address of the provider; none for the demo model, whose port is only known at run time."""
    summariser: Summariser | None = None
    """Set if another model summarises than the one that answers."""
