"""Who may import whom (design 2), checked on the code as it is."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IO_LIBRARIES = ("sqlalchemy", "asyncpg", "alembic", "httpx", "httpx2", "fastapi", "uvicorn", "tiktoken", "mcp")
LATE_LIBRARIES = ("mcp", "mcp_types", "httpx2", "genai_prices", "griffe")


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def imported_names(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_every_import_contract_holds() -> None:
    """Design 2: one direction, checked by import-linter as in `make lint`."""
    command = [tool("lint-imports"), str(ROOT / ".importlinter"), "--no-cache"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout


def test_workflow_code_loads_no_io_library_even_indirectly() -> None:
    """Design 2: the whole package in a fresh interpreter, registry excepted, which only entry points import."""
    names = [
        ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for module in modules("workflows")
    ]
    code = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
print(*sorted(set(sys.modules) & set({IO_LIBRARIES!r})))
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


@pytest.mark.parametrize("process", ["worker", "api.__main__"])
def test_a_process_starts_without_what_only_some_releases_need(process: str) -> None:
    """Design 10: the next call comes within 3 s of a kill, of which the start of a process may take half."""
    code = f"import sys, {process}; print(*sorted(set(sys.modules) & set({LATE_LIBRARIES!r})))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


@pytest.mark.parametrize("module", modules("context"), ids=lambda path: path.name)
def test_the_domain_imports_only_the_standard_library_and_pydantic(module: Path) -> None:
    """Design 2: `context` is pure."""
    allowed = sys.stdlib_module_names | {"context", "pydantic", "pydantic_core"}
    assert {name.partition(".")[0] for name in imported_names(module)} <= allowed


@pytest.mark.parametrize("module", modules("context"), ids=lambda path: path.name)
def test_the_domain_is_synchronous(module: Path) -> None:
    """Design 2: no async in `context`; a port may declare an async method, which is a signature and no code."""
    waiting = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not any(isinstance(node, waiting) for node in ast.walk(ast.parse(module.read_text("utf-8"))))


@pytest.mark.parametrize("banned", ["import time", "import os", "import random", "import logging", "import secrets"])
@pytest.mark.parametrize("folder", ["context", "workflows"])
def test_the_linter_really_bans_clock_chance_environment_and_logs(folder: str, banned: str) -> None:
    """Design 2: the sandbox passes these packages through, so the ban is what guards them."""
    command = [tool("ruff"), "check", "--no-cache", "--stdin-filename", f"{folder}/probe.py"]
    answer = subprocess.run([*command, "-"], input=f"{banned}\n", cwd=ROOT, capture_output=True, text=True)
    assert "TID251" in answer.stdout


def test_importing_any_module_of_ours_starts_nothing_and_needs_no_environment() -> None:
    """Design 2: nothing happens on import."""
    folders = ("context", "egress", "storage", "providers", "tools", "hooks", "activities", "workflows", "cli", "stack")
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for folder in folders for path in modules(folder)]
    entry_points = {"stack.shim", "storage.migrations.env"}
    wanted = [name.removesuffix(".__init__") for name in names if name not in entry_points and "__main__" not in name]
    wanted = [name for name in wanted if ".versions." not in name and not name.rpartition(".")[2][0].isdigit()]
    code = f"import importlib\nfor name in {wanted!r}: importlib.import_module(name)"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr[-500:]
    assert answer.stdout == ""
