"""Ids that are given to commands (SPEC 17, Y5)."""

from uuid import UUID

import pytest

from cli.ids import WHERE_TO_LOOK, id_of
from cli.output import CommandError, ExitCode


@pytest.mark.parametrize("given", ["", "x", "../agents", "..", "a/b", "?limit=1", "#", "\udcff", "x" * 10_000])
@pytest.mark.parametrize("kind", WHERE_TO_LOOK)
def test_what_can_be_no_id_never_becomes_part_of_an_address(given: str, kind: str) -> None:
    """17, Y5: `agentloom keys revoke ../connections/x` would be another request altogether."""
    with pytest.raises(CommandError) as refused:
        id_of(kind)(given)
    assert (refused.value.exit_code, refused.value.mend) == (ExitCode.REFUSED, WHERE_TO_LOOK[kind])
    assert len(refused.value.message) < 120
    article = "an" if kind[0] in "aeio" else "a"
    assert f"the id of {article} {kind} is a UUID" in refused.value.why


def test_an_id_is_given_on_in_its_plain_form() -> None:
    """17: however it was written; none stays none."""
    plain = str(UUID(int=0xABC))
    assert id_of("run")(plain.upper()) == id_of("run")(f"urn:uuid:{plain}") == plain
    assert id_of("run")(None) is None
