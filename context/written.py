"""What a person may write as a value of a definition: how strict each kind is, and how large it may be (SPEC Y5, 18).

Nothing is guessed: a number in quotes, a truth value for a number and a fraction for a count are errors. Sentences
raised here name rules and positions, never what was written.
"""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field

MAX_TEXT = 1_000_000
MAX_NAMED = 100
MAX_TOOLS = 1_000
MAX_JSON_BYTES = 100_000
EXACT = re.compile(r"-?\d{1,18}(\.\d{1,18})?([eE]-?\d{1,2})?")

# Names of the branches of a union, which stand in the place of an error but are no field of the input.
TEXT, LIST, WORD, MAPPING = "(text)", "(list)", "(word)", "(mapping)"
BRANCHES = frozenset({TEXT, LIST, WORD, MAPPING})

T = TypeVar("T")


class Named(Protocol):
    """An entry that others refer to by its name."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def _exact(value: object) -> object:
    """A decimal as it was written: a number, or the same in quotes, as a release shows it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise ValueError("should be a number")
    text = str(value)
    if isinstance(value, str) and not EXACT.fullmatch(text):
        raise ValueError("should be a number")
    return Decimal(text)


def _small(value: Any) -> Any:
    if len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) > MAX_JSON_BYTES:
        raise ValueError(f"should be at most {MAX_JSON_BYTES} bytes of JSON")
    return value


def named_once(entries: Sequence[N]) -> Sequence[N]:
    """The entries, if no name is there twice. Raises ValueError with the positions, counted from 0."""
    first: dict[str, int] = {}
    for position, entry in enumerate(entries):
        if first.setdefault(entry.name, position) != position:
            raise ValueError(f"entries {first[entry.name]} and {position} have the same name")
    return entries


def one_of(branches: Mapping[type, str], *, sentence: str) -> Discriminator:
    """Which branch of a union a value belongs to, by its type, so that an error is told about that branch alone."""

    def find(value: object) -> str | None:
        return next((name for kind, name in branches.items() if isinstance(value, kind)), None)

    return Discriminator(find, custom_error_type="wrong_kind", custom_error_message=sentence)


Exact = Annotated[Decimal, Field(max_digits=30, decimal_places=18), BeforeValidator(_exact)]
CURRENCY = "^[A-Z]{3}$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME)]
Ratio = Annotated[Exact, Field(gt=0, le=1)]
Money = Annotated[Exact, Field(ge=0, le=1_000_000_000)]
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]
Count = Annotated[int, Field(ge=0, le=100_000_000)]

Prompt = Annotated[str, Field(max_length=MAX_TEXT)]
Line = Annotated[str, Field(min_length=1, max_length=2_000)]
HeaderValue = Annotated[str, Field(max_length=8_000)]

Json = Annotated[dict[str, Any], AfterValidator(_small)]
Many = Annotated[tuple[T, ...], Field(strict=False, max_length=MAX_NAMED)]
