"""What a Python function says about itself: its argument schema and its description, and arguments bound to it.

The schema comes from the annotations, the descriptions from the Google-style docstring, which is read at publishing
only. A function that leaves a parameter open is refused then rather than guessed about.
"""

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from context.errors import ConfigurationInvalidError
from tools.arguments import Refused
from tools.running import Raised, attempted

if TYPE_CHECKING:
    from griffe import DocstringSection

INJECTED = frozenset({"idempotency_key", "work_dir"})
"""Parameters that AgentLoom fills in and the model never sees (SPEC T4, T10)."""

_STRICT = ConfigDict(extra="forbid", strict=True)
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


@dataclass(frozen=True)
class FunctionSignature:
    """How a function is called. `fields` maps the model's field names, which clash with nothing, to parameters."""

    model: type[BaseModel]
    fields: dict[str, str]
    injected: frozenset[str]


@dataclass(frozen=True)
class FunctionDescription:
    """What the model is told of a function."""

    text: str
    schema: dict[str, Any]


class _PlainSchema(GenerateJsonSchema):
    """Without titles, which repeat the names, and silent about defaults that JSON can't show."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012 - as declared by pydantic

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def read_signature(function: Callable[..., Any], *, entry: str) -> FunctionSignature:
    """How the function is called. Raises ConfigurationInvalidError naming the entry and the parameter."""
    return _signature(function, entry, notes={})


def describe(function: Callable[..., Any], *, entry: str) -> FunctionDescription:
    """What the function says about itself. Raises ConfigurationInvalidError as `read_signature` does."""
    text, notes = _docstring(function)
    return FunctionDescription(text, _schema(_signature(function, entry, notes).model, entry))


def _signature(function: Callable[..., Any], entry: str, notes: dict[str, str]) -> FunctionSignature:
    parameters = _parameters(function, entry)
    hints = _hints(function, entry)
    shown = [name for name in parameters if name not in INJECTED]
    for name in shown:
        _refuse_open_parameter(parameters[name], hints, entry)
    fields = {f"p{place}": name for place, name in enumerate(shown)}
    model = _model({key: _field(parameters[name], hints[name], notes) for key, name in fields.items()}, entry)
    return FunctionSignature(model, fields, INJECTED & parameters.keys())


def bind(signature: FunctionSignature, arguments: dict[str, Any]) -> dict[str, Any] | Refused:
    """The arguments as the function's annotations want them; what the model left out keeps the function's default."""
    try:
        bound = signature.model.model_validate_json(json.dumps(arguments), strict=True)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return Refused("; ".join(f"{_place(fault['loc'])}: {fault['msg']}" for fault in faults[:5]))
    return {signature.fields[key]: getattr(bound, key) for key in bound.model_fields_set}


def _place(path: tuple[int | str, ...]) -> str:
    return ".".join(str(step) for step in path) or "arguments"


def _hints(function: Callable[..., Any], entry: str) -> dict[str, Any]:
    """The annotations, which are evaluated by this and may raise anything."""
    result = attempted(partial(typing.get_type_hints, function, include_extras=True))
    if isinstance(result, Raised):
        raise ConfigurationInvalidError(f"The Python tool '{entry}' has an annotation that cannot be resolved.")
    hints: dict[str, Any] = result.value
    return hints


def _parameters(function: Callable[..., Any], entry: str) -> Mapping[str, inspect.Parameter]:
    result = attempted(partial(inspect.signature, function))
    if isinstance(result, Raised):
        raise ConfigurationInvalidError(f"The Python tool '{entry}' does not say what its parameters are.")
    parameters: Mapping[str, inspect.Parameter] = result.value.parameters
    return parameters


def _refuse_open_parameter(parameter: inspect.Parameter, hints: dict[str, Any], entry: str) -> None:
    if parameter.kind in _OPEN:
        raise ConfigurationInvalidError(
            f"The Python tool '{entry}' must name its parameters; '{parameter}' leaves them open."
        )
    if parameter.name not in hints:
        raise ConfigurationInvalidError(
            f"The Python tool '{entry}' must annotate its parameter '{parameter.name}' with a type."
        )


def _field(parameter: inspect.Parameter, hint: Any, notes: dict[str, str]) -> tuple[Any, Any]:
    options: dict[str, Any] = {"alias": parameter.name}
    if parameter.name in notes:
        options["description"] = notes[parameter.name]
    if parameter.default is not inspect.Parameter.empty:
        options["default"] = parameter.default
    return hint, Field(**options)


def _model(fields: dict[str, tuple[Any, Any]], entry: str) -> type[BaseModel]:
    """Making it runs what the annotations' own types define."""
    result = attempted(partial(create_model, "Arguments", __config__=_STRICT, **fields))
    if isinstance(result, Raised):
        raise _no_form(result, entry)
    model: type[BaseModel] = result.value
    return model


def _schema(model: type[BaseModel], entry: str) -> dict[str, Any]:
    result = attempted(partial(model.model_json_schema, schema_generator=_PlainSchema))
    if isinstance(result, Raised):
        raise _no_form(result, entry)
    schema: dict[str, Any] = result.value
    for part in (schema, *schema.get("$defs", {}).values()):
        part.pop("title", None)
    return schema


def _no_form(raised: Raised, entry: str) -> ConfigurationInvalidError:
    """Why arguments can't be described; what was raised is told apart by what it is of, and not repeated."""
    problem = "has a parameter whose type has no JSON form."
    if raised.error_type == "SchemaError" and "regex" in raised.message:
        problem = "has a parameter with a pattern that can't be checked: write it without look-around."
    if "typing_extensions.TypedDict" in raised.message:
        problem = "has a parameter of a TypedDict from typing: take the one from typing_extensions on this Python."
    return ConfigurationInvalidError(f"The Python tool '{entry}' {problem}")


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description without the argument list, and the text of each argument."""
    from griffe import Docstring, DocstringSectionKind

    sections = Docstring(inspect.getdoc(function) or "").parse("google", warnings=False)
    texts = [_prose(section) for section in sections]
    notes = {
        item.name: " ".join(item.description.split())
        for section in sections
        if section.kind is DocstringSectionKind.parameters
        for item in section.value
    }
    return "\n\n".join(filter(None, texts)), notes


def _prose(section: "DocstringSection") -> str:
    from griffe import DocstringSectionKind

    if section.kind is DocstringSectionKind.text:
        return str(section.value).strip()
    if section.kind is DocstringSectionKind.returns:
        return "Returns: " + " ".join(" ".join(item.description.split()) for item in section.value)
    return ""
