"""What distinguishes the dialects of the chat-completions protocol (SPEC L1, A6), as data.

Code elsewhere asks the profile, never for a provider's name. A profile holds facts only; how they are used is up to
`wire`, `assembler` and `errors`.
"""

from dataclasses import dataclass
from typing import Literal

ReasoningRule = Literal["never", "tool_turns"]
"""When an assistant message's `reasoning_content` is sent back: never, or wherever its turn called tools."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The facts of one dialect."""

    name: str
    default_base_url: str | None
    """The official address; None where a person has to give one."""
    output_limit_field: Literal["max_tokens", "max_completion_tokens"]
    """The request field that limits the answer."""
    reasoning: ReasoningRule
    """Whether reasoning goes back to the provider."""
    missing_reasoning: str | None
    """Sent in a tool turn whose message has no stored reasoning; None leaves the field out."""
    merge_user_messages: bool
    """Whether adjacent user messages are joined, unless the agent's definition says otherwise."""
    null_content_with_calls: bool
    """Whether an assistant message that only calls has content null (else an empty text)."""
    include_usage: bool
    """Whether `stream_options.include_usage` is understood."""


# DeepSeek, thinking mode: between two user messages, once tools were called, each assistant message's reasoning_content
# must come back in all later requests, or the API answers 400; without calls it is not needed and ignored. The field
# must be there even if the message has none (https://api-docs.deepseek.com/guides/thinking_mode).
_PROFILES = {
    "openai": Profile(
        name="openai",
        default_base_url="https://api.openai.com/v1",
        output_limit_field="max_completion_tokens",
        reasoning="never",
        missing_reasoning=None,
        merge_user_messages=False,
        null_content_with_calls=True,
        include_usage=True,
    ),
    "deepseek": Profile(
        name="deepseek",
        default_base_url="https://api.deepseek.com",
        output_limit_field="max_tokens",
        reasoning="tool_turns",
        missing_reasoning="",
        merge_user_messages=False,
        null_content_with_calls=True,
        include_usage=True,
    ),
    "openai_compatible": Profile(
        name="openai_compatible",
        default_base_url=None,
        output_limit_field="max_tokens",
        reasoning="never",
        missing_reasoning=None,
        merge_user_messages=False,
        null_content_with_calls=True,
        include_usage=True,
    ),
    "demo": Profile(
        name="demo",
        default_base_url=None,
        output_limit_field="max_tokens",
        reasoning="never",
        missing_reasoning=None,
        merge_user_messages=False,
        null_content_with_calls=True,
        include_usage=True,
    ),
}


def profile_for(provider: str) -> Profile:
    """The profile of `model.provider`. A provider the definition allows always has one; another is a KeyError."""
    return _PROFILES[provider]
