"""Three read-only tools over the documents of this repository, for the demo agent.

Everything is relative to the repository's root; nothing outside it, hidden, or larger than a megabyte is read.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = {".md", ".toml", ".txt", ".yaml", ".yml"}
LARGEST_BYTES = 1_000_000
MOST_FILES = 500
MOST_HITS = 20


def list_files(folder: str = "") -> list[str]:
    """List the documents in a folder of the repository and in all folders below it.

    Args:
        folder: A folder relative to the repository's root, such as `docs`; empty for the root.

    Returns:
        The paths relative to the root, in alphabetical order, at most 500.
    """
    start = _inside(folder)
    if not start.is_dir():
        raise NotADirectoryError(f"There is no folder '{folder}'.")
    return [_shown(path) for path in _documents(start)][:MOST_FILES]


def read_file(path: str) -> str:
    """Read one document of the repository.

    Args:
        path: The document's path relative to the repository's root, as `list_files` gives it.

    Returns:
        The whole text of the document.
    """
    document = _inside(path)
    if not (document.is_file() and _is_document(document)):
        raise FileNotFoundError(f"There is no document '{path}'.")
    return document.read_text(encoding="utf-8", errors="replace")


def search_files(words: str) -> list[dict[str, str | int]]:
    """Find the documents of the repository that speak about something.

    Args:
        words: One or more words; a document must contain all of them, in any order and either case.

    Returns:
        For each document found its path, and the line that holds most of the words with its number; at most 20,
        first those with most of the words in one heading, then those that speak of little else.
    """
    wanted = words.lower().split()
    if not wanted:
        raise ValueError("Give at least one word to search for.")
    hits = []
    for path in _documents(ROOT):
        text = path.read_text(encoding="utf-8", errors="replace")
        mentions = [text.lower().count(word) for word in wanted]
        if all(mentions):
            headings = [line for line in text.splitlines() if line.startswith("#") and path.suffix == ".md"]
            headed = max(_scores(headings, wanted), default=0)
            hits.append((-headed, -sum(mentions) / len(text), _shown(path), text))
    return [{"path": shown, **_best_line(text, wanted)} for _, _, shown, text in sorted(hits)[:MOST_HITS]]


def _best_line(text: str, wanted: list[str]) -> dict[str, str | int]:
    lines = text.splitlines()
    scores = _scores(lines, wanted)
    best = scores.index(max(scores))
    return {"line": best + 1, "text": lines[best].strip()[:300]}


def _scores(lines: list[str], wanted: list[str]) -> list[int]:
    """How many of the words each line holds."""
    return [sum(word in line.lower() for word in wanted) for line in lines]


def _documents(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "__")) or path.is_symlink():
            continue
        if path.is_dir():
            yield from _documents(path)
        elif _is_document(path):
            yield path


def _is_document(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    return path.suffix in DOCUMENTS and not hidden and path.stat().st_size <= LARGEST_BYTES


def _inside(path: str) -> Path:
    """The path with `..` and links followed, if it is still inside the repository."""
    found = (ROOT / path.lstrip("/")).resolve()
    if not found.is_relative_to(ROOT):
        raise PermissionError(f"'{path}' is outside the repository.")
    return found


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
