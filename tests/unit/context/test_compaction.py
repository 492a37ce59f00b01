"""The numbers of compaction: triggers, targets, verdicts."""

from decimal import Decimal
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.budget import Budget, Fits, TooLarge, floor_share, judge
from context.compaction import (
    BudgetPolicy,
    Compact,
    CompactionPolicy,
    CompactionTerms,
    Due,
    HeldBack,
    LastEpisode,
    NotDue,
    NothingToCompact,
    NotSmaller,
    Outcome,
    Refused,
    Shrinks,
    Since,
    back_off_s,
    check_calls,
    compaction_terms,
    consider,
    decide,
    fired,
    judge_summary,
    target_for,
)
from context.errors import CompactionFailedError
from context.policy import ContextSettings

RATIO = Decimal("0.80")
TARGET = Decimal("0.60")


def budget_of(limit: int, *, reserve: int = 8192, ratio: Decimal = RATIO) -> Budget:
    return Budget(limit + reserve, reserve, 0, ratio)


def terms_of(
    limit: int = 100_000,
    *,
    reserve: int = 8192,
    output_limit: int | None = None,
    summary_target: int | None = None,
    target_ratio: Decimal = TARGET,
    user_turns: int | None = None,
    model_steps: int | None = None,
    messages: int | None = None,
    max_calls: int | None = None,
) -> CompactionTerms:
    return CompactionTerms(
        budget=budget_of(limit, reserve=reserve),
        target_ratio=target_ratio,
        keep_recent=limit // 10,
        output_reserve=reserve,
        output_limit=output_limit,
        summary_target=summary_target,
        user_turns=user_turns,
        model_steps=model_steps,
        messages=messages,
        max_calls=max_calls,
    )


def after(outcome: Outcome, *, new: int, under: bool = False, failures: int = 0, waited: float = 0) -> LastEpisode:
    return LastEpisode(outcome, under, summary_tokens=8192, new_material=new, failures=failures, seconds_since=waited)


# --- triggers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "reserve", "safety", "limit", "trigger"),
    [
        (131_072, 8192, 1280, 121_600, 97_280),
        (32_768, 4096, 1024, 27_648, 22_118),
        (131_072, 65_536, 1311, 64_225, 51_380),
    ],
)
def test_compaction_is_due_exactly_at_the_trigger(
    window: int, reserve: int, safety: int, limit: int, trigger: int
) -> None:
    """SPEC B1; the first two are its vectors, the third is the case of a large output reserve."""
    budget = Budget(window, reserve, safety, RATIO)
    terms = CompactionTerms(budget, TARGET, 0, reserve, None)
    assert budget.input_limit == limit
    assert consider(trigger - 1, Since(), None, terms) == NotDue()
    assert consider(trigger, Since(), None, terms) == Due(("budget",))


def test_the_trigger_is_floored_without_binary_floats() -> None:
    """SPEC B1: floor(0.57·100) is 57."""
    terms = CompactionTerms(budget_of(100, ratio=Decimal("0.57")), Decimal("0.29"), 0, 10, None)
    assert fired(56, Since(), terms) == ()
    assert fired(57, Since(), terms) == ("budget",)
    assert terms.goal == 29


def test_the_further_triggers_are_off_unless_set() -> None:
    """SPEC B2."""
    assert fired(1, Since(user_turns=999, model_steps=999, messages=999), terms_of()) == ()


def test_any_one_of_the_further_triggers_suffices() -> None:
    """SPEC B2."""
    terms = terms_of(user_turns=3, model_steps=5, messages=7)
    assert fired(1, Since(user_turns=2, model_steps=4, messages=6), terms) == ()
    assert fired(1, Since(user_turns=3), terms) == ("user_turns",)
    assert fired(1, Since(model_steps=5), terms) == ("model_steps",)
    assert fired(1, Since(messages=7), terms) == ("messages",)
    assert fired(80_000, Since(3, 5, 7), terms) == ("budget", "user_turns", "model_steps", "messages")


