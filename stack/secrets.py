"""Secrets of a development stack: made once, kept in the data folder, readable by its owner only.

They stay the same over restarts, because stored content is encrypted with them and people keep the API key in their
shell. Keys from the environment take their place.
"""

import base64
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from settings import DevOverrides
from stack.errors import StackError
from stack.files import read_json, write_json

FILE_NAME = "secrets.json"
DATABASE = "postgres"
"""Folder of the embedded database, below the data folder."""
FIELDS = ("master_keys", "index_key", "api_key", "postgres_password")


@dataclass(frozen=True)
class DevSecrets:
    """`master_keys` and `index_key` in the form of their variables (SPEC Y1); the other two are plain text."""

    master_keys: str = field(repr=False)
    index_key: str = field(repr=False)
    api_key: str = field(repr=False)
    postgres_password: str = field(repr=False)


def load_or_make(data_dir: Path, *, overrides: DevOverrides | None = None) -> DevSecrets:
    """The secrets of this data folder, made if there are none yet.

    Raises:
        StackError: the file is damaged, or missing beside a database; new keys would make what is stored there
            unreadable, so none are made.
    """
    path = data_dir / FILE_NAME
    is_lost = not path.exists() and (data_dir / DATABASE).exists()
    if not path.exists() and not is_lost:
        write_json(path, _make())
    stored = read_json(path)
    if stored is None or not all(isinstance(stored.get(name), str) for name in FIELDS):
        raise StackError(
            f"{path} is {'missing' if is_lost else 'damaged'}.",
            why="Without its keys the content stored beside it can't be read.",
            mend=f"Restore the file from a copy, or start with a new folder: rm -r {data_dir}",
        )
    return _with_overrides({name: stored[name] for name in FIELDS}, overrides)


def keep_api_key(data_dir: Path, api_key: str) -> None:
    """Keep another key of the development user, since the one before was revoked."""
    path = data_dir / FILE_NAME
    write_json(path, (read_json(path) or {}) | {"api_key": api_key})


def _make() -> dict[str, str]:
    return {
        "master_keys": f"dev:{_key()}",
        "index_key": _key(),
        "api_key": f"al_{secrets.token_urlsafe(32)}",
        "postgres_password": secrets.token_urlsafe(24),
    }


def _key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _with_overrides(stored: dict[str, str], overrides: DevOverrides | None) -> DevSecrets:
    if overrides and overrides.master_keys:
        stored["master_keys"] = overrides.master_keys.get_secret_value()
    if overrides and overrides.index_key:
        stored["index_key"] = overrides.index_key.get_secret_value()
    return DevSecrets(**stored)
