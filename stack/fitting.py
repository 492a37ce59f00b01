"""Whether the keys of a stack are those of the database that it is to use, before anything is written with them."""

from pathlib import Path
from typing import TYPE_CHECKING

from settings import DevOverrides, parse_index_key, parse_master_keys
from stack.errors import WrongOptionError
from stack.secrets import FILE_NAME, DevSecrets

if TYPE_CHECKING:
    from storage.fitting_keys import UnfitKeysError


async def check_keys_of(secrets: DevSecrets, overrides: DevOverrides, database_url: str, *, data_dir: Path) -> None:
    """Raises WrongOptionError if they don't open what it holds."""
    from storage.fitting_keys import UnfitKeysError, check_keys
    from storage.payloads import Keys
    from storage.store import Store

    master = {key.id: key.key for key in parse_master_keys(secrets.master_keys)}
    store = Store.open(database_url, Keys(master, parse_index_key(secrets.index_key)), pool_size=1)
    try:
        await check_keys(store, lost=overrides.lost_keys)
    except UnfitKeysError as error:
        raise WrongOptionError(error.message, why=error.why, mend=_mend(error, overrides, data_dir)) from None
    finally:
        await store.aclose()


def _mend(error: "UnfitKeysError", overrides: DevOverrides, data_dir: Path) -> str:
    """By where the keys came from, and the database."""
    if overrides.master_keys or overrides.index_key:
        return error.mend
    if overrides.database_url:
        return "Set AGENTLOOM_MASTER_KEYS and AGENTLOOM_INDEX_KEY to the keys of that database, or: unset DATABASE_URL"
    return f"Restore {data_dir / FILE_NAME} from a copy, or start with a new folder: agentloom dev --data-dir OTHER"
