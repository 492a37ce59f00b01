"""Agent definitions as files, and the page that documents them."""

from pathlib import Path

import pytest

from cli.docs import FILE, definition_page
from cli.output import CommandError
from cli.publish import read_definition

SAME = {"name": "a", "model": {"provider": "demo", "model": "demo"}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "name: a\nmodel: {provider: demo, model: demo}\n"),
        ("a.YML", "name: a\nmodel:\n  provider: demo\n  model: demo\n"),
        ("a.toml", 'name = "a"\n[model]\nprovider = "demo"\nmodel = "demo"\n'),
        ("a.json", '{"name": "a", "model": {"provider": "demo", "model": "demo"}}'),
    ],
)
def test_yaml_toml_and_json_give_the_same_definition(tmp_path: Path, name: str, text: str) -> None:
    """18."""
    (tmp_path / name).write_text(text)
    assert read_definition(tmp_path / name) == SAME


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"x", "no known format"),
        ("a.yaml", b"a: [", "can't be parsed"),
        ("a.yaml", b"- a\n", "does not hold an agent definition"),
        ("a.yaml", b"name: 2026-11-30\n", "a value that JSON does not have"),
        ("a.yaml", b"name: !!python/object/apply:os.getcwd []\n", "can't be parsed"),
        ("a.json", b"{", "can't be parsed"),
        ("a.toml", b"name = ", "can't be parsed"),
        ("a.json", b"\xff", "not UTF-8"),
    ],
)
def test_a_file_that_holds_no_definition_is_a_usage_error(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    """17: what, why, next; never a traceback."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CommandError, match=said) as caught:
        read_definition(tmp_path / name)
    assert caught.value.exit_code == 2


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    """17."""
    with pytest.raises(CommandError, match="can't be read"):
        read_definition(tmp_path / "gone.yaml")


def test_the_page_about_definitions_is_what_the_model_says() -> None:
    """18: every default is in docs/agent-definition.md, generated from the model. Mend it with: agentloom docs."""
    assert FILE.read_text(encoding="utf-8") == definition_page()
