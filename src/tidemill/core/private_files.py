"""Files and folders that only the user of this process can read. Existing files and folders keep their permissions."""

import os
from pathlib import Path
from typing import IO, Any

PRIVATE_FILE_MODE = 0o600
PRIVATE_FOLDER_MODE = 0o700


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents for this user only."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_private_folder(folder.parent)
    try:
        folder.mkdir(PRIVATE_FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise


def open_private_file(path: Path, mode: str) -> IO[Any]:
    """Open a file; a new file is for this user only. Raise OSError if the file is a symbolic link."""
    return open(path, mode, opener=_open_privately)


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, PRIVATE_FILE_MODE)
