"""A folder of files, each whole or absent."""

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self
from uuid import uuid4

from tidemill.domain.errors import InvalidInput

_NAME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Blob:
    id: str
    size: int
    sha256: bytes


class Blobs:
    """Written as a temporary file, synced, renamed: a crash leaves nothing that looks complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self) -> "Writing":
        """A new file, to be written piece by piece."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return Writing(self._folder)

    def put(self, pieces: Iterable[bytes]) -> Blob:
        with self.write() as writing:
            for piece in pieces:
                writing.write(piece)
            return writing.finish()

    def put_file(self, path: Path) -> Blob:
        with path.open("rb") as file:
            return self.put(iter(lambda: file.read(1 << 20), b""))

    def open(self, blob_id: str) -> BinaryIO:
        return self.path(blob_id).open("rb")

    def path(self, blob_id: str) -> Path:
        if not _NAME.fullmatch(blob_id):
            raise InvalidInput(f"{blob_id!r} is not the name of a stored file")
        return self._folder / blob_id

    def remove_all(self, blob_ids: Iterable[str]) -> list[str]:
        """Remove those of them that are here; which."""
        here = [blob_id for blob_id in blob_ids if _NAME.fullmatch(blob_id) and (self._folder / blob_id).exists()]
        for blob_id in here:
            self.remove(blob_id)
        return here

    def remove(self, blob_id: str) -> None:
        if _NAME.fullmatch(blob_id):
            (self._folder / blob_id).unlink(missing_ok=True)


class Writing:
    """A file that is being written. Leaving it unfinished removes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = uuid4().hex
        self._temporary = folder / f"{self._name}.tmp"
        self._file = self._temporary.open("xb")
        self._digest = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def write(self, piece: bytes) -> int:
        self._digest.update(piece)
        self.size += len(piece)
        return self._file.write(piece)

    def flush(self) -> None:
        """For writers that expect a file."""

    def finish(self) -> Blob:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._temporary.rename(self._folder / self._name)
        _sync_folder(self._folder)
        return Blob(self._name, self.size, self._digest.digest())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
