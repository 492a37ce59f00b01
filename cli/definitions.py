"""Agent definitions as files: YAML, TOML or JSON read as plain data, with nothing dropped or converted in silence.

YAML is looked at event by event before anything is built from it: an anchor, an alias, a tag, a second document, a key
that is there twice or is no text, and deep nesting are refused with their line.
"""

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.output import CommandError

if TYPE_CHECKING:
    import yaml

FORMATS = ".yaml, .yml, .toml or .json"
MAX_BYTES = 8 << 20
MAX_DEPTH = 64


class _UnreadableError(Exception):
    """What is wrong in the text, and where if that is known."""


def read_definition(file: Path) -> dict[str, Any]:
    """The definition in a file, unchecked but for its form. Raises CommandError if it can't be read as a mapping."""
    parse = _parser(file)
    try:
        value = parse(_text(file))
    except _UnreadableError as error:
        raise CommandError(f"{file} can't be parsed.", why=str(error)) from None
    except RecursionError:
        raise CommandError(f"{file} can't be parsed.", why=_too_deep()) from None
    if not isinstance(value, dict):
        raise CommandError(
            f"{file} does not hold an agent definition.", why="It must be a mapping with name and model."
        )
    _check_json(file, value)
    return value


def _parser(file: Path) -> Callable[[str], Any]:
    match file.suffix.lower():
        case ".json":
            return _json
        case ".toml":
            return _toml
        case ".yaml" | ".yml":
            return _yaml
        case _:
            _text(file)  # one that is not there is said to be that
            raise CommandError(f"{file} has no known format.", why=f"The name must end in {FORMATS}.")


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise CommandError(f"{file} is larger than {MAX_BYTES >> 20} MiB.")
        return content.decode("utf-8")
    except OSError as error:
        raise CommandError(f"{file} can't be read.", why=error.strerror or "") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file} is not UTF-8 text.") from None


def _check_json(file: Path, value: Any) -> None:
    """Raises CommandError for what JSON does not have, such as dates, NaN and half a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError):
        raise CommandError(
            f"{file} holds a value that JSON does not have.", why="Write dates and the like in quotes."
        ) from None


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise _UnreadableError(f"line {error.lineno}: {error.msg}") from None
    except ValueError:  # Python refuses integers of thousands of digits
        raise _UnreadableError("It holds a number that is too large.") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _UnreadableError(f"The key {name} is there twice in one mapping.")
        found[name] = value
    return found


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # tomllib.TOMLDecodeError, which names line and column, is one
        raise _UnreadableError(str(error)) from None


def _yaml(text: str) -> Any:
    import yaml

    try:
        _check_events(yaml.parse(text, Loader=yaml.SafeLoader))
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _check_keys(node)
        return loader.construct_document(node) if node else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _UnreadableError(f"{_line(mark)}{error.problem or error.context}") from None
    except yaml.YAMLError as error:  # a character that YAML does not take
        raise _UnreadableError(" ".join(str(error).split())) from None
    except ValueError:  # such as a date without that day, or an integer of thousands of digits
        raise _UnreadableError("It holds a value that can't be read; write it in quotes.") from None


def _check_events(events: "Iterator[yaml.Event]") -> None:
    """Raises _UnreadableError for what is more than one plain document."""
    import yaml

    depth = documents = 0
    for event in events:
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if reason := _more_than_plain(event, depth=depth, documents=documents):
            raise _UnreadableError(f"{_line(event.start_mark)}{reason}")


def _more_than_plain(event: "yaml.Event", *, depth: int, documents: int) -> str | None:
    import yaml

    if documents > 1:
        return "a second document begins; a file holds one definition"
    if depth > MAX_DEPTH:
        return _too_deep()
    if isinstance(event, yaml.AliasEvent):
        return "an alias (*name) is not taken; write the value out"
    if getattr(event, "anchor", None):
        return "an anchor (&name) is not taken; write the value out"
    if getattr(event, "tag", None):
        return "a tag (!name) is not taken; a definition is plain data"
    return None


def _check_keys(node: "yaml.Node | None") -> None:
    """Raises _UnreadableError for a key that is no text, or is there twice. Depth was looked at before."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _check_keys(child)
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, child in node.value:
            _check_key(key, lines)
            _check_keys(child)


def _check_key(key: "yaml.Node", lines: dict[str, int]) -> None:
    line = key.start_mark.line + 1
    if key.tag != "tag:yaml.org,2002:str":
        raise _UnreadableError(f"line {line}: a key must be text; put it in quotes")
    if key.value in lines:
        raise _UnreadableError(f"line {line}: the key {key.value} is there already, in line {lines[key.value]}")
    lines[key.value] = line


def _line(mark: Any) -> str:
    return f"line {mark.line + 1}: " if mark else ""


def _too_deep() -> str:
    return f"it is nested deeper than {MAX_DEPTH} levels"
