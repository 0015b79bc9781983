"""Folders in which not everything is for us. Root may read all: so the folder is read by somebody else."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ingestion.scenes import ROWS, Scene
from tidemill.connectors.inlets.folder import CLOSED, FolderInlet
from tidemill.domain.errors import UnknownFile
from tidemill.domain.watching import FileState

NOBODY = 65_534


@pytest.fixture
def box() -> Iterator[Path]:
    """Where everybody may look, unlike in the folders of tests."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        box = Path(folder) / "box"
        box.mkdir(0o755)
        box.chmod(0o755)
        (box / "good.csv").write_text(ROWS)
        yield box


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """To us: by giving up what root may do, or, for others, by its mode."""
    folder.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)


def test_a_link_to_what_is_not_for_us_is_refused_and_stops_nobody(box: Path) -> None:
    secret = box.parent / "secret"
    secret.mkdir()
    (secret / "x.csv").write_text(ROWS)
    (box / "bad.csv").symlink_to(secret / "x.csv")
    with closed(secret):
        found = {one.path: one.refused for one in FolderInlet(box, "").list(deep=False, skip=frozenset())}
    assert found == {"good.csv": None, "bad.csv": CLOSED}


def test_a_closed_folder_below_is_said_and_stops_nobody(box: Path) -> None:
    lost = box / "lost+found"
    lost.mkdir()
    with closed(lost):
        inlet = FolderInlet(box, "")
        assert [one.path for one in inlet.list(deep=True, skip=frozenset())] == ["good.csv"]
    assert inlet.troubles == ["lost+found: Permission denied"]


async def test_nothing_is_made_behind_a_link_that_leads_out(scene: Scene, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (scene.inbox / "processed").symlink_to(out)
    scene.declare('pattern = "**/*.csv"')
    scene.put("x/y/a.csv")
    assert "leads out" in str((await scene.whole_way()).came.problem)
    assert list(out.rglob("*")) == []
    assert await scene.states() == {"x/y/a.csv": FileState.PERSISTED}


def test_a_folder_that_is_swapped_for_a_link_while_a_file_is_opened_leads_nobody_out(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = box.parent / "out"
    out.mkdir()
    (out / "a.csv").write_text("secret")
    (box / "below").mkdir()
    (box / "below" / "a.csv").write_text(ROWS)
    inside: Callable[[FolderInlet, str], Path] = FolderInlet._inside

    def swapped(self: FolderInlet, path: str) -> Path:
        found = inside(self, path)
        (box / "below").rename(box / "was")
        (box / "below").symlink_to(out)
        return found

    inlet = FolderInlet(box, "")
    assert b"".join(inlet.read("below/a.csv")) == ROWS.encode()
    monkeypatch.setattr(FolderInlet, "_inside", swapped)
    with pytest.raises(UnknownFile):
        list(inlet.read("below/a.csv"))
