"""What can be summarised, and the view with the summary in place."""

from dataclasses import replace
from decimal import Decimal
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from context.budget import Budget
from context.compaction import Compact, CompactionTerms, NothingToCompact, Refused, decide
from context.material import piece_of
from context.pairing import GroupBorders
from context.protected import ProtectedPresent
from context.snapshots import SummaryChains, doubled, summary_item
from context.summary_view import Partition, partition, protocol_tail, unfolded, with_summary, without_covered
from context.views import ItemKind, ViewItem, total_tokens

SUMMARY = summary_item(UUID(int=999), b"s", 30)
BESIDE, FRAME = 50, 20


def terms_of(limit: int = 1_000, *, keep: int = 0) -> CompactionTerms:
    budget = Budget(limit + 100, 100, 0, Decimal("0.80"))
    return CompactionTerms(budget, Decimal("0.60"), keep, 100, None)


def item(kind: ItemKind, number: int, *, run_no: int | None = None, tokens: int = 10) -> ViewItem:
    return ViewItem(kind, b"p%d" % number, tokens, UUID(int=number), run_no)


def turn(number: int, *, run_no: int | None = None, tokens: int = 10) -> list[ViewItem]:
    return [
        item("assistant", number, run_no=run_no, tokens=tokens),
        item("tool_result", number + 1, run_no=run_no, tokens=tokens),
    ]


SYSTEM = ViewItem("system", b"sys", 10)
OLD_RUN = [
    item("input", 1, run_no=1),
    *turn(2, run_no=1),
    item("assistant", 4, run_no=1),
    ViewItem("marker", b"m", 5, run_no=1),
]
VIEW = [SYSTEM, *OLD_RUN, item("input", 10), *turn(11), *turn(13), *turn(15)]


def divided(
    items: list[ViewItem],
    terms: CompactionTerms | None = None,
    *,
    pinned: frozenset[UUID] = frozenset(),
    whole_from: int | None = None,
) -> Partition:
    sizes = {"beside": BESIDE, "frame": FRAME}
    return partition(items, terms or terms_of(), pinned=pinned, whole_from=whole_from, **sizes)


def test_a_list_of_results_is_a_part_of_what_stays_as_far_as_the_summary_needs_no_room_there() -> None:
    """SPEC K2, K4: F has it, so that F + T is the assembled request; it gives way before T does."""
    listing = replace(terms_of(), listing=60)
    for protected, listed in ((0, 60), (180, 60), (210, 30), (240, 0), (300, 0)):
        view = [*VIEW, item("input", 90, tokens=protected)]
        fixed = divided(view).fixed
        assert fixed == 110 + protected
        assert divided(view, listing).fixed == fixed + listed


def test_no_room_is_kept_for_a_list_where_nothing_could_be_listed() -> None:
    """SPEC K2: neither results nor an earlier summary are among what goes."""
    plain = [SYSTEM, item("input", 1, run_no=1), item("assistant", 4, run_no=1), item("input", 10)]
    assert divided(plain, replace(terms_of(), listing=60)) == divided(plain)


# --- the tail --------------------------------------------------------------------------------------------------------


def test_the_tail_is_the_last_calls_that_the_model_has_not_answered() -> None:
    """SPEC K2."""
    assert protocol_tail(VIEW) == 11


def test_a_feedback_that_the_model_has_not_answered_is_tail() -> None:
    """SPEC K2, L1."""
    assert protocol_tail([*VIEW, item("assistant", 20), item("feedback", 21)]) == 13


def test_an_answer_with_only_an_input_after_it_is_no_tail() -> None:
    """SPEC K2, S7: the input is protected anyway."""
    assert protocol_tail([*VIEW, item("assistant", 20), item("input", 21)]) == len(VIEW) + 2


def test_a_first_request_has_no_tail_and_earlier_runs_make_none() -> None:
    """SPEC K2."""
    assert protocol_tail([SYSTEM, *OLD_RUN[:3], item("input", 10)]) == 5
    assert protocol_tail([]) == 0


