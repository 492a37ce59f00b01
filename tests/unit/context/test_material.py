"""The lasting names of what a view shows."""

from uuid import UUID

import pytest

from context.material import Material, piece_of
from context.views import ItemKind, ViewItem

ID = UUID(int=3)


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        ("input", "input"),
        ("assistant", "record"),
        ("tool_result", "record"),
        ("feedback", "record"),
        ("placeholder", "call"),
        ("summary", "summary"),
        ("state", "state"),
        ("reference", "reference"),
    ],
)
def test_a_piece_is_named_by_what_it_is_and_its_id(kind: ItemKind, prefix: str) -> None:
    """SPEC K10: a name stays the same over views and Runs."""
    assert piece_of(ViewItem(kind, b"p", 1, ID)) == f"{prefix}/{ID}"
    assert piece_of(ViewItem(kind, b"q", 9, ID, run_no=4)) == f"{prefix}/{ID}"


def test_the_end_of_a_run_is_named_by_its_number() -> None:
    """SPEC K10: a resumed Run ends anew, under the same name and with other content."""
    assert piece_of(ViewItem("marker", b"p", 1, run_no=4)) == "end/4"
    assert piece_of(ViewItem("system", b"p", 1)) == "system"


def test_material_is_named_by_its_item() -> None:
    """SPEC K10."""
    assert Material(ViewItem("assistant", b"p", 1, ID), b"d", run_no=2).piece == f"record/{ID}"
