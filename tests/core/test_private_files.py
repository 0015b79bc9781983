"""Files and folders that Tidemill creates are for its user only."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.core.private_files import make_private_folder, open_private_file


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Set a umask that removes no permission."""
    old = os.umask(0)
    yield
    os.umask(old)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folders_are_private_and_existing_ones_keep_their_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "a" / "b")
    make_private_folder(tmp_path / "a" / "b")
    assert [mode_of(path) for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")] == [0o755, 0o700, 0o700]


def test_new_file_is_private_and_link_is_refused(tmp_path: Path) -> None:
    with open_private_file(tmp_path / "file", "xb") as file:
        file.write(b"x")
    assert mode_of(tmp_path / "file") == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="symbolic links"):
        open_private_file(tmp_path / "link", "wb")
    assert (tmp_path / "file").read_bytes() == b"x"
