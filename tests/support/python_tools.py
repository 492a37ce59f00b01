"""Functions that stand for what users write: well-behaved, badly behaved, and impossible ones."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import sys
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_serializer, field_validator


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


def recursive(depth: int) -> int:
    return recursive(depth + 1) + 1


class Evil(BaseException):
    """Not an Exception, and breaks whoever prints it."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


def raised(kind: str) -> BaseException:
    """One of everything that code can raise."""
    errors: dict[str, BaseException] = {
        "KeyboardInterrupt": KeyboardInterrupt("MARK-words"),
        "SystemExit": SystemExit(3),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
        "MemoryError": MemoryError(),
        "TimeoutError": TimeoutError(),
        "StopIteration": StopIteration(1),
        "StopAsyncIteration": StopAsyncIteration(),
        "Evil": Evil(),
        "ExceptionGroup": ExceptionGroup("both", [ValueError("one"), ExceptionGroup("inner", [KeyError("two")])]),
        "BaseExceptionGroup": BaseExceptionGroup("all", [KeyboardInterrupt(), SystemExit(1)]),
    }
    return errors[kind]


def raises_any(kind: str) -> int:
    if kind == "RecursionError":
        return recursive(0)
    raise raised(kind)


async def raises_any_async(kind: str) -> int:
    await asyncio.sleep(0)
    return raises_any(kind)


async def cancels_its_task_and_returns() -> str:
    task = asyncio.current_task()
    assert task
    task.cancel()
    return "returned"


class Raising:
    """A value that fights whoever looks into it: by conversion, by iteration, by printing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __iter__(self) -> Iterator[int]:
        raise raised(self.kind)

    def __str__(self) -> str:
        raise raised(self.kind)

    __repr__ = __str__


class RaisingModel(BaseModel):
    """A model whose own code raises when it is turned into JSON."""

    kind: str

    @field_serializer("kind")
    def _fails(self, value: str) -> str:
        raise raised(value)


class RaisingArgument(BaseModel):
    """A model whose own code raises when it is read from the arguments."""

    kind: str

    @field_validator("kind")
    @classmethod
    def _fails(cls, value: str) -> str:
        raise raised(value)


def gives_a_raising_value(kind: str) -> Any:
    return [Raising(kind), {"a": RaisingModel(kind=kind)}]


def gives_a_raising_model(kind: str) -> Any:
    return RaisingModel(kind=kind)


def gives_a_raising_generator(kind: str) -> Any:
    yield 1
    raise raised(kind)


def takes_a_raising_argument(argument: RaisingArgument) -> str:
    return argument.kind


def gives_an_endless_generator() -> Any:
    while True:
        yield 1


def gives_a_blocking_value(seconds: float) -> Any:
    class Slow(BaseModel):
        n: int

        @field_serializer("n")
        def _slow(self, value: int) -> int:
            time.sleep(seconds)
            return value

    return Slow(n=1)


async def ignores_cancellation(seconds: float = 20) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            continue
    return "never stopped"


def hidden_async() -> Any:
    async def inside() -> str:
        await asyncio.sleep(0)
        return "awaited"

    return inside()


async def raises_when_cancelled() -> None:
    try:
        await asyncio.sleep(20)
    finally:
        await asyncio.sleep(0.1)
        raise LookupError("MARK-late")


def sleeps(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def loops_for_ever() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def gives_an_object() -> object:
    return object()


def unannotated(place, days: int) -> str:  # type: ignore[no-untyped-def]
    return f"{place} {days}"


def open_ended(*places: str) -> str:
    return "".join(places)


def any_words(**words: str) -> str:
    return "".join(words)


def unknown_type(place: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(place)


def interrupting_type(place: "Interrupting.now()") -> str:  # type: ignore[valid-type]
    return str(place)


class Interrupting:
    """Raises when an annotation that names it is evaluated."""

    @staticmethod
    def now() -> type:
        raise KeyboardInterrupt


def no_json_form(stream: asyncio.Queue[int]) -> str:
    return str(stream)


def looks_around(place: Annotated[str, Field(pattern="^(?!MARK)")]) -> str:
    return place


class RaisingType:
    """Raises when its schema is asked for."""

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        raise KeyboardInterrupt("MARK")


def takes_a_raising_type(place: RaisingType) -> str:
    return str(place)


class RaisingWords:
    """Raises when it is asked what a model may be told of it."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler(str)

    @classmethod
    def __get_pydantic_json_schema__(cls, *_: Any) -> Any:
        raise LookupError("MARK")


def takes_raising_words(place: RaisingWords) -> str:
    return str(place)


class OldDict(typing.TypedDict):
    """Of the standard library, which pydantic can't read before Python 3.12."""

    x: int


def takes_an_old_dict(place: OldDict) -> str:
    return str(place)


NOT_A_FUNCTION = 3
