"""What is left of a conversation however often it was compacted (SPEC A2, K5); `benchmarks.retention` counts it."""

from tests.support.retention import PLANTING, PROTECTED, keeps_nothing, retained
from tests.support.run_world import RunWorld


async def test_protected_inputs_stand_word_for_word_after_any_number_of_compactions(world: RunWorld) -> None:
    """SPEC A2, K2, T5: under the worst summariser; what it loses is gone, and the harness sees that it is."""
    found = await retained(world, 30, keeps_nothing)
    assert len(found.kept) > 5
    for kind in PROTECTED:
        assert [one[kind] for one in found.kept] == [one[kind] for one in found.shown]
        assert found.kept[-1][kind] == len(found.planted[kind])
    assert found.kept[-1]["result"] == found.kept[-1]["earlier question"] == 0


async def test_every_result_that_a_summary_stands_for_can_be_read_back(world: RunWorld) -> None:
    """SPEC T5, K10: whatever the summaries kept, over several of them; with it what a preview did not show."""
    found = await retained(world, 9, keeps_nothing)
    assert len(found.kept) > 2
    assert found.kept[-1]["unread part"] == found.kept[-1]["result"] == 0
    assert found.reachable["unread part"] == found.reachable["result"] == PLANTING
