"""A client of Temporal that speaks as our workflows do."""

from collections.abc import Mapping
from typing import Any

from temporalio.client import Client

from workflows.registry import data_converter


async def connect(options: Mapping[str, Any], *, lazy: bool = False) -> Client:
    """A client, connected as `options` say. `lazy` connects with the first call instead of now.

    Raises RuntimeError if nothing answers.
    """
    return await Client.connect(**options, lazy=lazy, data_converter=data_converter())
