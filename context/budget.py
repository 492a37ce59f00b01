"""How much of a model's window a request may take, and what follows from its size (SPEC B1). No binary floats."""

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from context.errors import ConfigurationInvalidError
from context.policy import Release

UNKNOWN_OUTPUT_LIMIT = 4096


@dataclass(frozen=True)
class Budget:
    """The letters of SPEC B1, in tokens: window W, output reserve O, safety S; B is what input may take."""

    window: int
    output_reserve: int
    safety: int
    trigger_ratio: Decimal

    @property
    def input_limit(self) -> int:
        """B = W - O - S."""
        return self.window - self.output_reserve - self.safety

    @property
    def trigger(self) -> int:
        """The estimate from which compaction is considered: floor(r·B)."""
        return floor_share(self.trigger_ratio, self.input_limit)


@dataclass(frozen=True)
class Fits:
    """The request may be sent."""


@dataclass(frozen=True)
class TooLarge:
    """The request may not be sent. `protected` says that what may not be left out is too large by itself."""

    protected: bool


def floor_share(ratio: Decimal, tokens: int) -> int:
    """floor(ratio · tokens), exactly."""
    return int((ratio * tokens).to_integral_value(rounding=ROUND_FLOOR))


def default_safety(window: int) -> int:
    """S unless configured: max(256, 1 % of the window rounded up)."""
    return max(256, -(-window // 100))


def output_reserve(release: Release) -> int:
    """O: configured for the context, else for the model, else the model's maximum or 4096, at most a quarter of W."""
    definition = release.definition
    configured = definition.context.output_reserve_tokens or definition.model.max_output_tokens
    if configured is not None:
        return configured
    return min(release.provider_output_limit or UNKNOWN_OUTPUT_LIMIT, release.context_window // 4)


def plan_budget(release: Release) -> Budget:
    """The budget of a release. Raises ConfigurationInvalidError if nothing is left for input (B must be > 0)."""
    settings = release.definition.context
    window = release.context_window
    safety = settings.safety_margin_tokens if settings.safety_margin_tokens is not None else default_safety(window)
    budget = Budget(window, output_reserve(release), safety, settings.trigger_ratio)
    if budget.input_limit <= 0:
        raise ConfigurationInvalidError(
            "The window leaves no room for input: lower output_reserve_tokens or safety_margin_tokens.",
            context_window=window,
            output_reserve=budget.output_reserve,
            safety_margin=safety,
        )
    return budget


def request_output_limit(release: Release, budget: Budget) -> int:
    """The output limit sent with a request: min(O, max_output_tokens, the provider's limit) of those known."""
    known = [budget.output_reserve, release.definition.model.max_output_tokens, release.provider_output_limit]
    return min(limit for limit in known if limit is not None)


def judge(estimated: int, budget: Budget, *, protected: int) -> Fits | TooLarge:
    """Whether a request of `estimated` tokens, `protected` of which can't be left out, may be sent."""
    if estimated > budget.input_limit:
        return TooLarge(protected=protected > budget.input_limit)
    return Fits()
