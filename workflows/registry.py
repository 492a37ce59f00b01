"""What the worker, the tests and the Replayer all use: the workflows, the sandbox, the data converter.

`context`, `activities`, the values of a Run and pydantic are passed through the sandbox: importing them anew for each
workflow costs ten times a replay, and they are kept free of clock, chance and I/O by lint and by import contracts.
"""

from collections.abc import Sequence
from typing import Any

import temporalio.api.common.v1
import temporalio.api.failure.v1
from pydantic import ValidationError
from temporalio.contrib.pydantic import PydanticPayloadConverter, ToJsonOptions
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from context.errors import ConfigurationInvalidError
from workflows.compaction import CompactionInput, CompactionWorkflow
from workflows.run import RunWorkflow
from workflows.run_types import RunInput

WORKFLOWS: list[type[Any]] = [RunWorkflow, CompactionWorkflow]

STARTS = (RunInput.__name__, CompactionInput.__name__)
PASSED_THROUGH = (
    "context",
    "activities",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions",
    "workflows.run_types",
)


# Faults of our own come again however often they are tried; the Run ends with them instead of hanging (SPEC S2).
OUR_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)


class ContentFreeFailureConverter(DefaultFailureConverter):
    """Failures carry type, code and numbers; a foreign exception only its class name, never its words (SPEC Y6)."""

    def to_failure(
        self,
        exception: BaseException,
        payload_converter: PayloadConverter,
        failure: temporalio.api.failure.v1.Failure,
    ) -> None:
        """Translate an exception; causes and stack traces are left behind."""
        if not isinstance(exception, FailureError):
            exception = ApplicationError(
                "An unexpected error; the worker's log has its place.",
                type=type(exception).__name__,
                non_retryable=isinstance(exception, OUR_FAULTS),
            )
        super().to_failure(exception, payload_converter, failure)
        _strip(failure)


def _strip(failure: temporalio.api.failure.v1.Failure) -> None:
    failure.stack_trace = ""
    if failure.HasField("cause"):
        _strip(failure.cause)


class DecidedPayloadConverter(PydanticPayloadConverter):
    """JSON by pydantic, without the fields that were left at their defaults: every byte of a step is kept.

    A start that does not fit fails its workflow; it would be tried again for ever otherwise.
    """

    def __init__(self) -> None:
        super().__init__(ToJsonOptions(exclude_unset=True))

    def from_payloads(
        self, payloads: Sequence[temporalio.api.common.v1.Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        """The values; raises ApplicationError for a start input that is none."""
        try:
            return super().from_payloads(payloads, type_hints)
        except ValidationError:
            # By name, since the sandbox has a class of its own.
            if not any(getattr(hint, "__name__", "") in STARTS for hint in type_hints or ()):
                raise
        raise ApplicationError("The start input is not valid.", type=ConfigurationInvalidError.code, non_retryable=True)


def data_converter() -> DataConverter:
    """JSON by pydantic, content-free failures."""
    return DataConverter(
        payload_converter_class=DecidedPayloadConverter, failure_converter_class=ContentFreeFailureConverter
    )


class LeanSandbox(SandboxedWorkflowRunner):
    """The SDK's sandbox, less its question to the workflow for the serialization context of every payload.

    Our converter knows no contexts, so the answer is the same without one. Asking enters the sandbox several times for
    each payload, which cost 2 ms of a step's 13 ms of CPU time.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """The sandboxed workflow."""
        instance = super().create_instance(det)
        target = instance.get_external_store_context(None)
        instance.get_serialization_context = _no_context  # type: ignore[method-assign]
        instance.get_external_store_context = lambda command_info: target  # type: ignore[method-assign]
        return instance


def _no_context(command_info: object) -> None:
    return None


def sandbox() -> LeanSandbox:
    """The production runner."""
    return LeanSandbox(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH))
