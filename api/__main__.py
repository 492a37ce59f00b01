"""The API process: reads the settings, opens what the application needs, and serves until SIGTERM."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api.app import Outside, build_app, reaching
from api.serving import ApiServer
from process_logs import configure_logs
from settings import Settings, forget_temporal_secrets, load_temporal_options, settings_or_exit, use_app_dir
from storage.payloads import Keys
from storage.store import Store
from workflows.connecting import connect


async def serve(settings: Settings) -> None:
    """Serve until the process is told to stop, then close everything."""
    async with _store(settings) as store, _outside(settings) as outside:
        await ApiServer(build_app(store, outside), host=settings.api_host, port=settings.api_port).serve()


@asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[Store]:
    keys = Keys(settings.keys_by_id, settings.index_key)
    store = Store.open(settings.database_url.get_secret_value(), keys)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def _outside(settings: Settings) -> AsyncIterator[Outside]:
    """Temporal is connected lazily: the API serves, and accepts inputs, while Temporal is away."""
    temporal = await connect(load_temporal_options(), lazy=True)
    forget_temporal_secrets()
    private = settings.allowed_private_addresses
    async with reaching(temporal, task_queue=settings.task_queue, private_addresses=private) as outside:
        yield outside


def main() -> None:
    """Entry point of `python -m api`."""
    settings = settings_or_exit()
    use_app_dir(settings.app_dir)
    configure_logs(settings.log_level)
    import uvloop

    uvloop.run(serve(settings))


if __name__ == "__main__":
    main()
