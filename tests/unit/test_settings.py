"""The environment as configuration: what is accepted, and what a wrong one says."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from settings import (
    Settings,
    SettingsError,
    clashing_modules,
    forget_temporal_secrets,
    inherited_environment,
    load_client_settings,
    load_database_settings,
    load_dev_overrides,
    load_settings,
    load_temporal_options,
    settings_or_exit,
    use_app_dir,
)

KEY = base64.b64encode(bytes(range(32))).decode()
WORKING = {
    "DATABASE_URL": "postgresql://ann:pass@db:5432/loom",
    "AGENTLOOM_MASTER_KEYS": f"new:{KEY},old:{KEY}",
    "AGENTLOOM_INDEX_KEY": KEY,
}


def configure(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in (WORKING | variables).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"TEMPORAL_ADDRESS": "host:abc"}, "must read host:port"),
        ({"TEMPORAL_ADDRESS": "host:99999"}, "must read host:port"),
        ({"TEMPORAL_ADDRESS": "http://host:7233"}, "must read host:port"),
        ({"TEMPORAL_PROFILE": "geheim"}, "TEMPORAL_PROFILE no profile in it"),
        ({"TEMPORAL_CONFIG_FILE": "{folder}"}, "TEMPORAL_CONFIG_FILE names no valid configuration file"),
        ({"TEMPORAL_CONFIG_FILE": "{folder}/geheim.toml"}, "TEMPORAL_CONFIG_FILE names no valid configuration file"),
    ],
)
def test_a_connection_to_temporal_that_can_not_be_is_said_without_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    """SPEC 17, Y6: by the processes as by the commands."""
    (tmp_path / "geheim.toml").write_text("[profile.default]\napi_key = geheim")
    configure(monkeypatch, **{name: value.format(folder=tmp_path) for name, value in variables.items()})
    with pytest.raises(SettingsError) as caught:
        load_temporal_options()
    assert said in caught.value.message
    assert "geheim" not in caught.value.message
    with pytest.raises(SystemExit, match="TEMPORAL_"):
        settings_or_exit()


def test_without_a_word_of_it_temporal_is_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SPEC 17: a file of Temporal's own tools that is not there says nothing."""
    configure(monkeypatch, TEMPORAL_CONFIG_FILE=str(tmp_path / "gone.toml"))
    assert load_temporal_options()["target_host"] == "localhost:7233"


def test_a_complete_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC Y1: database and keys are all that production needs."""
    configure(monkeypatch)
    settings = load_settings()
    assert settings.database_url.get_secret_value() == "postgresql://ann:pass@db:5432/loom"
    assert list(settings.keys_by_id) == ["new", "old"]
    assert settings.index_key == bytes(range(32))


@pytest.mark.parametrize("variable", sorted(WORKING))
def test_each_missing_variable_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """SPEC Y1."""
    configure(monkeypatch)
    monkeypatch.delenv(variable)
    with pytest.raises(SettingsError, match=rf"{variable} is not set\. .+"):
        load_settings()


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("DATABASE_URL", "mysql://ann:geheim@db/loom", "DATABASE_URL must read postgresql://"),
        ("DATABASE_URL", "postgresql://ann:geheim@db", "DATABASE_URL must read postgresql://"),
        ("DATABASE_URL", "postgresql://ann:geheim@db:port/loom", "DATABASE_URL must read postgresql://"),
        ("DATABASE_URL", "postgresql://ann:geheim@db:99999/loom", "DATABASE_URL must read postgresql://"),
        ("DATABASE_URL", "postgresql://ann:geheim@db:0/loom", "DATABASE_URL must read postgresql://"),
        ("DATABASE_URL", "postgresql://ann:geheim@[::1/loom", "DATABASE_URL must read postgresql://"),
        *(
            ("DATABASE_URL", f"postgresql://ann:ge{odd}heim@db/loom", "are written as %40 %2F %23 %3F %25")
            for odd in "@/#?"
        ),
        ("DATABASE_URL", "postgresql://ann:geheim@db/loom?sslmode", "DATABASE_URL must read postgresql://"),
        ("DATABASE_URL", "postgresql://ann:geheim@db/loom?sslmode=geheim", "sslmode in DATABASE_URL must be one of"),
        ("AGENTLOOM_MASTER_KEYS", "geheim", "must read id:base64"),
        ("AGENTLOOM_MASTER_KEYS", "id:geheim!", "not valid base64"),
        ("AGENTLOOM_MASTER_KEYS", f"id:{base64.b64encode(b'geheim').decode()}", "must have 32 bytes; one has 6"),
        ("AGENTLOOM_MASTER_KEYS", f"one:{KEY},one:{KEY}", "the same key id twice"),
        ("AGENTLOOM_INDEX_KEY", base64.b64encode(b"geheim").decode(), "at least 32 bytes"),
        ("AGENTLOOM_API_PORT", "geheim", "AGENTLOOM_API_PORT is not valid"),
        ("AGENTLOOM_MODE", "geheim", "AGENTLOOM_MODE is not valid"),
        ("AGENTLOOM_APP_DIR", "/geheim", "must name an existing folder"),
    ],
)
def test_a_wrong_value_is_explained_without_being_repeated(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    """SPEC Y6: no error holds a secret, so none holds a value at all; nothing is chained to it either."""
    configure(monkeypatch, **{variable: value})
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert sentence in caught.value.message
    assert "geheim" not in caught.value.message
    assert base64.b64encode(b"geheim").decode() not in caught.value.message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_settings_show_no_secret_when_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC Y6."""
    configure(monkeypatch)
    shown = repr(load_settings())
    assert "pass" not in shown
    assert repr(bytes(range(32))) not in shown