def test_one_operation_has_at_most_one_episode_whoever_asks() -> None:
    """SPEC K1, K14."""
    terms = terms_of()
    assert consider(99_999, Since(), None, terms, had_episode=True) == HeldBack("had_episode")
    assert consider(1, Since(), None, terms, had_episode=True, asked="manual") == HeldBack("had_episode")
    assert consider(1, Since(), None, terms, had_episode=True) == NotDue()


@pytest.mark.parametrize("asked", ["manual", "overflow"])
def test_what_is_asked_for_waits_for_no_trigger(asked: Literal["manual", "overflow"]) -> None:
    """SPEC K12, B7."""
    last = after("not_activated", new=0)
    assert consider(10, Since(), last, terms_of(), asked=asked) == Due((asked,))


# --- running away ----------------------------------------------------------------------------------------------------


def test_an_episode_that_could_not_get_under_the_trigger_is_followed_by_none_until_enough_is_new() -> None:
    """SPEC K14: max(T, B/20) of new material."""
    terms = terms_of()
    assert consider(85_000, Since(), after("activated", new=8191), terms) == HeldBack("no_progress")
    assert consider(85_000, Since(), after("activated", new=8192), terms) == Due(("budget",))
    short = LastEpisode("activated", under_trigger=False, summary_tokens=100, new_material=4_999)
    assert consider(85_000, Since(), short, terms) == HeldBack("no_progress")
    enough = LastEpisode("activated", under_trigger=False, summary_tokens=100, new_material=5_000)
    assert consider(85_000, Since(), enough, terms) == Due(("budget",))


def test_a_request_over_the_budget_is_compacted_however_little_is_new() -> None:
    """SPEC K14."""
    last = after("activated", new=1)
    assert consider(100_000, Since(), last, terms_of()) == HeldBack("no_progress")
    assert consider(100_001, Since(), last, terms_of()) == Due(("budget",))


def test_an_episode_that_got_under_the_trigger_holds_nothing_back() -> None:
    """SPEC K14."""
    assert consider(80_000, Since(), after("activated", new=1, under=True), terms_of()) == Due(("budget",))


def test_a_summary_that_did_not_shrink_holds_back_the_counting_triggers_too() -> None:
    """SPEC K8, K14: no baseline moved, so the count alone would fire at every request."""
    terms = terms_of(user_turns=1)
    last = after("not_activated", new=0, under=True)
    assert consider(10, Since(user_turns=1), last, terms) == HeldBack("no_progress")


def test_a_failed_episode_is_tried_again_only_after_new_material_or_a_back_off() -> None:
    """SPEC K8; being over the budget is no reason to repeat it at once."""
    terms = terms_of()
    assert consider(120_000, Since(), after("failed", new=0, failures=1, waited=29), terms) == HeldBack("failed_before")
    assert consider(85_000, Since(), after("failed", new=0, failures=1, waited=30), terms) == Due(("budget",))
    assert consider(85_000, Since(), after("failed", new=1, failures=4), terms) == Due(("budget",))


def test_the_back_off_doubles_and_has_a_ceiling() -> None:
    """SPEC K8."""
    assert [back_off_s(failures) for failures in (1, 2, 3)] == [30, 60, 120]
    assert back_off_s(10_000) == 3_600


def test_six_steps_above_the_trigger_make_one_episode() -> None:
    """SPEC K14, case 044: F 79000, material 6000, a summary of 5900, then steps of 100 tokens."""
    terms = terms_of()
    last: LastEpisode | None = None
    episodes, estimated, new = 0, 85_000, 6_000
    for _ in range(6):
        verdict = consider(estimated, Since(), last, terms)
        if isinstance(verdict, Due):
            episodes += 1
            assert judge_summary(before=85_000, after=84_900, terms=terms) == Shrinks(False, False)
            estimated, new = 84_900, 0
        estimated, new = estimated + 100, new + 100
        last = LastEpisode("activated", under_trigger=False, summary_tokens=8192, new_material=new)
    assert episodes == 1


