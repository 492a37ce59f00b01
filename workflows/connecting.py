"""Where Temporal is: what the environment names (`temporalio.envconfig`), else the usual port of this machine."""

from typing import Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from workflows.registry import data_converter

LOCAL_SERVER = "localhost:7233"


async def connect(*, lazy: bool = False) -> Client:
    """A client that speaks as our workflows do. `lazy` connects with the first call instead of now."""
    config: dict[str, Any] = {"target_host": LOCAL_SERVER, **ClientConfig.load_client_connect_config()}
    return await Client.connect(**config, lazy=lazy, data_converter=data_converter())
