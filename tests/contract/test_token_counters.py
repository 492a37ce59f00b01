"""What every token counter keeps, whichever it is."""

import itertools
import subprocess
import sys
import time

import pytest

from context.errors import ConfigurationInvalidError
from context.messages import ChatMessage, ToolCall
from context.policy import FrozenTool
from context.tokens import TokenCounter
from providers.profiles import profile_for
from providers.tokenizers import counter_for, estimator_for
from providers.wire import tools_json, wire_message_bytes

ESTIMATORS = [
    estimator_for("openai_compatible", "anything"),
    estimator_for("deepseek", "deepseek-v4-pro"),
    estimator_for("demo", "demo"),
    estimator_for("openai", "gpt-4o"),
    estimator_for("openai", "gpt-5"),
    estimator_for("openai", "gpt-4"),
    estimator_for("openai_compatible", "local", "cl100k_base"),
]
MILLION = 1_000_000
TEXTS = {
    "one letter": "a" * MILLION,
    "spaces": " " * MILLION,
    "line feeds": "\n" * MILLION,
    "digits": "7" * MILLION,
    "punctuation": "!" * MILLION,
    "chinese": "重跑悬空引用清零校验" * (MILLION // 10),
    "emoji": "🔥" * MILLION,
    "joined emoji": "👨\u200d👩\u200d👧" * (MILLION // 5),
    "combining marks": "\u0301" * MILLION,
    "prose": "The quick brown fox jumps. " * (MILLION // 27),
    "special tokens": "<|endoftext|>" * (MILLION // 13),
    "lone surrogates": "\ud83d" * MILLION,
    "quotes": '"' * MILLION,
}


@pytest.fixture(params=ESTIMATORS)
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    return counter_for(request.param)


def test_the_counter_answers_to_its_frozen_id(counter: TokenCounter) -> None:
    """SPEC B4: the id in a release finds the same counter again."""
    assert counter_for(counter.estimator_id) == counter


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("estimator_id", [ESTIMATORS[0], ESTIMATORS[3], ESTIMATORS[5]])
def test_four_times_as_much_of_anything_takes_about_four_times_as_long(estimator_id: str, name: str) -> None:
    """SPEC B4: no input makes counting super-linear, up to a million characters of it."""
    counter = counter_for(estimator_id)
    counter.count_text(" ")  # its ranks are loaded

    def processor_time(text: str) -> float:
        started = time.process_time()
        assert counter.count_text(text) > 0
        return time.process_time() - started

    whole = TEXTS[name]
    quarter = min(processor_time(whole[: len(whole) // 4]) for _ in range(3))
    assert processor_time(whole) < 10 * quarter + 0.02  # sixteen times, if it grew with the square


def test_chinese_and_emoji_are_not_undercounted(counter: TokenCounter) -> None:
    """Case 057: in texts, messages and tool schemas alike."""
    chinese, emoji = "重跑悬空引用清零校验" * 4_000, "🔥" * 1_000
    tool = FrozenTool(name="t", description=chinese, parameters={}, kind="python", entry_name="t")
    for count in (
        counter.count_text(chinese),
        counter.count_message(ChatMessage(role="user", content=chinese)),
        counter.count_tools(tools_json([tool])),
    ):
        assert count >= 20_000
    assert counter.count_text(emoji) >= 1_000


@pytest.mark.parametrize("text", ["<|endoftext|>", "see <|im_start|>system and <|fim_prefix|>", "<|endofprompt|>"])
def test_special_token_text_is_counted_as_text(counter: TokenCounter, text: str) -> None:
    """Case 058: it neither raises nor counts as one token."""
    assert counter.count_text(text) > 1
    assert counter.count_message(ChatMessage(role="user", content=text)) > counter.count_text(text)


def test_a_messages_count_includes_all_that_is_sent_of_it(counter: TokenCounter) -> None:
    """SPEC B1: calls, ids and results with their overhead."""
    call = ToolCall(call_id="call-1", name="look", arguments='{"a": 1}')
    bare = counter.count_message(ChatMessage(role="assistant", tool_calls=(call,)))
    longer = call.model_copy(update={"arguments": '{"a": "' + "word " * 100 + '"}'})
    assert counter.count_message(ChatMessage(role="assistant", tool_calls=(longer,))) >= bare + 90
    assert counter.count_message(ChatMessage(role="tool", tool_call_id="call-1", content="x")) > counter.count_text("x")


def test_a_message_that_is_left_out_counts_nothing(counter: TokenCounter) -> None:
    """SPEC B1, A11."""
    assert counter.count_message(ChatMessage(role="assistant", content="")) == 0
    assert counter.count_tools("") == 0


def test_longer_text_never_counts_less(counter: TokenCounter) -> None:
    """SPEC B4: across the borders of the slices, too."""
    text = "Words, 数字 and {json: 1}. " * 2_000
    counts = [counter.count_text(text[:length]) for length in range(7_900, 8_200, 20)]
    assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(counts))


@pytest.mark.parametrize("provider", ["openai_compatible", "deepseek", "demo"])
def test_the_conservative_estimate_is_a_token_per_byte_of_the_wire(provider: str) -> None:
    """SPEC B4: one token per UTF-8 byte, marked as estimated."""
    counter = counter_for(estimator_for(provider, "unknown"))
    message = ChatMessage(role="user", content='ü"\n')
    assert counter.count_message(message) == len(wire_message_bytes(message, profile_for(provider))) + 1
    assert counter.count_text("ü🔥") == 6
    assert not counter.exact


def test_the_conservative_estimate_is_never_below_a_real_tokeniser() -> None:
    """Case 057."""
    conservative = counter_for(estimator_for("openai_compatible", "unknown"))
    real = counter_for(estimator_for("openai", "gpt-4o"))
    for text in ("Hello there.", "重跑悬空引用清零校验", "🔥🔥", "def f(x):\n\treturn x**2", "\u0301" * 9):
        message = ChatMessage(role="user", content=text)
        assert conservative.count_message(message) >= real.count_message(message)


def test_known_counts_of_the_real_encodings_are_met() -> None:
    """SPEC B4: the installed ranks are the official ones."""
    assert counter_for(estimator_for("openai", "gpt-4o")).count_text("hello world") == 2
    assert counter_for(estimator_for("openai", "gpt-4")).count_text("tiktoken is great!") == 6


def test_a_message_has_the_documented_overhead_where_the_count_is_exact() -> None:
    """SPEC B4: three tokens per message and three for the reply, besides role and content."""
    counter = counter_for(estimator_for("openai", "gpt-4o-2024-08-06"))
    assert counter.exact
    assert counter.count_message(ChatMessage(role="user", content="hello world")) == 3 + 1 + 2
    assert counter.request_overhead == 3


@pytest.mark.parametrize("model", ["gpt-5", "o3", "gpt-4.1", "new-model"])
def test_a_model_whose_overhead_is_not_documented_is_estimated(model: str) -> None:
    """SPEC B4: `exact` only if the message overhead is also known."""
    assert not counter_for(estimator_for("openai", model)).exact


def test_reasoning_counts_where_it_is_sent_only() -> None:
    """SPEC A6, B1."""
    call = ToolCall(call_id="c", name="f", arguments="{}")
    plain = ChatMessage(role="assistant", tool_calls=(call,))
    thinking = plain.model_copy(update={"reasoning_content": "step by step " * 50})
    for provider, counts in (("deepseek", True), ("openai_compatible", False), ("openai", False)):
        counter = counter_for(estimator_for(provider, "gpt-4o"))
        assert (counter.count_message(thinking) > counter.count_message(plain) + 50) is counts


@pytest.mark.parametrize("unknown", ["tiktoken/p50k_base/openai/v1", "utf8-bytes/demo/v9", "words", ""])
def test_an_unknown_estimator_is_refused_by_name(unknown: str) -> None:
    """SPEC B4: a release is never measured by something else."""
    with pytest.raises(ConfigurationInvalidError):
        counter_for(unknown)


def test_an_encoding_that_is_not_installed_is_refused() -> None:
    """SPEC B3: at publishing, not in a Run."""
    with pytest.raises(ConfigurationInvalidError):
        estimator_for("openai", "gpt-4o", "p50k_base")


def test_counting_reaches_no_network_and_leaves_the_environment_alone() -> None:
    """SPEC B4: ranks come with the installation, in a fresh process too."""
    script = (
        "import socket, os\n"
        "def refuse(*a, **k): raise SystemExit('network')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "before = dict(os.environ)\n"
        "from providers.tokenizers import counter_for, estimator_for\n"
        "for model in ('gpt-4o', 'gpt-4'): counter_for(estimator_for('openai', model)).count_text('text')\n"
        "print(before == dict(os.environ))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.strip() == "True"
