"""The release as the calls that write summaries see it (SPEC K1): its own model or `summary_model`, and no tools."""

from context.policy import ContextSettings, ModelSettings, Release

# What makes sense for a conversation with tools or for answers of a given form, and not for a summary.
LEFT_OUT = frozenset({"tool_choice", "parallel_tool_calls", "response_format", "stop", "functions", "function_call"})


def summarising(release: Release) -> Release:
    """The release with the summarising model in place of the role's."""
    changes = {"model": _model(release), "context": _context(release), "tools": ()}
    definition = release.definition.model_copy(update=changes)
    resolved = release.summariser.model_dump() if release.summariser else {}
    return release.model_copy(update={"definition": definition, "tools": ()} | resolved)


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
