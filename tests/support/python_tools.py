"""Functions that stand for what users write: well-behaved, badly behaved, and impossible ones."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field


class Place(BaseModel):
    """A place on the map."""

    lat: float
    lon: float


class Unit(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


@dataclasses.dataclass
class Reading:
    at: datetime.datetime
    value: decimal.Decimal


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def weather(
    place: Place,
    days: Annotated[int, Field(ge=1, le=7)] = 1,
    unit: Unit = Unit.METRIC,
    mode: Literal["short", "long"] = "short",
) -> str:
    """Tell the weather.

    Over several
    lines.

    Args:
        place: Where,
            exactly.
        days: How many days ahead.
        unit: Which units.

    Returns:
        One sentence.
    """
    return f"{place.lat} {days} {unit.value} {mode}"


async def add(a: int, b: int = 1) -> int:
    return a + b


def keyed(text: str, idempotency_key: str, work_dir: Path) -> dict[str, Any]:
    (work_dir / "note.txt").write_text(text)
    return {"key": idempotency_key, "folder": str(work_dir)}


def echo(value: Any) -> Any:
    return value


def awkward(self: str, model_config: int, schema: bool = True) -> list[Any]:
    return [self, model_config, schema]


def dates(on: datetime.date, amount: decimal.Decimal, where: Path) -> list[str]:
    return [type(on).__name__, type(amount).__name__, type(where).__name__]


def reading() -> Reading:
    return Reading(datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), decimal.Decimal("1.50"))


def picture() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def report() -> dict[str, Any]:
    return {"title": "t", "pages": [b"%PDF-1", bytearray(b"GIF8")]}


def raises() -> None:
    raise RuntimeError


def raises_words() -> None:
    raise LookupError("MARK-words")


def raises_unprintable() -> None:
    raise Unprintable


def exits() -> None:
    sys.exit(3)


async def exits_async() -> None:
    sys.exit(3)


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def ignores_cancellation(seconds: float = 20) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            continue
    return "never stopped"


def sleeps(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def loops_for_ever() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def gives_an_object() -> object:
    return object()


def gives_a_generator() -> Iterator[int]:
    return iter(range(3))


def unannotated(place, days: int) -> str:  # type: ignore[no-untyped-def]
    return f"{place} {days}"


def open_ended(*places: str) -> str:
    return "".join(places)


def any_words(**words: str) -> str:
    return "".join(words)


def unknown_type(place: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(place)


def no_json_form(stream: asyncio.Queue[int]) -> str:
    return str(stream)


NOT_A_FUNCTION = 3
