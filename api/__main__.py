"""The API process: reads the settings, opens what the application needs, and serves until SIGTERM."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from api.app import Outside, build_app, reaching
from api.serving import ApiServer
from context.errors import UnavailableError
from process_logs import configure_logs
from settings import Settings, forget_temporal_secrets, load_temporal_options, settings_or_exit, use_app_dir
from storage.fitting_keys import UnfitKeysError, check_keys
from storage.payloads import Keys
from storage.store import Store
from workflows.connecting import connect

LOG = logging.getLogger("api")  # the module is `__main__`

ASK_AGAIN_S = 0.5
FIRST_LOOK_S = 1


async def serve(settings: Settings) -> None:
    """Serve until the process is told to stop, then close everything.

    Raises UnfitKeysError as soon as the database shows it: what it wrote with other keys nobody could read (SPEC Y2).
    """
    async with _store(settings) as store, _outside(settings) as outside:
        looking = asyncio.create_task(_look(store, lost_keys=settings.lost_keys))
        with suppress(TimeoutError):  # an API whose database is away has to say so, and serves meanwhile
            await asyncio.wait_for(asyncio.shield(looking), FIRST_LOOK_S)
        server = ApiServer(build_app(store, outside), host=settings.api_host, port=settings.api_port)
        looking.add_done_callback(partial(_leave_if_unfit, server))
        await server.serve()
        if not looking.cancel():
            looking.result()


async def _look(store: Store, *, lost_keys: frozenset[str]) -> None:
    """Returns once the database has answered and our keys open what it holds."""
    while True:
        try:
            return await check_keys(store, lost=lost_keys)
        except UnavailableError:
            await asyncio.sleep(ASK_AGAIN_S)


def _leave_if_unfit(server: ApiServer, looking: asyncio.Task[None]) -> None:
    if not looking.cancelled() and looking.exception():
        server.should_exit = True


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

    try:
        uvloop.run(serve(settings))
    except UnfitKeysError as error:
        LOG.critical("%s", error)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