# --- taking apart ----------------------------------------------------------------------------------------------------


def test_system_current_inputs_and_the_tail_stay_and_the_rest_goes() -> None:
    """SPEC K2, K5."""
    parts = divided(VIEW)
    assert parts.covered == (1, 2, 3, 4, 5, 7, 8, 9, 10)
    assert parts.material == 10 + 20 + 10 + 5 + 40
    assert parts.fixed == FRAME + BESIDE + 10 + 10 + 20


def test_the_newest_groups_within_the_given_tokens_stay() -> None:
    """SPEC K2: complete groups only."""
    assert divided(VIEW, terms_of(keep=20)).kept == (9, 10)
    assert divided(VIEW, terms_of(keep=39)).kept == (9, 10)
    assert divided(VIEW, terms_of(keep=40)).kept == (7, 8, 9, 10)
    assert divided(VIEW, terms_of(keep=19)).kept == ()


def test_kept_groups_are_given_up_oldest_first_until_the_rest_is_small_enough() -> None:
    """SPEC K2: until F ≤ floor(B·q)."""
    hard = FRAME + BESIDE + 40
    limit_for_one = -(-(hard + 20) * 10 // 6)
    assert divided(VIEW, terms_of(limit_for_one, keep=500)).kept == (9, 10)
    assert divided(VIEW, terms_of(limit_for_one - 2, keep=500)).kept == ()


def test_a_pinned_source_keeps_its_whole_group() -> None:
    """SPEC K2, K15: frozen hook additions stay, and no call loses its result."""
    parts = divided(VIEW, pinned=frozenset({UUID(int=12)}))
    assert parts.covered == (1, 2, 3, 4, 5, 9, 10)


def test_an_earlier_summary_is_folded_together_with_what_followed_it() -> None:
    """SPEC K10, K14."""
    view = [SYSTEM, SUMMARY, item("input", 10), *turn(11), *turn(13)]
    parts = divided(view)
    assert parts.folds == 1
    assert parts.covered == (1, 3, 4)
    assert parts.material == 30 + 20


def test_a_summary_alone_is_no_material_unless_nothing_else_can_go() -> None:
    """SPEC K3, K14."""
    view = [SYSTEM, SUMMARY, item("input", 10), *turn(13)]
    parts = divided(view)
    assert (parts.material, parts.covered) == (0, ())
    assert parts.fixed == total_tokens(tuple(view)) + BESIDE
    tight = divided(view, terms_of(limit=parts.fixed - 1))
    assert (tight.material, tight.covered) == (30, (1,))


def test_what_is_no_longer_than_the_frame_of_a_summary_is_no_material_unless_nothing_else_can_go() -> None:
    """SPEC K3, K8: no summary of it could shrink the request, so none is paid for."""
    few = [SYSTEM, item("input", 1, tokens=FRAME - 10, run_no=1), item("assistant", 4, run_no=1), item("input", 10)]
    as_it_is = total_tokens(tuple(few)) + BESIDE
    assert divided(few) == Partition(as_it_is, 0, (), (), None)
    assert divided([*few, item("input", 90, tokens=1_000)]).material == FRAME
    more = [*few, item("input", 5, tokens=1, run_no=1)]
    assert divided(more).material == FRAME + 1


def test_with_nothing_to_compact_the_request_goes_on_if_it_fits() -> None:
    """SPEC K3."""
    view = [SYSTEM, item("input", 10), *turn(13)]
    total = total_tokens(tuple(view)) + BESIDE
    for limit, verdict in (
        (total, NothingToCompact()),
        (total - 1, Refused("CONTEXT_PROTECTED_INPUT_TOO_LARGE")),
    ):
        parts = divided(view, terms_of(limit))
        assert decide(total, fixed=parts.fixed, material=parts.material, terms=terms_of(limit)) == verdict


# --- putting together ------------------------------------------------------------------------------------------------


def test_the_view_is_system_summary_and_the_rest_in_its_order() -> None:
    """SPEC A1, A2, case 048: question and supplement after the summary, once each, in order."""
    view = [SYSTEM, *OLD_RUN, item("input", 10), *turn(11), item("input", 20), *turn(21)]
    after = with_summary(view, frozenset(divided(view).covered), SUMMARY)
    assert after == (SYSTEM, SUMMARY, item("input", 10), item("input", 20), *turn(21))


def test_a_view_without_system_message_begins_with_the_summary() -> None:
    """SPEC A1."""
    view = [*turn(1, run_no=1), item("input", 10)]
    assert with_summary(view, {0, 1}, SUMMARY) == (SUMMARY, item("input", 10))


def test_unfolding_gives_back_the_originals_and_what_came_since() -> None:
    """SPEC K9, K10: a changed piece in its newest version."""
    compacted = with_summary(VIEW, frozenset(divided(VIEW).covered), SUMMARY)
    grown = [*compacted, *turn(31)]
    changed = item("assistant", 11, tokens=99)
    back = unfolded(VIEW, grown, inherited=len(compacted), changed={piece_of(changed): changed})
    assert back == (*VIEW[:7], changed, *VIEW[8:], *turn(31))


def test_a_later_run_begins_with_a_snapshot_and_what_it_does_not_cover() -> None:
    """SPEC P2, P7."""
    first = [SYSTEM, *OLD_RUN, item("input", 40)]
    covered = {piece_of(one) for one in OLD_RUN}
    assert without_covered(first, SUMMARY, covered) == (SYSTEM, SUMMARY, item("input", 40))


# --- properties ------------------------------------------------------------------------------------------------------


@st.composite
def views(draw: st.DrawFn) -> list[ViewItem]:
    """A legal view: maybe a system message, maybe a summary, earlier Runs, then the current Run."""
    numbers = iter(range(1, 1_000))
    tokens = st.integers(1, 60)

    def group(run_no: int | None) -> list[ViewItem]:
        plain: list[ItemKind] = ["input", "assistant", "feedback"]
        if draw(st.booleans()):
            return [item(draw(st.sampled_from(plain)), next(numbers), run_no=run_no, tokens=draw(tokens))]
        results: list[ItemKind] = draw(
            st.lists(st.sampled_from(["tool_result", "placeholder"]), min_size=1, max_size=3)
        )
        every: list[ItemKind] = ["assistant", *results]
        return [item(one, next(numbers), run_no=run_no, tokens=draw(tokens)) for one in every]

    built = [SYSTEM] if draw(st.booleans()) else []
    built += [SUMMARY] if draw(st.booleans()) else []
    for run_no in range(1, draw(st.integers(0, 2)) + 1):
        built += [one for _ in range(draw(st.integers(0, 3))) for one in group(run_no)]
        built.append(ViewItem("marker", b"m", 5, run_no=run_no))
    built.append(item("input", next(numbers), tokens=draw(tokens)))
    return built + [one for _ in range(draw(st.integers(0, 6))) for one in group(None)]


limits = st.integers(100, 2_000)


@settings(max_examples=40)
@given(views(), limits, st.integers(0, 300))
def test_no_pair_is_broken_and_no_protected_input_is_lost_whatever_is_compacted(
    view: list[ViewItem], limit: int, keep: int
) -> None:
    """SPEC A2, A4, K5."""
    parts = divided(view, terms_of(limit, keep=keep))
    after = with_summary(view, frozenset(parts.covered), SUMMARY)
    required = [piece_of(one) for one in view if one.kind == "input" and one.run_no is None]
    assert ProtectedPresent(required).breaches(after) == ()
    assert GroupBorders([one.kind for one in view]).breaches(set(range(len(view))) - set(parts.covered)) == ()
    assert GroupBorders([one.kind for one in after]).breaches() == ()


@settings(max_examples=40)
@given(views(), limits, st.integers(0, 300))
def test_what_stays_keeps_its_order_and_everything_is_there_once(view: list[ViewItem], limit: int, keep: int) -> None:
    """SPEC K10, A7."""
    parts = divided(view, terms_of(limit, keep=keep))
    after = with_summary(view, frozenset(parts.covered), SUMMARY) if parts.covered else tuple(view)
    stays = [one for at, one in enumerate(view) if at not in parts.covered]
    assert [one for one in after if one.kind != "summary"] == [one for one in stays if one.kind != "summary"]
    covered = [view[at] for at in parts.covered if view[at].kind != "summary"]
    chains = SummaryChains({piece_of(one): {piece_of(SUMMARY)} for one in covered}, {piece_of(SUMMARY): None})
    assert doubled([piece_of(one) if one.source_id else None for one in after], chains) == ()


@settings(max_examples=40)
@given(views(), limits, st.integers(0, 300))
def test_the_sizes_of_a_partition_are_those_of_the_request(view: list[ViewItem], limit: int, keep: int) -> None:
    """SPEC K2: nothing is counted in F and in the material."""
    parts = divided(view, terms_of(limit, keep=keep))
    whole = total_tokens(tuple(view)) + BESIDE
    if parts.covered:
        assert parts.fixed - FRAME + parts.material == whole
    elif whole <= limit:
        assert parts.fixed == whole


@settings(max_examples=40)
@given(views(), limits, st.integers(0, 300))
def test_kept_groups_never_hold_more_than_allowed(view: list[ViewItem], limit: int, keep: int) -> None:
    """SPEC K2."""
    terms = terms_of(limit, keep=keep)
    parts = divided(view, terms)
    size = sum(view[at].tokens for at in parts.kept)
    assert size <= keep
    if parts.kept and parts.covered:
        assert parts.fixed <= terms.goal


@settings(max_examples=40)
@given(views(), limits, st.integers(0, 300))
def test_an_assembled_request_with_a_full_summary_fits(view: list[ViewItem], limit: int, keep: int) -> None:
    """SPEC K2, K4: F + T ≤ B."""
    terms = terms_of(limit, keep=keep)
    parts = divided(view, terms)
    whole = total_tokens(tuple(view)) + BESIDE
    verdict = decide(whole, fixed=parts.fixed, material=parts.material, terms=terms)
    if isinstance(verdict, Compact):
        summary = summary_item(UUID(int=998), b"s", FRAME + verdict.target.summary)
        after = with_summary(view, frozenset(parts.covered), summary)
        assert total_tokens(after) + BESIDE <= limit


@settings(max_examples=40)
@given(views(), limits, st.lists(st.integers(0, 3), max_size=3))
def test_unfolding_is_the_way_back(view: list[ViewItem], limit: int, since: list[int]) -> None:
    """SPEC K9."""
    compacted = with_summary(view, frozenset(divided(view, terms_of(limit)).covered), SUMMARY)
    new = [one for number in since for one in turn(2_000 + 2 * number)]
    assert unfolded(view, [*compacted, *new], inherited=len(compacted)) == (*view, *new)


def test_runs_that_stay_whole_are_the_recent_groups_of_which_no_more_are_kept() -> None:
    """SPEC P7, K2, K12: what the next Run shows whole is never summarised, and counts as kept."""
    old = [item("input", 1, run_no=1, tokens=FRAME + 1), *turn(2, run_no=1)]
    view = [SYSTEM, *old, item("input", 5, run_no=2), *turn(6, run_no=2)]
    assert divided(view).covered == (1, 2, 3, 4, 5, 6)
    assert divided(view, whole_from=2).covered == (1, 2, 3)
    assert divided(view, terms_of(keep=30), whole_from=2).covered == (1, 2, 3), "the recent Run is enough"
    assert divided(view, terms_of(keep=50), whole_from=2).covered == (1,)
    assert divided(view, whole_from=1).material == 0
