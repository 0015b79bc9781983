"""Folders with unreadable files. Root can read everything, so the tests read as another user."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tidemill.core.errors import UnknownFile
from tidemill.watches.file_state import FileState
from tidemill.watches.sources.folder_source import LINK_DENIED_MESSAGE, FolderWatchSource
from watches.scenes import ROWS, Scene

NOBODY_UID = 65_534


@pytest.fixture
def box() -> Iterator[Path]:
    """A folder that all users can read, unlike the temporary folders of tests."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        box = Path(folder) / "box"
        box.mkdir(0o755)
        box.chmod(0o755)
        (box / "good.csv").write_text(ROWS)
        yield box


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Make a folder unreadable for this process. If it runs as root, change its user too."""
    folder.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY_UID)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)


def test_link_to_unreadable_file_is_refused_and_listing_continues(box: Path) -> None:
    secret = box.parent / "secret"
    secret.mkdir()
    (secret / "x.csv").write_text(ROWS)
    (box / "bad.csv").symlink_to(secret / "x.csv")
    with closed(secret):
        refusals = {
            entry.path: entry.refusal_reason
            for entry in FolderWatchSource(box, "").list_files(recursive=False, skip_folders=frozenset())
        }
    assert refusals == {"good.csv": None, "bad.csv": LINK_DENIED_MESSAGE}


def test_unreadable_subfolder_is_reported_and_listing_continues(box: Path) -> None:
    lost = box / "lost+found"
    lost.mkdir()
    with closed(lost):
        source = FolderWatchSource(box, "")
        assert [entry.path for entry in source.list_files(recursive=True, skip_folders=frozenset())] == ["good.csv"]
    assert source.listing_errors == ["lost+found: Permission denied"]


async def test_archive_folder_linked_outside_is_reported_and_nothing_is_created(scene: Scene, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (scene.inbox / "processed").symlink_to(out)
    scene.declare('pattern = "**/*.csv"')
    scene.put("x/y/a.csv")
    assert "points outside the watched folder" in str((await scene.whole_way()).result.problem)
    assert list(out.rglob("*")) == []
    assert await scene.states() == {"x/y/a.csv": FileState.PERSISTED}


def test_folder_swapped_for_link_during_open_cannot_escape_source(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = box.parent / "out"
    out.mkdir()
    (out / "a.csv").write_text("secret")
    (box / "below").mkdir()
    (box / "below" / "a.csv").write_text(ROWS)
    resolve_inside: Callable[[FolderWatchSource, str], Path] = FolderWatchSource._resolve_path_inside_root

    def swapped(self: FolderWatchSource, path: str) -> Path:
        resolved = resolve_inside(self, path)
        (box / "below").rename(box / "was")
        (box / "below").symlink_to(out)
        return resolved

    source = FolderWatchSource(box, "")
    assert b"".join(source.read("below/a.csv")) == ROWS.encode()
    monkeypatch.setattr(FolderWatchSource, "_resolve_path_inside_root", swapped)
    with pytest.raises(UnknownFile):
        list(source.read("below/a.csv"))
