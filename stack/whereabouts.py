"""Where the stack is that a command should look at: named by the environment, else the one running in the folder."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client

from settings import load_client_settings, load_dev_overrides, load_temporal_options
from stack.files import read_json
from stack.findings import START

USUAL_FOLDER = Path(".agentloom")


@dataclass(frozen=True)
class Whereabouts:
    """Addresses of a stack; None for a part that nobody named."""

    database_url: str | None = field(repr=False)
    temporal_address: str | None
    temporal_from_environment: bool
    api_url: str | None
    api_key: str | None = field(repr=False)
    task_queue: str
    start: str = START
    """The command that starts a stack on the folder."""

    async def temporal_client(self) -> Client:
        """A client of the Temporal server. Raises RuntimeError or RPCError if nothing answers."""
        if self.temporal_from_environment:
            return await Client.connect(**load_temporal_options())
        return await Client.connect(self.temporal_address or "localhost:7233")


def find(data_dir: Path) -> Whereabouts:
    """What the environment names, completed by the stack that runs on this data folder.

    Raises:
        SettingsError: a variable is set to something that is not valid.
    """
    overrides, client = load_dev_overrides(), load_client_settings()
    running: dict[str, Any] = read_json(data_dir / "dev.json") or {}
    return Whereabouts(
        database_url=overrides.database_url.get_secret_value() if overrides.database_url else running.get("database"),
        temporal_address=load_temporal_options()["target_host"] if overrides.has_temporal else running.get("temporal"),
        temporal_from_environment=overrides.has_temporal,
        api_url=client.api or running.get("api"),
        api_key=client.api_key.get_secret_value() if client.api_key else running.get("api_key"),
        task_queue=overrides.task_queue,
        start=START if data_dir == USUAL_FOLDER else f"{START} --data-dir {data_dir}",
    )
