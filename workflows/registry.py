"""What the worker, the tests and the Replayer all use: the workflows, the sandbox, the data converter.

`context`, `activities` and pydantic are passed through the sandbox: importing them anew for each workflow costs ten
times a replay, and they are kept free of clock, chance and I/O by lint and by import contracts.
"""

from typing import Any

import temporalio.api.failure.v1
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.run import RunWorkflow

WORKFLOWS: list[type[Any]] = [RunWorkflow]

PASSED_THROUGH = ("context", "activities", "pydantic", "pydantic_core", "annotated_types", "typing_extensions")


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
                "An unexpected error; the worker's log has its place.", type=type(exception).__name__
            )
        super().to_failure(exception, payload_converter, failure)
        _strip(failure)


def _strip(failure: temporalio.api.failure.v1.Failure) -> None:
    failure.stack_trace = ""
    if failure.HasField("cause"):
        _strip(failure.cause)


def data_converter() -> DataConverter:
    """JSON by pydantic, content-free failures."""
    return DataConverter(
        payload_converter_class=PydanticPayloadConverter, failure_converter_class=ContentFreeFailureConverter
    )


def sandbox() -> SandboxedWorkflowRunner:
    """The production runner."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH))