# --- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fixed", "material", "summary", "space"),
    [(65_000, 20_000, 8192, 35_000), (79_000, 6_000, 8192, 21_000), (96_000, 6_000, 4_000, 4_000)],
)
def test_the_vectors_of_k4(fixed: int, material: int, summary: int, space: int) -> None:
    """SPEC K4: B=100000, O=8192."""
    verdict = decide(fixed + material, fixed=fixed, material=material, terms=terms_of())
    assert isinstance(verdict, Compact)
    assert (verdict.target.summary, verdict.target.space) == (summary, space)


def test_a_full_summary_beside_65000_fixed_tokens_makes_73192() -> None:
    """SPEC K4."""
    target = target_for(65_000, terms_of())
    assert target.room == -5_000
    assert target.fixed + target.summary == 73_192


def test_no_room_at_all_is_refused_with_material() -> None:
    """SPEC K3, K4: H = 0."""
    verdict = decide(106_000, fixed=100_000, material=6_000, terms=terms_of())
    assert verdict == Refused("CONTEXT_PROTECTED_INPUT_TOO_LARGE")


def test_nothing_to_compact_goes_on_if_it_fits_and_is_refused_if_not() -> None:
    """SPEC K3, K4."""
    assert decide(85_000, fixed=85_000, material=0, terms=terms_of()) == NothingToCompact()
    assert decide(100_000, fixed=100_000, material=0, terms=terms_of()) == NothingToCompact()
    refused = Refused("CONTEXT_PROTECTED_INPUT_TOO_LARGE")
    assert decide(100_001, fixed=100_001, material=0, terms=terms_of()) == refused


def test_without_room_for_a_summary_a_request_stands_or_falls_by_its_own_size() -> None:
    """SPEC K3, K8: `fixed` has the frame of a summary in it, the request has not."""
    assert decide(100_000, fixed=100_050, material=60, terms=terms_of()) == NothingToCompact()
    refused = Refused("CONTEXT_PROTECTED_INPUT_TOO_LARGE")
    assert decide(100_001, fixed=100_050, material=61, terms=terms_of()) == refused


def test_a_summary_that_could_have_no_token_for_another_reason_is_a_configuration_error() -> None:
    """SPEC K3."""
    tiny = terms_of(limit=3, reserve=1)
    assert decide(3, fixed=1, material=2, terms=tiny) == Refused("CONFIGURATION_INVALID")


def test_the_summary_is_fitted_under_the_target_ratio_where_that_leaves_a_useful_length() -> None:
    """SPEC K2: D if D ≥ min(1024, C), else C."""
    assert target_for(55_000, terms_of()).summary == 5_000
    assert target_for(58_976, terms_of()).summary == 1_024
    assert target_for(58_977, terms_of()).summary == 8_192


def test_a_configured_length_is_taken_up_to_the_hard_limit() -> None:
    """SPEC K2."""
    assert target_for(10_000, terms_of(summary_target=12_000)).summary == 8_192
    assert target_for(10_000, terms_of(summary_target=500)).summary == 500
    assert target_for(99_900, terms_of(summary_target=500)).summary == 100


def test_the_summarising_models_output_limit_bounds_the_summary() -> None:
    """SPEC K2, K3."""
    assert target_for(10_000, terms_of(output_limit=2_000)).summary == 2_000
    assert target_for(10_000, terms_of(reserve=1_500)).summary == 1_500


def test_a_quarter_of_the_budget_bounds_the_default_length() -> None:
    """SPEC K2: floor(B/4)."""
    assert target_for(1_000, terms_of(limit=10_001)).cap == 2_500


budgets = st.integers(1, 2_000_000)


@given(budgets, st.integers(1, 100_000), st.none() | st.integers(1, 50_000), st.data())
def test_a_summary_always_fits_beside_what_stays(
    limit: int, reserve: int, output_limit: int | None, data: st.DataObject
) -> None:
    """SPEC K2: F + T ≤ B, T within every limit, never negative where there is space."""
    fixed = data.draw(st.integers(0, limit + 1_000))
    configured = data.draw(st.none() | st.integers(1, 100_000))
    terms = terms_of(limit, reserve=reserve, output_limit=output_limit, summary_target=configured)
    verdict = decide(fixed + 1, fixed=fixed, material=1, terms=terms)
    if isinstance(verdict, Compact):
        summary = verdict.target.summary
        assert 0 < summary <= min(reserve, output_limit or reserve)
        assert fixed + summary <= limit
        assert summary <= (configured or 8_192)
    else:
        assert verdict == Refused("CONTEXT_PROTECTED_INPUT_TOO_LARGE" if fixed >= limit else "CONFIGURATION_INVALID")


