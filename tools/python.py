"""Python functions as tools: `module:function`, found by import, called in a thread or awaited (SPEC T1).

Imports nothing of the user's before such a tool is called: publishing has it described elsewhere. What the function
prints is not captured; what it raises goes to the model and nowhere else.
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from context.errors import ConfigurationInvalidError
from context.policy import FrozenTool, ToolEntry
from tools.arguments import Refused
from tools.describing import PythonDescription
from tools.errors import ToolUnavailableError
from tools.outcomes import error_outcome
from tools.port import ToolInvocation, ToolOutcome, single_effect
from tools.python_code import code_of, is_outdated, load_function
from tools.results import outcome_of_value
from tools.running import Raised, Returned, attempted, run_async, run_in_thread
from tools.schemas import checked_schema
from tools.signatures import FunctionSignature, bind, read_signature

RESTART = (
    "The worker imported the file of this tool before it was edited, and has to be restarted (agentloom dev: Ctrl-C,"
    " and start it again). The tool was not called."
)


def freeze_python(entry: ToolEntry, described: PythonDescription) -> FrozenTool:
    """A function as frozen into a release. Raises ConfigurationInvalidError."""
    return FrozenTool(
        name=entry.name,
        description=entry.description or described.text,
        parameters=checked_schema(
            entry.schema_ or described.schema, tool=entry.name, declared=entry.schema_ is not None
        ),
        kind="python",
        entry_name=entry.name,
        effect=single_effect(entry),
        timeout_s=entry.timeout_s,
        retry_unknown=entry.retry_unknown,
        code=described.code,
    )


@dataclass(frozen=True)
class _Loaded:
    function: Callable[..., Any]
    signature: FunctionSignature


def _loaded(entry: ToolEntry, frozen: FrozenTool) -> _Loaded:
    """The function, if this process has the code it was published with. Raises ConfigurationInvalidError."""
    written = entry.entry or ""
    try:
        function = load_function(written)
    finally:
        code_of(written)  # as it is imported now
        if is_outdated(frozen.code or {}):
            raise ConfigurationInvalidError(RESTART) from None
    return _Loaded(function, read_signature(function, entry=written))


class PythonTool:
    """A function of the user's as a tool of a release; its module is imported at the first call."""

    def __init__(self, frozen: FrozenTool, entry: ToolEntry) -> None:
        self.frozen = frozen
        self._entry = entry
        self._kept: _Loaded | None = None

    async def run(self, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
        if self._kept is None:
            try:
                self._kept = await asyncio.to_thread(_loaded, self._entry, self.frozen)
            except ConfigurationInvalidError as error:
                return error_outcome("ToolMisconfigured", error.message)
        return await self._called(self._kept, call, on_progress)

    async def _called(self, loaded: _Loaded, call: ToolInvocation, on_progress: Callable[[], None]) -> ToolOutcome:
        given = _injected(loaded.signature.injected, call)
        bind_it = partial(bind, loaded.signature, call.arguments)
        if not inspect.iscoroutinefunction(inspect.unwrap(loaded.function)):
            work = partial(_answer, bind_it, loaded.function, given, call.operation_id)
            outcome = await run_in_thread(work, on_progress=on_progress)
            return outcome if isinstance(outcome, ToolOutcome) else await _awaited(outcome, call, on_progress)
        bound = attempted(bind_it)
        if isinstance(bound, Raised) or isinstance(bound.value, Refused):
            return _not_called(bound)
        return await _awaited(partial(loaded.function, **bound.value, **given), call, on_progress)


Call = Callable[[], Any]


def _answer(
    bind_it: Call, function: Callable[..., Any], given: dict[str, Any], operation_id: UUID
) -> ToolOutcome | Call:
    """A plain function's call, all in its own thread: its outcome, or what is still to be awaited."""
    bound = attempted(bind_it)
    if isinstance(bound, Raised) or isinstance(bound.value, Refused):
        return _not_called(bound)
    result = attempted(partial(function, **bound.value, **given))
    if isinstance(result, Returned) and inspect.iscoroutine(result.value):
        coroutine = result.value
        return lambda: coroutine
    return _outcome(result, operation_id)


async def _awaited(start: Call, call: ToolInvocation, on_progress: Callable[[], None]) -> ToolOutcome:
    """A coroutine function's call; what it returned is turned into an outcome in a thread, as it may take long."""
    result = await run_async(start, on_progress=on_progress)
    return await run_in_thread(partial(_outcome, result, call.operation_id), on_progress=on_progress)


def _outcome(result: Returned | Raised, operation_id: UUID) -> ToolOutcome:
    if isinstance(result, Raised):
        return error_outcome(result.error_type, result.message)
    return outcome_of_value(result.value, operation_id)


def _not_called(bound: Returned | Raised) -> ToolOutcome:
    """Arguments that the function's own types refuse, well or by accident."""
    if isinstance(bound, Raised):
        return error_outcome(bound.error_type, bound.message)
    return error_outcome(bound.value.error_type, bound.value.message)


def _injected(names: frozenset[str], call: ToolInvocation) -> dict[str, Any]:
    known: dict[str, Any] = {"idempotency_key": call.idempotency_key, "work_dir": call.work_dir}
    if "work_dir" in names:
        _make_folder(call.work_dir)
    return {name: known[name] for name in names}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        raise ToolUnavailableError("not_started", may_have_run=False) from None
