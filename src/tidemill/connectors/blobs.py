"""A folder of files, each whole or absent."""

import hashlib
import os
import re
import tempfile
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

    def write(self, blob_id: str | None = None) -> "Writing":
        """A file to be written piece by piece; one that has this name is replaced when it is finished."""
        return Writing(self.path(blob_id or uuid4().hex))

    def put(self, pieces: Iterable[bytes]) -> Blob:
        with self.write() as writing:
            for piece in pieces:
                writing.write(piece)
            return writing.finish()

    def put_file(self, path: Path) -> Blob:
        with path.open("rb") as file:
            return self.put(iter(lambda: file.read(1 << 20), b""))

    def link(self, blob_id: str) -> Blob:
        """The same file under another name: who owns the one may remove it, and the other stays."""
        path = self.path(uuid4().hex)
        path.hardlink_to(self.path(blob_id))
        sync_folder(path.parent)
        with path.open("rb") as file:
            return Blob(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").digest())

    def open(self, blob_id: str) -> BinaryIO:
        return self.path(blob_id).open("rb")

    def path(self, blob_id: str) -> Path:
        if not _NAME.fullmatch(blob_id):
            raise InvalidInput(f"{blob_id!r} is not the name of a stored file")
        return self._folder / blob_id

    def has(self, blob_id: str) -> bool:
        return self.path(blob_id).is_file()

    def remove_all(self, blob_ids: Iterable[str]) -> list[str]:
        """Remove those of them that are here; which."""
        here = [blob_id for blob_id in blob_ids if _NAME.fullmatch(blob_id) and (self._folder / blob_id).exists()]
        for blob_id in here:
            self.remove(blob_id)
        return here

    def remove(self, blob_id: str) -> None:
        if _NAME.fullmatch(blob_id):
            (self._folder / blob_id).unlink(missing_ok=True)

    def remove_stale(self, age_s: float) -> list[str]:
        """Remove unfinished files that nobody has written to for so long; which. The folder's own clock decides."""
        if not self._folder.is_dir():
            return []
        with tempfile.TemporaryFile(dir=self._folder) as probe:
            now = os.fstat(probe.fileno()).st_mtime
        stale = [path for path in self._folder.glob("*.tmp") if _written_at(path) < now - age_s]
        for path in stale:
            path.unlink(missing_ok=True)
        return [path.name for path in stale]


class Writing:
    """A file that is being written, on disk under another name. Leaving it unfinished removes it."""

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._path = path
        self._temporary = path.with_name(f"{uuid4().hex}.tmp")
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._is_over = self._is_finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_finished:
            self.discard()

    def write(self, piece: bytes) -> int:
        if self._is_over:  # whoever writes has not heard of it yet
            return len(piece)
        self._digest.update(piece)
        self.size += len(piece)
        return self._opened().write(piece)

    def flush(self) -> None:
        """For writers that expect a file."""

    def finish(self) -> Blob:
        """Whole, durable and under its name from here on."""
        with self._opened() as file:
            file.flush()
            os.fsync(file.fileno())
        self._temporary.rename(self._path)
        self._is_over = self._is_finished = True
        sync_folder(self._path.parent)
        return Blob(self._path.name, self.size, self._digest.digest())

    def discard(self) -> None:
        """Nothing of it stays, not even if it was finished a moment ago."""
        self._is_over = True
        if self._file is not None:
            self._file.close()
            (self._path if self._is_finished else self._temporary).unlink(missing_ok=True)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._temporary.open("xb")
        return self._file


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # finished meanwhile
        return float("inf")


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
