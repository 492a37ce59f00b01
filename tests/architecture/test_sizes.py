"""The size budget of the house: a function a reader can hold in mind, a file that is one noun."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from settings import OUR_MODULES

ROOT = Path(__file__).parents[2]
SOURCES = sorted(name if (ROOT / name).is_dir() else f"{name}.py" for name in OUR_MODULES)
LONGEST_FUNCTION = 50
LONGEST_FILE = 450
BANNED_NAMES = re.compile(r"Manager|Helper|Util|Handler|Info$|Data$|^Base[A-Z]|Base$")


def source_files() -> Iterator[Path]:
    for name in SOURCES:
        path = ROOT / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in source_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def is_migration(place: str) -> bool:
    return "/migrations/versions/" in place


def test_no_function_is_longer_than_a_page() -> None:
    """A migration is a list of statements, so it is excepted."""
    assert [place for place, node in functions() if lines_of(node) > LONGEST_FUNCTION and not is_migration(place)] == []


def test_most_functions_are_a_few_lines() -> None:
    assert statistics.median(body_lines(node) for _, node in functions()) <= 8


def test_no_file_is_two_nouns() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in source_files()}
    assert [path for path, count in lengths.items() if count > LONGEST_FILE and not is_migration(path)] == []


def test_every_module_says_what_it_is() -> None:
    assert [str(path) for path in source_files() if not ast.get_docstring(ast.parse(path.read_text("utf-8")))] == []


def test_no_name_says_nothing() -> None:
    """Names like manager and helper hide what a thing is."""
    classes = (
        (path, node)
        for path in source_files()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [f"{path.relative_to(ROOT)} {node.name}" for path, node in classes if BANNED_NAMES.search(node.name)] == []


def test_no_folder_says_nothing() -> None:
    banned = {"models", "utils", "common", "core", "services", "helpers", "managers", "shared"}
    assert [path for path in source_files() if banned & set(path.relative_to(ROOT).parts)] == []
