"""The release as the calls that write summaries see it (SPEC K1): its own model or `summary_model`, and no tools."""

from context.blocks import block_room
from context.budget import Budget, plan_budget, request_output_limit
from context.compaction import CompactionTerms, compaction_terms, longest_target
from context.covered_results import READER, list_allowance
from context.policy import ContextSettings, ModelSettings, Release
from context.summaries import request_overhead, summary_prompts
from context.tokens import TokenCounter

# What makes sense for a conversation with tools or for answers of a given form, and not for a summary.
LEFT_OUT = frozenset({"tool_choice", "parallel_tool_calls", "response_format", "stop", "functions", "function_call"})


def summarising(release: Release) -> Release:
    """The release with the summarising model in place of the role's."""
    changes = {"model": _model(release), "context": _context(release), "tools": ()}
    definition = release.definition.model_copy(update=changes)
    resolved = release.summariser.model_dump() if release.summariser else {}
    return release.model_copy(update={"definition": definition, "tools": ()} | resolved)


def terms_of_compaction(release: Release, budget: Budget) -> CompactionTerms:
    """The role's `budget` with the output numbers of the model that summarises (SPEC K3)."""
    writer = summarising(release)
    own = plan_budget(writer)
    return compaction_terms(
        release.definition.context,
        budget,
        output_reserve=own.output_reserve,
        output_limit=request_output_limit(writer, own),
        listing=list_allowance(budget.input_limit) if any(one.name == READER for one in release.tools) else 0,
    )


def check_room_for_blocks(release: Release, counter: TokenCounter) -> None:
    """Whether the summarising model, counted by `counter`, can be asked at all, however long a summary may become.

    Raises ConfigurationInvalidError with the numbers if no block has room (SPEC K3).
    """
    target = longest_target(terms_of_compaction(release, plan_budget(release)))
    prompts = summary_prompts(target, release.definition.context.compaction_prompt, counter)
    limit = plan_budget(summarising(release)).input_limit
    block_room(limit, overhead=request_overhead(prompts, counter), target=target)


def _model(release: Release) -> ModelSettings:
    model = release.definition.context.summary_model or release.definition.model
    kept = {name: value for name, value in model.parameters.items() if name not in LEFT_OUT}
    return model.model_copy(update={"parameters": kept})


def _context(release: Release) -> ContextSettings:
    """What the role keeps free of its own window says nothing about another model's (SPEC B1, K3)."""
    context = release.definition.context
    if release.summariser is None:
        return context
    return context.model_copy(update={"output_reserve_tokens": None, "safety_margin_tokens": None})