@given(budgets, st.decimals("0.01", "1", places=2), st.data())
def test_a_fitted_summary_reaches_the_target_ratio(limit: int, ratio: Decimal, data: st.DataObject) -> None:
    """SPEC K2: where D decides, F + T is at most floor(B·q)."""
    terms = terms_of(limit, target_ratio=ratio)
    fixed = data.draw(st.integers(0, limit))
    target = target_for(fixed, terms)
    if target.room >= min(1_024, target.cap):
        assert fixed + target.summary <= floor_share(ratio, limit)
    else:
        assert target.summary == target.cap


def test_the_terms_of_a_definition_keep_a_tenth_of_the_budget_unless_told_otherwise() -> None:
    """SPEC K2."""
    budget = budget_of(12_345)
    default = compaction_terms(ContextSettings(), budget, output_reserve=10, output_limit=None)
    assert default.keep_recent == 1_234
    none = compaction_terms(ContextSettings(keep_recent_tokens=0), budget, output_reserve=10, output_limit=None)
    assert none.keep_recent == 0


def test_the_terms_of_a_definition_carry_every_trigger() -> None:
    """SPEC B2, K6."""
    settings = ContextSettings(
        user_turns=1, model_steps=2, messages=3, max_compaction_calls=4, summary_target_tokens=5, target_ratio=TARGET
    )
    terms = compaction_terms(settings, budget_of(1_000), output_reserve=10, output_limit=7)
    assert (terms.user_turns, terms.model_steps, terms.messages, terms.max_calls) == (1, 2, 3, 4)
    assert (terms.summary_target, terms.output_limit, terms.goal) == (5, 7, 600)


# --- outcomes --------------------------------------------------------------------------------------------------------


def test_a_smaller_summary_is_activated_even_if_the_view_stays_above_the_trigger() -> None:
    """SPEC K4: (79000, 6000)."""
    terms = terms_of()
    assert judge_summary(before=85_000, after=84_999, terms=terms) == Shrinks(False, False)
    assert judge_summary(before=85_000, after=79_999, terms=terms) == Shrinks(False, under_trigger=True)
    assert judge_summary(before=85_000, after=60_000, terms=terms) == Shrinks(reaches_target=True, under_trigger=True)


@pytest.mark.parametrize("size", [6_000, 6_001, 9_000])
def test_a_summary_that_is_not_smaller_is_kept_and_the_originals_are_sent(size: int) -> None:
    """SPEC K4, K8, case 051."""
    terms = terms_of()
    assert judge_summary(before=85_000, after=79_000 + size, terms=terms) == NotSmaller()
    assert judge(85_000, terms.budget, protected=0) == Fits()


def test_an_assembled_request_of_one_token_too_many_is_over_the_window() -> None:
    """SPEC K4: 100001 after compaction; the summary shrank the view, and that is not enough."""
    terms = terms_of()
    assert judge_summary(before=120_000, after=100_001, terms=terms) == Shrinks(False, False)
    assert judge(100_001, terms.budget, protected=96_000) == TooLarge(protected=False)


def test_a_plan_longer_than_allowed_is_refused_before_the_first_call() -> None:
    """SPEC K6."""
    check_calls(17, terms_of())
    check_calls(4, terms_of(max_calls=4))
    with pytest.raises(CompactionFailedError) as refusal:
        check_calls(5, terms_of(max_calls=4))
    assert refusal.value.numbers == {"calls": 5, "max_compaction_calls": 4}


def test_the_policy_is_a_port_with_the_rules_of_the_specification_behind_it() -> None:
    """SPEC B8."""
    policy: CompactionPolicy = BudgetPolicy()
    terms = terms_of()
    assert policy.consider(80_000, Since(), None, terms) == Due(("budget",))
    assert policy.decide(85_000, fixed=85_000, material=0, terms=terms) == NothingToCompact()
