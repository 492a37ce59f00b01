"""The list of results that a summary's message carries."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from context.covered_results import MOST, CoveredResult, CoveredResults, fitting, folded_results
from context.summaries import LISTED, PREFACE, frame_tokens, listed_results, summary_message
from context.transcripts import CLOSING, OPENING
from providers.tokenizers import counter_for

BYTES = counter_for("utf8-bytes/openai/v1")
SUMMARY = UUID(int=999)


def results(first: int, number: int, tool: str = "look") -> tuple[CoveredResult, ...]:
    return tuple(CoveredResult(UUID(int=one), tool) for one in range(first, first + number))


def test_the_results_stand_as_data_beside_the_summary_newest_last() -> None:
    """SPEC A3, T5: inside the block that is data, each with its tool, before the summary's own words."""
    message = summary_message("What was done.", CoveredResults(results(1, 2), SUMMARY))
    content = message.content or ""
    assert message.role == "user"
    assert content.startswith(f"{PREFACE}{OPENING}\n{LISTED}\n(older ones) {SUMMARY}\nlook {UUID(int=1)}\n")
    assert content.index(str(UUID(int=1))) < content.index(str(UUID(int=2))) < content.index("What was done.")
    assert content.endswith(f"What was done.\n{CLOSING}")


def test_a_summary_without_results_is_shown_as_ever() -> None:
    """SPEC A7: what has nothing to list has the same bytes."""
    assert LISTED not in (summary_message("What was done.").content or "")


@given(st.text(max_size=60), st.text(max_size=80), st.integers(0, 4), st.booleans())
def test_a_list_is_read_back_from_its_message_whatever_summary_and_tools_say(
    tool: str, summary: str, number: int, has_older: bool
) -> None:
    """SPEC A3: a summary that imitates the heading, or a tool of an impossible name, adds nothing to the list."""
    listed = CoveredResults(results(1, number, tool), SUMMARY if has_older else None)
    for text in (summary, f"{LISTED}\nlook {UUID(int=7)}\n{summary}"):
        found = listed_results(summary_message(text, listed))
        assert found is not None
        assert found.lines == listed.lines
        assert listed_results(summary_message(text)) is None


def test_a_folded_list_keeps_the_newest_and_names_where_the_others_are() -> None:
    """SPEC K14: bounded however often a summary is folded."""
    earlier = CoveredResults(results(1, MOST))
    folded = folded_results(earlier, results(100, 3), folds=True, summary_id=SUMMARY)
    assert folded == CoveredResults((*earlier.results[3:], *results(100, 3)), SUMMARY)
    again = folded_results(folded, (), folds=True, summary_id=UUID(int=1_000))
    assert again == CoveredResults(folded.results, UUID(int=1_000))


def test_a_summary_that_covers_no_result_lists_nothing() -> None:
    """SPEC A11: no empty list."""
    assert folded_results(None, (), folds=True, summary_id=SUMMARY) is None
    assert folded_results(None, results(1, 1), folds=False, summary_id=SUMMARY) == CoveredResults(results(1, 1))


def test_an_earlier_summary_that_lists_nothing_may_stand_for_results() -> None:
    """SPEC T5: where it had no room for them, the list of all still names them."""
    folded = folded_results(None, results(1, 1), folds=True, summary_id=SUMMARY)
    assert folded == CoveredResults(results(1, 1), SUMMARY)


def test_what_has_no_room_is_left_out_oldest_first() -> None:
    """SPEC K2, K4: as many as fit, counted with their message; none, if not even the name of the rest fits."""
    listed, plain = CoveredResults(results(1, 5)), frame_tokens(BYTES)

    def size(one: CoveredResults) -> int:
        return BYTES.count_message(summary_message("x", one))

    sizes = [size(listed.newest(number, SUMMARY)) for number in range(6)]
    for limit in range(plain, size(listed) + 2):
        found = fitting(listed, SUMMARY, limit=limit, size=size)
        fits = [number for number in range(6) if sizes[number] <= limit]
        assert found == (listed.newest(max(fits), SUMMARY) if fits else None)
        assert found is None or (size(found) <= limit and (found.older is None) == (len(found.results) == 5))
