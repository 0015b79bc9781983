"""What every blob store can do. A blob is complete or absent; unfinished files of dead processes are removed."""

import fcntl
import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self
from uuid import uuid4

from tidemill.core.blob_location import check_blob_name
from tidemill.core.errors import Unavailable
from tidemill.telemetry.events import emit


def try_lock_file(file: BinaryIO) -> bool:
    """Take the lock of a file, until it is closed. False when somebody has it, or files cannot be locked there."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_stale_tmp_files(folder: Path, age_s: float) -> list[str]:
    """Remove unfinished files that nobody has written to for so long; which. The folder's own clock decides."""
    if not folder.is_dir():
        return []
    with tempfile.TemporaryFile(dir=folder) as probe:
        now = os.fstat(probe.fileno()).st_mtime
    stale = [path for path in folder.glob("*.tmp") if _modified_at(path) < now - age_s]
    for path in stale:
        path.unlink(missing_ok=True)
    return [path.name for path in stale]


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # finished meanwhile
        return float("inf")


BLOB_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Blob:
    id: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class DownloadLabel:
    """What a browser is told that gets the file from the store itself."""

    file_name: str
    content_type: str


class BlobWriter(ABC):
    """A file that is being written; nobody sees it yet. Leaving it unfinished removes it."""

    def __init__(self, name: str) -> None:
        self.size = 0
        self.label: DownloadLabel | None = None  # to be set before the first byte
        self.name = name
        self._digest = hashlib.sha256()
        self._is_over = self._is_finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_finished:
            self.discard()

    def write(self, piece: bytes) -> int:
        if not self._is_over:  # or whoever writes has not heard of it yet
            self._digest.update(piece)
            self.size += len(piece)
            self._append(piece)
        return len(piece)

    def flush(self) -> None:  # noqa: B027  nobody needs to do anything
        """For writers that expect a file."""

    def finish(self) -> Blob:
        """Whole, durable and under its name from here on."""
        self._complete()
        self._is_over = self._is_finished = True
        return Blob(self.name, self.size, self._digest.digest())

    def discard(self) -> None:
        """Nothing of it stays, not even if it was finished a moment ago."""
        self._is_over = True
        self._remove_written()

    @abstractmethod
    def _append(self, piece: bytes) -> None: ...

    @abstractmethod
    def _complete(self) -> None: ...

    @abstractmethod
    def _remove_written(self) -> None: ...


class BlobStore(ABC):
    """A store of files. Every call blocks: for threads.

    Raises everywhere:
        InvalidInput: No file can have such a name.
        UnknownFile: There is none of that name.
        StoreUnavailable: The store does not answer, or not in time; later it may.
        StoreDenied: It does not let us.
    """

    @property
    @abstractmethod
    def scratch_folder(self) -> Path:
        """The local folder of unfinished files, named ``*.tmp``; ``remove_stale_scratch_files`` deletes old ones."""

    @abstractmethod
    def open_writer(self, name: str | None = None) -> BlobWriter:
        """A file to be written piece by piece; one that has this name is replaced when it is finished."""

    @abstractmethod
    def publish_scratch_file(self, path: Path, name: str) -> Blob:
        """The whole, synced file of the scratch folder under this name, unless there is one already; that one, then."""

    @abstractmethod
    def copy(self, name: str, to: str) -> None:
        """The same file under another name, too: who owns the one may remove it, and the other stays."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """To be read from any place; whoever asked for it closes it."""

    @abstractmethod
    def size(self, name: str) -> int: ...

    @abstractmethod
    def remove_many(self, names: Iterable[str]) -> list[str]:
        """Remove those of them that are here; which."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """It may be gone already."""

    @abstractmethod
    def remove_stale_scratch_files(self, age_s: float) -> list[str]:
        """Remove from the scratch folder what nobody has written to for so long; which."""

    @abstractmethod
    def list_names(self, below: str = "", *, after: str = "") -> Iterator[str]:
        """The names of all whole files, or of those below a folder; of these, those that come after a name."""

    @abstractmethod
    def url(self, name: str) -> str:
        """Where the file is, for people and other programs: ``s3://bucket/prefix/name``, ``file:///folder/name``."""

    def name_from_url(self, url: str) -> str | None:
        """The name of which ``url`` has said this; None if that was another store."""
        top = self.url("x")[:-1]
        return url.removeprefix(top) if url.startswith(top) else None

    @abstractmethod
    def presign_url(self, name: str, seconds: int) -> str | None:
        """A link with which anybody gets the file for so long; None if the store has no such thing."""

    @abstractmethod
    def has(self, name: str) -> bool: ...

    async def upload_small(self, name: str, data: bytes, label: DownloadLabel) -> Blob | None:  # noqa: ARG002
        """A small file by one request that blocks nobody; None if the store has no such thing."""
        check_blob_name(name)
        return None

    def put(self, pieces: Iterable[bytes], name: str | None = None) -> Blob:
        with self.open_writer(name) as writing:
            for piece in pieces:
                writing.write(piece)
            return writing.finish()

    def put_file(self, path: Path, name: str | None = None) -> Blob:
        with path.open("rb") as file:
            return self.put(iter_chunks(file), name)

    def copy_and_hash(self, name: str, to: str | None = None) -> Blob:
        """A copy under a new name, and what is in it."""
        to = to or uuid4().hex
        self.copy(name, to)
        return self.hash_file(to)

    def hash_file(self, name: str) -> Blob:
        """What is in a file: all of it is read."""
        with self.open(name) as file:
            size, digest = 0, hashlib.sha256()
            for piece in iter_chunks(file):
                size += len(piece)
                digest.update(piece)
        return Blob(name, size, digest.digest())

    def try_remove(self, name: str) -> bool:
        """Remove a file that belongs to nobody; whether that was possible. A store that does not answer keeps it."""
        try:
            self.remove(name)
        except Unavailable as error:
            emit("file.abandoned", file=name, error=str(error))
            return False
        return True


def iter_chunks(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(BLOB_CHUNK_BYTES), b"")