def test_settings_cannot_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 2: settings are frozen."""
    configure(monkeypatch)
    with pytest.raises(ValidationError):
        load_settings().api_port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("variables", "allowed"),
    [
        ({}, "none"),
        ({"AGENTLOOM_MODE": "dev"}, "loopback"),
        ({"AGENTLOOM_MODE": "dev", "AGENTLOOM_PRIVATE_ADDRESSES": "none"}, "none"),
        ({"AGENTLOOM_PRIVATE_ADDRESSES": "all"}, "all"),
    ],
)
def test_private_addresses_are_reachable_only_in_dev_or_if_told(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], allowed: str
) -> None:
    """SPEC Y4: `agentloom dev` allows loopback."""
    configure(monkeypatch, **variables)
    assert load_settings().allowed_private_addresses == allowed


@pytest.mark.parametrize(
    "place",
    [
        "ann:p%40ss@db:5433/loom?sslmode=require&application_name=loom",
        "[::1]:5432/loom",
        "one:5432,two:5433,three/loom?target_session_attrs=read-write",
        "/loom?host=/run/postgresql",
    ],
)
def test_a_database_may_be_named_as_other_programs_do(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """SPEC 17: with encryption, several servers, or by a socket."""
    monkeypatch.setenv("DATABASE_URL", f"postgresql://{place}")
    assert load_database_settings().database_url.get_secret_value() == f"postgresql://{place}"


@pytest.mark.parametrize("key", ["al_geheim\n", "al geheim", "ключ"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """SPEC 17, Y6."""
    monkeypatch.setenv("AGENTLOOM_API_KEY", key)
    with pytest.raises(SettingsError, match="AGENTLOOM_API_KEY must be one key") as caught:
        load_client_settings()
    assert key not in caught.value.message


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_every_usual_spelling_of_a_database_address_is_understood(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """SPEC 17: `DATABASE_URL`."""
    monkeypatch.setenv("DATABASE_URL", f"{scheme}://ann@db/loom")
    assert load_database_settings().database_url.get_secret_value() == "postgresql://ann@db/loom"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 17."""
    monkeypatch.setenv("AGENTLOOM_API", "")
    assert load_client_settings().api is None


def test_dev_uses_a_temporal_server_that_any_of_temporals_own_variables_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 17."""
    assert not load_dev_overrides().has_temporal
    monkeypatch.setenv("TEMPORAL_PROFILE", "staging")
    assert load_dev_overrides().has_temporal


@pytest.mark.parametrize("name", ["tools.py", "worker.py", "context/__init__.py", "api/anything.py"])
def test_an_app_module_named_like_ours_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """SPEC 17."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    configure(monkeypatch, AGENTLOOM_APP_DIR=str(tmp_path))
    with pytest.raises(SettingsError, match=name.partition("/")[0].removesuffix(".py")):
        load_settings()


def test_an_app_folder_with_names_of_its_own_is_fine(tmp_path: Path) -> None:
    """SPEC 17: only a clash is refused."""
    (tmp_path / "docs_tools.py").touch()
    (tmp_path / "tools").mkdir()
    assert clashing_modules(tmp_path) == ()


def test_the_app_folder_comes_last_on_the_import_path_and_only_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SPEC 17: appended, so that it never takes the place of an installed module."""
    monkeypatch.setattr(sys, "path", ["/before"])
    use_app_dir(tmp_path)
    use_app_dir(tmp_path)
    use_app_dir(None)
    assert sys.path == ["/before", str(tmp_path)]


def test_a_child_gets_the_environment_less_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC Y6."""
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("LEFT_OUT", "1")
    environment = inherited_environment(without=["LEFT_OUT"])
    assert environment["KEPT"] == "1"
    assert "LEFT_OUT" not in environment


@pytest.mark.parametrize("spelled", [str.upper, str.lower])
def test_a_process_that_read_its_settings_hands_no_secret_to_its_children(
    monkeypatch: pytest.MonkeyPatch, spelled: Callable[[str], str]
) -> None:
    """SPEC Y6: a tool looks into the environment of its process, or of a child it starts, and finds none of ours."""
    for name, value in (WORKING | {"AGENTLOOM_API_KEY": "al_secret", "TEMPORAL_API_KEY": "secret"}).items():
        monkeypatch.setenv(spelled(name), value)
    monkeypatch.setenv("KEPT", "1")
    assert settings_or_exit().index_key == bytes(range(32))
    forget_temporal_secrets()
    dump = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = json.loads(subprocess.run([sys.executable, "-c", dump], check=True, capture_output=True).stdout)
    assert seen["KEPT"] == "1"
    assert not {name.upper() for name in seen} & {*WORKING, "AGENTLOOM_API_KEY", "TEMPORAL_API_KEY"}


def test_temporals_key_stays_until_its_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own library reads it, after our settings."""
    configure(monkeypatch, TEMPORAL_API_KEY="secret")
    settings_or_exit()
    assert inherited_environment()["TEMPORAL_API_KEY"] == "secret"


def test_importing_settings_reads_nothing() -> None:
    """Design 2: nothing happens on import, so an empty environment does not stop one."""
    subprocess.run([sys.executable, "-c", "import settings"], env={}, check=True, capture_output=True)


def test_values_can_be_given_directly() -> None:
    """Tests and benchmarks build settings without an environment."""
    settings = Settings.model_validate(
        {"database_url": "postgresql://h/d", "master_keys": f"k:{KEY}", "index_key": KEY}
    )
    assert settings.task_queue == "agentloom"
