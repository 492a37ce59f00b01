"""Configuration of AgentLoom's processes, read from the environment here and nowhere else.

Everything is a frozen value; importing this module reads and does nothing. A setting that is missing or wrong is a
`SettingsError`: full sentences that name the variable and the command that mends it, and never the value, which may
be a secret. The connection to Temporal has Temporal's own variables and file, which `temporalio.envconfig` reads.
"""

import base64
import binascii
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from context.errors import AgentLoomError

PrivateAddresses = Literal["none", "loopback", "all"]

OUR_MODULES = frozenset(
    {
        "activities",
        "api",
        "cli",
        "context",
        "egress",
        "hooks",
        "process_logs",
        "providers",
        "settings",
        "stack",
        "storage",
        "tools",
        "worker",
        "workflows",
    }
)
"""Top-level names of AgentLoom, which an app folder may not use again."""

LOCAL_TEMPORAL = "localhost:7233"

OUR_SECRETS = frozenset({"DATABASE_URL", "AGENTLOOM_MASTER_KEYS", "AGENTLOOM_INDEX_KEY", "AGENTLOOM_API_KEY"})
"""Removed from a worker's or API process's own environment once read: tools and their children inherit the rest."""

TEMPORAL_SECRETS = frozenset({"TEMPORAL_API_KEY", "TEMPORAL_TLS_CLIENT_KEY_DATA"})
"""As above, but Temporal's own library reads these when it connects, so they go after that."""

_SERVER = re.compile(r"(\[[^\]]+\]|[^:/\s\[\]]*)(:(?P<port>[0-9]{1,5}))?")
_SSL_MODES = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})
_KEY = re.compile("[!-~]+")
_MAKE_A_KEY = "python -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'"


class SettingsError(AgentLoomError):
    """The environment does not configure this process. The message never holds a value."""

    code = "CONFIGURATION_INVALID"
    sentence = "The configuration is not valid."


@dataclass(frozen=True)
class MasterKey:
    """One key that encrypts payloads: `id` is stored beside what it encrypted, `key` is 32 bytes for AES-256."""

    id: str
    key: bytes = field(repr=False)


def _bytes_from_base64(text: str, *, variable: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"{variable} is not valid base64. Make a key with: {_MAKE_A_KEY}") from None


def _parse_master_key(text: str) -> MasterKey:
    key_id, colon, encoded = text.strip().partition(":")
    if not colon or not key_id:
        raise ValueError(
            f"AGENTLOOM_MASTER_KEYS must read id:base64, or several of them with commas. Make a key with: {_MAKE_A_KEY}"
        )
    key = _bytes_from_base64(encoded, variable="AGENTLOOM_MASTER_KEYS")
    if len(key) != 32:
        raise ValueError(
            f"Each key in AGENTLOOM_MASTER_KEYS must have 32 bytes; one has {len(key)}. Make a key with: {_MAKE_A_KEY}"
        )
    return MasterKey(key_id, key)


def _index_key_from_text(value: object) -> object:
    return parse_index_key(value) if isinstance(value, str) else value


def _master_keys_from_text(value: object) -> object:
    return parse_master_keys(value) if isinstance(value, str) else value


def parse_master_keys(text: str) -> tuple[MasterKey, ...]:
    """The master keys from their variable's text. Raises ValueError with a sentence that does not hold the text."""
    keys = tuple(_parse_master_key(part) for part in text.split(",") if part.strip())
    if not keys:
        raise ValueError(f"AGENTLOOM_MASTER_KEYS is empty. Make a key with: {_MAKE_A_KEY}")
    if len({key.id for key in keys}) < len(keys):
        raise ValueError("AGENTLOOM_MASTER_KEYS names the same key id twice.")
    return keys


