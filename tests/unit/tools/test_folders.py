"""The private working folder of a Run."""

from pathlib import Path

from tests.support.tool_calls import OPERATION, RUN
from tools.folders import remove_run_folder, run_folder


async def test_the_folder_goes_with_everything_in_it_and_nothing_beside_it(tmp_path: Path) -> None:
    """SPEC T10."""
    outside = tmp_path / "outside.txt"
    outside.write_text("stays")
    folder, other = run_folder(tmp_path, RUN), run_folder(tmp_path, OPERATION)
    (folder / "deep" / "er").mkdir(parents=True)
    other.mkdir()
    (folder / "deep" / "file.txt").write_text("goes")
    (folder / "link").symlink_to(outside)
    (folder / "links").symlink_to(other)
    assert await remove_run_folder(tmp_path, RUN)
    assert not folder.exists()
    assert outside.read_text() == "stays"
    assert other.exists()


async def test_a_folder_that_was_never_made_is_gone(tmp_path: Path) -> None:
    """SPEC T10: removing twice is fine, as finishing a Run may be."""
    assert await remove_run_folder(tmp_path, RUN)
    assert await remove_run_folder(tmp_path / "nowhere", RUN)


async def test_protected_files_go_too(tmp_path: Path) -> None:
    """SPEC T10."""
    locked = run_folder(tmp_path, RUN) / "locked"
    locked.mkdir(parents=True)
    (locked / "file.txt").write_text("goes")
    (locked / "file.txt").chmod(0o400)
    locked.chmod(0o500)
    assert await remove_run_folder(tmp_path, RUN)
    assert not run_folder(tmp_path, RUN).exists()


async def test_an_unreadable_folder_goes_too(tmp_path: Path) -> None:
    """SPEC T10."""
    closed = run_folder(tmp_path, RUN) / "closed"
    closed.mkdir(parents=True)
    (closed / "file.txt").write_text("goes")
    closed.chmod(0o000)
    assert await remove_run_folder(tmp_path, RUN)
