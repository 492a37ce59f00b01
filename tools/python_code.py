"""The code of a Python tool: the function that an entry names, and the source files that it comes from (SPEC T1).

A process imports a file once, and goes on with what it was then. So each source is hashed when it is imported, and a
release says which hashes it was published with: whoever calls can tell old code from new.
"""

import importlib
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from context.errors import ConfigurationInvalidError
from tools.running import Returned, attempted

_OURS = Path(__file__).resolve().parents[1]
_INSTALLED = ("site-packages", "dist-packages")
_IMPORTED: dict[str, str] = {}
"""Hashes of what this process has imported, by module, of the files as they were then; as global as `sys.modules`."""
_FORGETTING = threading.Lock()
"""Python fails the second of two threads that drop what its finders remember, and with it that thread's tool call."""


def load_function(entry: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    Raises ConfigurationInvalidError with the module's name and at most the type of what importing it raised.
    """
    module_name, path = parts_of(entry)
    target = _imported(module_name)
    for step in path.split("."):
        target = getattr(target, step, None)
    if not callable(target):
        raise ConfigurationInvalidError(f"The module '{module_name}' has no function '{path}'.")
    function: Callable[..., Any] = target
    return function


def parts_of(entry: str) -> tuple[str, str]:
    """Module and function of `module:function`. Raises ConfigurationInvalidError."""
    module_name, colon, path = entry.partition(":")
    if not (module_name and colon and path):
        raise ConfigurationInvalidError(f"A Python entry is written 'module:function', not '{entry}'.")
    return module_name, path


def code_of(entry: str) -> dict[str, str]:
    """SHA-256 in hex of each source that an imported entry's module stands on, by the name of its module.

    Those are the modules beside it that are imported by now; what is installed changes with its installation, so of
    that, and of AgentLoom's own folder, only the module's package counts.
    """
    files = _files_beside(parts_of(entry)[0])
    for name in files.keys() - _IMPORTED.keys():
        if digest := _digest(files[name]):
            _IMPORTED[name] = digest
    return {name: _IMPORTED[name] for name in sorted(files) if name in _IMPORTED}


def sources_of(entry: str) -> "Sources":
    """The files behind `code_of`, as they were imported, and what else lies in their folders."""
    files = _files_beside(parts_of(entry)[0])
    hashed = {str(file): _IMPORTED[name] for name, file in files.items() if name in _IMPORTED}
    return Sources(hashed, _neighbours(hashed))


@dataclass(frozen=True)
class Sources:
    """SHA-256 in hex by path, and the Python files in each folder of those: an import may find one that was added."""

    files: dict[str, str]
    neighbours: dict[str, list[str]]

    def are_unchanged(self) -> bool:
        """Whether importing them again would find the same."""
        same = all(_digest(Path(path)) == digest for path, digest in self.files.items())
        return bool(self.files) and same and _neighbours(self.files) == self.neighbours


def _neighbours(files: Iterable[str]) -> dict[str, list[str]]:
    folders = {str(Path(file).parent) for file in files}
    return {folder: sorted(one.name for one in Path(folder).glob("*.py")) for folder in folders}


def is_outdated(published: Mapping[str, str]) -> bool:
    """Whether this process goes on with a source that is neither what was published nor what its file is now.

    A file that was changed before the process began is not: whoever starts a worker decides what code it has.
    """
    return any(
        _IMPORTED.get(name, digest) != digest and _digest(_file_of(sys.modules.get(name))) != _IMPORTED[name]
        for name, digest in published.items()
    )


def _imported(module_name: str) -> Any:
    missing: list[str | None] = []

    def imported() -> Any:
        with _FORGETTING:
            importlib.invalidate_caches()  # a file that was added a moment ago is there
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            missing.append(error.name)
            raise

    result = attempted(imported)
    if isinstance(result, Returned):
        return result.value
    if any(_is_part(name, module_name) for name in missing):
        raise ConfigurationInvalidError(f"There is no Python module '{module_name}' on the import path.")
    raise ConfigurationInvalidError(f"Importing the Python module '{module_name}' failed with {result.error_type}.")


def _is_part(missing: str | None, module_name: str) -> bool:
    return missing is not None and f"{module_name}.".startswith(f"{missing}.")


def _files_beside(module_name: str) -> dict[str, Path]:
    """The imported modules of the same package, or of the folder that the module is in, with their files."""
    package = module_name.partition(".")[0]
    folder = _folder_of(sys.modules.get(package))
    return {
        name: file
        for name, file in _imported_files()
        if name == package or name.startswith(f"{package}.") or (folder is not None and _is_in(file, folder))
    }


def _imported_files() -> Iterator[tuple[str, Path]]:
    for name, module in sys.modules.copy().items():  # at one moment, since other threads import meanwhile
        if file := _file_of(module):
            yield name, file


def _file_of(module: ModuleType | None) -> Path | None:
    written = module.__dict__.get("__file__") if isinstance(module, ModuleType) else None
    return Path(written) if isinstance(written, str) else None


def _folder_of(package: ModuleType | None) -> Path | None:
    """The folder on the import path that a top-level module is in, if it is the user's own."""
    file = _file_of(package)
    if package is None or file is None:
        return None
    folder = file.resolve().parent.parent if "__path__" in package.__dict__ else file.resolve().parent
    shared = folder in (_OURS, Path(sysconfig.get_path("stdlib"))) or any(part in _INSTALLED for part in folder.parts)
    return None if shared else folder


def _is_in(file: Path, folder: Path) -> bool:
    found = file.resolve()
    return found.is_relative_to(folder) and not any(part in _INSTALLED for part in found.relative_to(folder).parts)


def _digest(file: Path | None) -> str | None:
    """SHA-256 of a file; None if it is not there any more."""
    try:
        return sha256(file.read_bytes()).hexdigest() if file else None
    except OSError:
        return None