def _ids(value: object) -> object:
    return frozenset(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _web_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        valid = valid and not ("@" in parts.netloc or parts.query or parts.fragment)
    except ValueError:  # a port that is no number, or half an IPv6 address
        valid = False
    if not valid:
        raise ValueError("AGENTLOOM_API must be an address such as http://127.0.0.1:8700, with http:// or https://.")
    return text


def _sendable_key(value: SecretStr) -> SecretStr:
    if not _KEY.fullmatch(value.get_secret_value()):
        raise ValueError(
            "AGENTLOOM_API_KEY must be one key such as al_…, without blanks, line breaks or other alphabets."
        )
    return value


def parse_index_key(text: str) -> bytes:
    """The index key from its variable's text. Raises ValueError with a sentence that does not hold the text."""
    key = _bytes_from_base64(text.strip(), variable="AGENTLOOM_INDEX_KEY")
    if len(key) < 32:
        raise ValueError(
            f"AGENTLOOM_INDEX_KEY must have at least 32 bytes; it has {len(key)}. Make a key with: {_MAKE_A_KEY}"
        )
    return key


def _checked_master_keys(value: SecretStr) -> SecretStr:
    parse_master_keys(value.get_secret_value())
    return value


def _checked_index_key(value: SecretStr) -> SecretStr:
    parse_index_key(value.get_secret_value())
    return value


def _plain_postgres_url(value: SecretStr) -> SecretStr:
    """The URL in the form every PostgreSQL client knows: scheme `postgresql`, no driver name."""
    scheme, separator, rest = value.get_secret_value().partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"} or not _is_database(rest):
        raise ValueError(
            "DATABASE_URL must read postgresql://user:password@host:port/database; in user and password, characters"
            " such as @ / # ? % are written as %40 %2F %23 %3F %25."
        )
    return SecretStr(f"postgresql://{rest}")


def _is_database(rest: str) -> bool:
    """Whether all behind the scheme is where every client looks for it, and servers (one or several) can be there.

    Raises ValueError for an sslmode that is none.
    """
    try:
        parts = urlsplit(f"//{rest}")
        asked = parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError:  # half an IPv6 address, or a name without a value
        return False
    if not {*asked.get("sslmode", ())} <= _SSL_MODES:
        raise ValueError(f"sslmode in DATABASE_URL must be one of {', '.join(sorted(_SSL_MODES))}.")
    account, _, servers = parts.netloc.rpartition("@")
    if not parts.path or parts.fragment or "@" in account or "@" in parts.path:
        return False  # the password went on behind one of its characters
    return all(_is_server(server) for server in servers.split(","))


def _is_server(text: str) -> bool:
    """Whether it is a host, or none, with or without a port that can be one."""
    found = _SERVER.fullmatch(text)
    return found is not None and 0 < int(found["port"] or 1) <= 65_535


LostKeys = Annotated[frozenset[str], NoDecode, BeforeValidator(_ids)]


def _existing_folder(value: Path) -> Path:
    if not value.is_dir():
        raise ValueError("AGENTLOOM_APP_DIR must name an existing folder.")
    return value.resolve()


class _FromEnvironment(BaseSettings):
    """What all our settings share: frozen, `AGENTLOOM_` in front, the input hidden in errors."""

    model_config = SettingsConfigDict(
        env_prefix="AGENTLOOM_",
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        populate_by_name=True,
    )


class DatabaseSettings(_FromEnvironment):
    """Enough to reach PostgreSQL, for commands that need nothing else."""

    missing: ClassVar[Mapping[str, str]] = {
        "database_url": "Set DATABASE_URL=postgresql://user:password@host:port/database, or run: agentloom dev",
        "master_keys": f"Set AGENTLOOM_MASTER_KEYS=id:key with a key made by: {_MAKE_A_KEY}",
        "index_key": f"Set AGENTLOOM_INDEX_KEY to a key made by: {_MAKE_A_KEY}",
    }

    database_url: Annotated[SecretStr, AfterValidator(_plain_postgres_url)] = Field(validation_alias="DATABASE_URL")
    """`postgresql://…`; the storage adapter adds its driver's name."""


class Settings(DatabaseSettings):
    """What a worker or an API process is told. `agentloom dev` sets all of it for its children."""

    mode: Literal["dev", "production"] = "production"
    """`dev` allows loopback addresses; `production` allows none unless told."""
    master_keys: Annotated[tuple[MasterKey, ...], NoDecode, BeforeValidator(_master_keys_from_text)]
    """Keys of stored content; the first encrypts, all decrypt (SPEC Y1, Y2)."""
    index_key: Annotated[bytes, NoDecode, BeforeValidator(_index_key_from_text)] = Field(repr=False)
    """Key of keyed ids and of the search index; it never rotates."""
    lost_keys: LostKeys = frozenset()
    """Ids of master keys that nobody has any more: what they encrypted keeps no process from starting."""
    api_host: str = "127.0.0.1"
    """Address the API listens on."""
    api_port: int = Field(8700, ge=0, le=65_535)
    """Port the API listens on."""
    app_dir: Annotated[Path, AfterValidator(_existing_folder)] | None = None
    """Folder with Python tools, hooks and sources, appended to the import path."""
    task_queue: str = Field("agentloom", min_length=1, max_length=200)
    """Temporal task queue of workflows and activities."""
    private_addresses: PrivateAddresses | None = None
    """Which private addresses outbound calls may reach (SPEC Y4); None means what the mode says."""
    work_dir: Path = Path(".agentloom/work")
    """Where a Run's private working folder is made (SPEC T10)."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log line that is written."""

    @property
    def keys_by_id(self) -> dict[str, bytes]:
        """The master keys as they were given; their order says which one encrypts."""
        return {key.id: key.key for key in self.master_keys}

    @property
    def allowed_private_addresses(self) -> PrivateAddresses:
        """The rule in force: what was set, else loopback in dev and none in production."""
        return self.private_addresses or ("loopback" if self.mode == "dev" else "none")

    @model_validator(mode="after")
    def _app_dir_does_not_clash(self) -> Self:
        if self.app_dir and (clashes := clashing_modules(self.app_dir)):
            raise ValueError(
                f"The app folder has modules named like AgentLoom's own: {', '.join(clashes)}. Rename them there."
            )
        return self


class ClientSettings(_FromEnvironment):
    """Where the command line finds the API; None means the running `agentloom dev` of the folder."""

    api: Annotated[str, AfterValidator(_web_address)] | None = None
    """AGENTLOOM_API, for example `http://127.0.0.1:8700`."""
    api_key: Annotated[SecretStr, AfterValidator(_sendable_key)] | None = None
    """AGENTLOOM_API_KEY."""


class DevOverrides(_FromEnvironment):
    """What already stands when `agentloom dev` starts, so that it doesn't start or make its own."""

    database_url: Annotated[SecretStr, AfterValidator(_plain_postgres_url)] | None = Field(
        None, validation_alias="DATABASE_URL"
    )
    """An existing PostgreSQL."""
    temporal_address: str | None = Field(None, validation_alias="TEMPORAL_ADDRESS")
    """An existing Temporal server, by address."""
    temporal_profile: str | None = Field(None, validation_alias="TEMPORAL_PROFILE")
    """An existing Temporal server, by profile of Temporal's own configuration file."""
    temporal_config_file: str | None = Field(None, validation_alias="TEMPORAL_CONFIG_FILE")
    """An existing Temporal server, by configuration file."""
    master_keys: Annotated[SecretStr, AfterValidator(_checked_master_keys)] | None = None
    """Keys to use instead of generated ones, unparsed."""
    index_key: Annotated[SecretStr, AfterValidator(_checked_index_key)] | None = None
    """Index key to use instead of a generated one, unparsed."""
    lost_keys: LostKeys = frozenset()
    """As worker and API are told."""
    task_queue: str = "agentloom"
    """Task queue the worker will poll."""

    @property
    def has_temporal(self) -> bool:
        return bool(self.temporal_address or self.temporal_profile or self.temporal_config_file)

    @staticmethod
    def none() -> "DevOverrides":
        """Nothing, whatever the environment names: for a stack that touches nothing but its own."""
        return DevOverrides.model_construct()

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that said it."""
        named = {
            "DATABASE_URL": self.database_url,
            "TEMPORAL_ADDRESS": self.temporal_address,
            "TEMPORAL_PROFILE": self.temporal_profile,
            "TEMPORAL_CONFIG_FILE": self.temporal_config_file,
            "AGENTLOOM_MASTER_KEYS": self.master_keys,
            "AGENTLOOM_INDEX_KEY": self.index_key,
        }
        return tuple(name for name, value in named.items() if value)


_S = TypeVar("_S", bound=BaseSettings)


def load_settings() -> Settings:
    """Settings of a worker or API process.

    Raises:
        SettingsError: something is missing or wrong; the message names it and what to do.
    """
    return _load(Settings)


def load_temporal_options() -> dict[str, Any]:
    """How a client connects to Temporal, by its own variables and configuration file: arguments of `Client.connect`.

    Raises:
        SettingsError: the file can't be read or has no such profile, or the address is none.
    """
    from temporalio.envconfig import ClientConfig

    try:
        options = {"target_host": LOCAL_TEMPORAL, **ClientConfig.load_client_connect_config()}
    except RuntimeError:  # its text quotes the file, which may hold a key
        raise SettingsError(
            "TEMPORAL_CONFIG_FILE names no valid configuration file of Temporal, or TEMPORAL_PROFILE no profile in it."
        ) from None
    if not _is_server(str(options["target_host"])):
        raise SettingsError("TEMPORAL_ADDRESS must read host:port, without http:// before it.")
    return options


def settings_or_exit() -> Settings:
    """For entry points: settings, or the process ends with the sentences that say what to set.

    Whatever runs in this process later, or is started by it, does not find our secrets in the environment (SPEC Y6).
    """
    try:
        settings = load_settings()
        load_temporal_options()  # read when it connects, where nobody would see what is wrong with it
    except SettingsError as error:
        raise SystemExit(error.message) from None
    _forget(OUR_SECRETS)
    return settings


def forget_temporal_secrets() -> None:
    """Remove Temporal's secrets from this process's environment. Entry points call this once its client is made."""
    _forget(TEMPORAL_SECRETS)


def _forget(secrets: frozenset[str]) -> None:
    # Settings are read in any case of letters, so they are removed in any.
    for name in [name for name in os.environ if name.upper() in secrets]:
        del os.environ[name]


def load_database_settings() -> DatabaseSettings:
    """Only the database, for `agentloom migrate` and `doctor`. Raises SettingsError as `load_settings` does."""
    return _load(DatabaseSettings)


def load_client_settings() -> ClientSettings:
    """Address and key of the API for the command line. Raises SettingsError as `load_settings` does."""
    return _load(ClientSettings)


def load_dev_overrides() -> DevOverrides:
    """Servers and keys that `agentloom dev` should use. Raises SettingsError as `load_settings` does."""
    return _load(DevOverrides)


def inherited_environment(*, without: Iterable[str] = ()) -> dict[str, str]:
    """A copy of this process's environment for a child, less the given variables."""
    left_out = frozenset(without)
    return {name: value for name, value in os.environ.items() if name not in left_out}


def clashing_modules(app_dir: Path) -> tuple[str, ...]:
    """Names of modules or packages in the folder that AgentLoom has too; ours would silently win over them."""
    return tuple(sorted(name for name in OUR_MODULES if _holds_module(app_dir, name)))


def use_app_dir(app_dir: Path | None) -> None:
    """Append the app folder to the import path. Entry points call this once, before they load a tool."""
    if app_dir is not None and str(app_dir) not in sys.path:
        sys.path.append(str(app_dir))


def _holds_module(folder: Path, name: str) -> bool:
    # AgentLoom's own checkout is a fine app folder: its modules are ours.
    here = Path(__file__).parent
    if folder == here:
        return False
    return (folder / f"{name}.py").is_file() or any((folder / name).glob("*.py"))


def _load(kind: type[_S]) -> _S:
    build: Callable[[], _S] = kind
    try:
        return build()
    except ValidationError as error:
        raise SettingsError(_sentences(error)) from None


def _sentences(error: ValidationError) -> str:
    """One sentence per problem, from the places and our own messages; pydantic's carry no values."""
    problems = error.errors(include_input=False, include_url=False)
    return " ".join(dict.fromkeys(_sentence(problem) for problem in problems))


def _sentence(problem: Mapping[str, Any]) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else ""
    variable = name if name.isupper() else f"AGENTLOOM_{name.upper()}"
    if problem["type"] == "missing":
        mend = DatabaseSettings.missing.get(name.lower(), "Set it.")
        return f"{variable} is not set. {mend}"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    return f"{variable} is not valid: {problem['msg']}."
