"""`agentloom docs`: writes the reference of agent definitions from the model itself, so that it cannot drift.

Hidden from the help: it is for whoever changes the definition. A test compares the file with what this writes.
"""

import types
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cli.output import print_lines

FILE = Path(__file__).resolve().parent.parent / "docs" / "agent-definition.md"

OPENING = """\
# Agent definition

What a person writes to make an agent, in YAML, TOML or JSON: `agentloom publish FILE`. Unknown keys are errors. This
page is written by `agentloom docs` from the model that checks definitions; change the model, not the page.

Nothing is converted in silence: `"8"` and `8.0` are no integers, `1` and `"yes"` are not true, `null` stands only for
none. A decimal may stand in quotes, as releases show it. Text, lists and numbers have the limits below; a mapping
without one has at most 100 000 bytes as JSON, all parts of the instructions together 1 000 000 characters, a decimal 18
places, and a file or a request 8 MiB with 100 000 values. A file in YAML is plain data: no anchors, tags or second
document, no key twice, and keys are text (quote `"on"`, `"yes"`, `"8"`).

```yaml
name: helper
instructions: Answer briefly.
model:
  provider: openai          # openai, deepseek, openai_compatible or demo
  model: gpt-4o
  connection: my-openai     # a stored connection holds the key
```
"""

NAMES = {str: "text", int: "integer", float: "number", Decimal: "decimal", bool: "true or false", type(None): "none"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(hidden=True)(docs)


def docs() -> int:
    """Write docs/agent-definition.md."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(definition_page(), encoding="utf-8")
    print_lines([str(FILE)])
    return 0


def definition_page() -> str:
    """The whole page."""
    from api.publishing import NOT_RUN_YET
    from context.policy import AgentDefinition

    later = ", ".join(f"`{key}`" for key, _ in NOT_RUN_YET)
    closing = f"## Not run by this version\n\nRefused when publishing, so that nothing is promised: {later}.\n"
    return "\n".join([OPENING, *_sections(AgentDefinition, "", set()), closing])


def _sections(model: type[BaseModel], path: str, written: set[type[BaseModel]]) -> Iterator[str]:
    """A table per model, the definition's own first, each model once under the first key that holds it."""
    written.add(model)
    yield _section(model, path)
    for name, field in model.model_fields.items():
        for inner in _models_in(field.annotation):
            if inner not in written:
                yield from _sections(inner, f"{path}{'.' if path else ''}{field.alias or name}", written)


def _section(model: type[BaseModel], path: str) -> str:
    meaning = " ".join((model.__doc__ or "").split())
    rows = [_row(field.alias or name, field) for name, field in model.model_fields.items()]
    head = [f"## {f'`{path}`' if path else 'The definition'}", "", *([meaning, ""] if meaning else [])]
    return "\n".join([*head, "| key | value | default | meaning |", "|---|---|---|---|", *rows, ""])


def _row(name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split())
    kind = f"{_kind(field.annotation)}{_bounds(field)}"
    return f"| `{name}` | {_cell(kind)} | {_cell(_default(field))} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return "none"
    if isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, (tuple, list, dict)) and not value:
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else "empty"


LIMITS = {"gt": "over", "ge": "at least", "lt": "under", "le": "at most", "max_length": "at most"}


def _bounds(field: FieldInfo) -> str:
    """What a number may be and how long a text or list, out of the constraints; of two limits the last one holds."""
    found = {
        (mark, unit): f"{LIMITS[mark]} {getattr(rule, mark):,}{unit}".replace(",", " ")
        for rule, unit in _rules(field)
        for mark in LIMITS
        if getattr(rule, mark, None) is not None
    }
    return f", {' and '.join(found.values())}" if found else ""


def _rules(field: FieldInfo) -> Iterator[tuple[Any, str]]:
    """Each constraint with the unit it counts in: those inside the annotation first, then the field's own."""
    yield from _rules_in(field.annotation)
    yield from ((rule, _unit(field.annotation)) for rule in field.metadata)


def _rules_in(annotation: Any) -> Iterator[tuple[Any, str]]:
    if get_origin(annotation) is Annotated:
        inner, *_ = get_args(annotation)
        yield from _rules_in(inner)
        yield from ((rule, _unit(inner)) for rule in FieldInfo.from_annotation(annotation).metadata)
    if _is_union(annotation):
        for inner in get_args(annotation):
            yield from _rules_in(inner)


def _unit(annotation: Any) -> str:
    """What a length of this kind counts."""
    kinds = {get_origin(one) or one for one in (get_args(annotation) if _is_union(annotation) else (annotation,))}
    return " characters" if str in kinds else " entries" if kinds & {tuple, dict} else ""


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def _kind(annotation: Any) -> str:
    """An annotation in words."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inside[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if _is_union(annotation):
        return " or ".join(dict.fromkeys(_kind(one) for one in inside if one is not type(None)))
    if origin is tuple:
        return f"list of {_kind(inside[0])}"
    if origin is dict:
        return "mapping" if inside[1] is Any else f"mapping to {_kind(inside[1])}"
    return _plain(annotation)


def _plain(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return NAMES.get(annotation, "value")


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
