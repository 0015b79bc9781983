"""The interface of blob stores. A blob is complete or absent; unfinished files of dead processes are removed."""

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
    """Lock a file until it is closed. Return False if another process holds the lock or locks are not supported."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_stale_tmp_files(folder: Path, age_s: float) -> list[str]:
    """Remove unfinished files that were last modified more than ``age_s`` seconds ago, and return their names.

    The age is measured with the clock of the file system.
    """
    if not folder.is_dir():
        return []
    with tempfile.TemporaryFile(dir=folder) as probe:
        now = os.fstat(probe.fileno()).st_mtime
    stale = [path for path in folder.glob("*.tmp") if _get_modified_at(path) < now - age_s]
    for path in stale:
        path.unlink(missing_ok=True)
    return [path.name for path in stale]


def _get_modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # its writer finished or removed it
        return float("inf")


BLOB_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Blob:
    id: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class DownloadLabel:
    """The file name and content type that a store sends when a browser downloads the file directly."""

    file_name: str
    content_type: str


class BlobWriter(ABC):
    """Writes one blob. The blob becomes visible when ``finish`` returns; leaving the context earlier discards it."""

    def __init__(self, name: str) -> None:
        self.size = 0
        self.label: DownloadLabel | None = None  # set it before the first write
        self.name = name
        self._digest = hashlib.sha256()
        self._is_over = self._is_finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_finished:
            self.discard()

    def write(self, piece: bytes) -> int:
        if not self._is_over:  # a writer may still write after another thread discarded the blob
            self._digest.update(piece)
            self.size += len(piece)
            self._append(piece)
        return len(piece)

    def flush(self) -> None:  # noqa: B027  optional to override
        """Do nothing; file writers expect this method."""

    def finish(self) -> Blob:
        """Make the blob durable and visible under its name."""
        self._complete()
        self._is_over = self._is_finished = True
        return Blob(self.name, self.size, self._digest.digest())

    def discard(self) -> None:
        """Remove everything that was written, also after ``finish``."""
        self._is_over = True
        self._remove_written()

    @abstractmethod
    def _append(self, piece: bytes) -> None: ...

    @abstractmethod
    def _complete(self) -> None: ...

    @abstractmethod
    def _remove_written(self) -> None: ...


class BlobStore(ABC):
    """A store of files. Every call blocks, so call it in threads.

    Raises in every method:
        InvalidInput: The name is not valid for a blob.
        UnknownFile: The store has no blob with this name.
        StorageUnavailable: The store did not respond, or not in time; a retry may succeed.
        StorageAccessDenied: The store rejected the credentials.
    """

    @property
    @abstractmethod
    def scratch_folder(self) -> Path:
        """The local folder for unfinished files, named ``*.tmp``; ``remove_stale_scratch_files`` deletes old ones."""

    @abstractmethod
    def open_writer(self, name: str | None = None) -> BlobWriter:
        """Return a writer for a blob. Finishing it replaces any blob with the same name."""

    @abstractmethod
    def publish_scratch_file(self, path: Path, name: str) -> Blob:
        """Store a complete, synced scratch file under this name and return the blob.

        If a blob with this name exists, keep and return that one.
        """

    @abstractmethod
    def copy(self, name: str, to: str) -> None:
        """Copy a blob to another name. Removing one of them does not affect the other."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a blob as a seekable file; the caller closes it."""

    @abstractmethod
    def size(self, name: str) -> int: ...

    @abstractmethod
    def remove_many(self, names: Iterable[str]) -> list[str]:
        """Remove the blobs that exist, and return their names."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a blob; do nothing if it does not exist."""

    @abstractmethod
    def remove_stale_scratch_files(self, age_s: float) -> list[str]:
        """Remove scratch files that were last modified more than ``age_s`` seconds ago, and return their names."""

    @abstractmethod
    def list_names(self, below: str = "", *, after: str = "") -> Iterator[str]:
        """Yield the names of all blobs, or of those in the folder ``below``, that sort after ``after``."""

    @abstractmethod
    def url(self, name: str) -> str:
        """Return the URL of a blob: ``s3://bucket/prefix/name``, ``file:///folder/name``."""

    def name_from_url(self, url: str) -> str | None:
        """Return the name of the blob with this URL; None if the URL belongs to another store."""
        top = self.url("x")[:-1]
        return url.removeprefix(top) if url.startswith(top) else None

    @abstractmethod
    def presign_url(self, name: str, seconds: int) -> str | None:
        """Return a link that downloads the blob without authentication; None if the store does not support this."""

    @abstractmethod
    def has(self, name: str) -> bool: ...

    async def upload_in_one_request_if_supported(self, name: str, data: bytes, label: DownloadLabel) -> Blob | None:  # noqa: ARG002
        """Upload a small file with one asynchronous request; return None if the store does not support this."""
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
        """Copy a blob to a new name, and return the copy with its size and hash."""
        to = to or uuid4().hex
        self.copy(name, to)
        return self.read_size_and_hash(to)

    def read_size_and_hash(self, name: str) -> Blob:
        """Read a whole blob and return its size and hash."""
        with self.open(name) as file:
            size, digest = 0, hashlib.sha256()
            for piece in iter_chunks(file):
                size += len(piece)
                digest.update(piece)
        return Blob(name, size, digest.digest())

    def try_remove(self, name: str) -> bool:
        """Remove a blob that nothing refers to. Return False if the store is unavailable; the blob then remains."""
        try:
            self.remove(name)
        except Unavailable as error:
            emit("file.abandoned", file=name, error=str(error))
            return False
        return True


def iter_chunks(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(BLOB_CHUNK_BYTES), b"")
