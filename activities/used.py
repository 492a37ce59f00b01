"""What a try at a model call used: as reported, else counted here (SPEC L5). Nothing is read unless it is missing."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from activities.failures import until_stored
from context.replies import ModelReply, Usage
from context.steps import ModelAnswered, ModelBroke
from context.usage import completed, is_reported, output_tokens

if TYPE_CHECKING:
    from providers.release_model import ReleaseModel
    from storage.run_commits import RunCommits


async def answer_used(
    commits: "RunCommits", model: "ReleaseModel", operation_id: UUID, answer: ModelAnswered
) -> ModelAnswered:
    """The answer with usage and cost complete."""
    if is_reported(answer.reply.usage):
        return answer
    usage = await _counted(commits, model, operation_id, answer.reply, answer.reply.usage)
    return replace(answer, reply=answer.reply.model_copy(update={"usage": usage}), cost=model.cost(usage))


async def break_used(commits: "RunCommits", model: "ReleaseModel", operation_id: UUID, broke: ModelBroke) -> ModelBroke:
    """The break with usage and cost of what had come; a request that was refused, or never got there, used nothing."""
    usage = broke.usage
    if usage is None and broke.came is None and not broke.was_sent:
        return broke
    if usage is None or not is_reported(usage):
        usage = await _counted(commits, model, operation_id, broke.came or _NOTHING, usage or Usage())
    return replace(broke, usage=usage, cost=model.cost(usage))


_NOTHING = ModelReply(finish_reason="other")


async def _counted(
    commits: "RunCommits", model: "ReleaseModel", operation_id: UUID, reply: ModelReply, usage: Usage
) -> Usage:
    """The reported figures, with our own in the place of those that are missing."""
    estimated = await until_stored(lambda: commits.estimated_input(operation_id))
    written = await asyncio.to_thread(output_tokens, reply, model.counter)
    return completed(usage, input_tokens=estimated, output_tokens=written)
