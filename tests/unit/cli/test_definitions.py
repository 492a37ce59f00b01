"""Agent definitions as files, and the page that documents them."""

from pathlib import Path

import pytest

from cli.definitions import read_definition
from cli.docs import FILE, definition_page
from cli.output import CommandError
from cli.publish import place_in_file

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


PLAIN = "name: a\nmodel: {provider: demo, model: demo}\n"
BOMB = "a: &a [x, x]\n" + "".join(f"{n}: &{n} [*{p}, *{p}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.yaml", PLAIN + "name: b\n", "line 3: the key name is there already, in line 1"),
        (
            "a.yaml",
            "model: {provider: demo,\n  provider: demo}\n",
            "line 2: the key provider is there already, in line 1",
        ),
        ("a.yaml", PLAIN + "tools:\n- {name: t, name: t}\n", "line 4: the key name is there already, in line 4"),
        ("a.yaml", PLAIN + BOMB, "line 3: an anchor"),
        ("a.yaml", "name: *x\n", "line 1: an alias"),
        ("a.yaml", PLAIN + "<<: {x: 1}\n", "line 3: a key must be text"),
        ("a.yaml", "name: a\nmodel: !!python/object/apply:os.getcwd []\n", "line 2: a tag"),
        ("a.yaml", "name: !secret a\n", "line 1: a tag"),
        ("a.yaml", PLAIN + "---\n" + PLAIN, "line 3: a second document"),
        ("a.yaml", PLAIN + "on: x\n", "line 3: a key must be text; put it in quotes"),
        ("a.yaml", PLAIN + "8: x\n", "line 3: a key must be text"),
        ("a.yaml", PLAIN + "? [a, b]\n: x\n", "line 3: a key must be text"),
        ("a.yaml", PLAIN + "x: " + "[" * 70 + "]" * 70, "line 3: it is nested deeper than 64 levels"),
        ("a.yaml", PLAIN + "x: " + "[" * 100_000, "line 3: it is nested deeper than 64 levels"),
        ("a.yaml", PLAIN + "x: 'y\n", "line 4: found unexpected end of stream"),
        ("a.yaml", PLAIN + "x: 2026-99-99\n", "write it in quotes"),
        ("a.yaml", "name: a\x00\n", "special characters are not allowed"),
        ("a.json", '{"name": "a",\n"name": "b"}', "The key name is there twice"),
        ("a.json", '{"name": "a",\n"model" {}}', "line 2: Expecting"),
        ("a.json", '{"name": ' + "9" * 5_000 + "}", "number that is too large"),
        ("a.json", '{"name": ' + "[" * 100_000, "nested deeper"),
        ("a.toml", 'name = "a"\nname = "b"\n', "line 2"),
        ("a.toml", "x = " + "[" * 100_000, "nested deeper"),
    ],
)
def test_a_file_that_says_more_or_less_than_it_seems_is_refused_with_its_line(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    """18, Y5: nothing is dropped, built or converted in silence."""
    (tmp_path / name).write_text(text)
    with pytest.raises(CommandError, match="can't be parsed") as caught:
        read_definition(tmp_path / name)
    assert why in caught.value.why


@pytest.mark.parametrize(("name", "text"), [("a.toml", "x = nan\n"), ("a.yaml", "x: .inf\n"), ("a.json", '{"x": NaN}')])
def test_a_number_that_is_none_is_refused(tmp_path: Path, name: str, text: str) -> None:
    """Y5."""
    (tmp_path / name).write_text(text)
    with pytest.raises(CommandError, match="a value that JSON does not have"):
        read_definition(tmp_path / name)


def test_half_a_surrogate_pair_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    """Y5."""
    (tmp_path / "a.yaml").write_text('name: "\\ud83d"\n')
    with pytest.raises(CommandError, match="a value that JSON does not have"):
        read_definition(tmp_path / "a.yaml")


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    """Y5."""
    (tmp_path / "a.yaml").symlink_to("/dev/zero")
    with pytest.raises(CommandError, match="larger than 8 MiB"):
        read_definition(tmp_path / "a.yaml")


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    """17."""
    with pytest.raises(CommandError, match="can't be read"):
        read_definition(tmp_path / "gone.yaml")


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("body.definition.(field 2)", "instrucions"),
        ("body.definition.tools.0.headers.(field 1).(its name)", "tools.0.headers.X y.(its name)"),
        ("body.definition.tools.0.timeout_s", "tools.0.timeout_s"),
        ("body.definition.model", "model"),
        ("body", "body"),
        ("body.definition.(unnamed).1.x", "(unnamed).1.x"),
    ],
)
def test_a_place_told_by_position_is_shown_by_the_files_own_names(place: str, shown: str) -> None:
    """17: what is wrong in a file is named for whoever wrote it."""
    definition = {"name": "a", "instrucions": "x", "tools": [{"headers": {"X y": "v"}}]}
    assert place_in_file(definition, place) == shown


def test_the_page_about_definitions_is_what_the_model_says() -> None:
    """18: every default is in docs/agent-definition.md, generated from the model. Mend it with: agentloom docs."""
    assert FILE.read_text(encoding="utf-8") == definition_page()
