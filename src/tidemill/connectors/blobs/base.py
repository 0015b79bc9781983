"""What every store of files can do. Files are whole or absent, and have names as ``domain.place`` allows them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self
from uuid import uuid4

from tidemill.domain.errors import Unavailable
from tidemill.domain.place import checked_name
from tidemill.telemetry.events import emit

PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Blob:
    id: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Label:
    """What a browser is told that gets the file from the store itself."""

    file_name: str
    content_type: str


class Writing(ABC):
    """A file that is being written; nobody sees it yet. Leaving it unfinished removes it."""

    def __init__(self, name: str) -> None:
        self.size = 0
        self.label: Label | None = None  # to be set before the first byte
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
        self._drop()

    @abstractmethod
    def _append(self, piece: bytes) -> None: ...

    @abstractmethod
    def _complete(self) -> None: ...

    @abstractmethod
    def _drop(self) -> None: ...


class Blobs(ABC):
    """A store of files. Every call blocks: for threads.

    Raises everywhere:
        InvalidInput: No file can have such a name.
        UnknownFile: There is none of that name.
        StoreUnavailable: The store does not answer, or not in time; later it may.
        StoreDenied: It does not let us.
    """

    @property
    @abstractmethod
    def scratch(self) -> Path:
        """A folder of this machine for what is not whole yet: names end in ``.tmp``, ``remove_stale`` clears it."""

    @abstractmethod
    def write(self, name: str | None = None) -> Writing:
        """A file to be written piece by piece; one that has this name is replaced when it is finished."""

    @abstractmethod
    def adopt(self, path: Path, name: str) -> Blob:
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
    def remove_all(self, names: Iterable[str]) -> list[str]:
        """Remove those of them that are here; which."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """It may be gone already."""

    @abstractmethod
    def remove_stale(self, age_s: float) -> list[str]:
        """Remove from the scratch folder what nobody has written to for so long; which."""

    @abstractmethod
    def list_names(self, below: str = "", *, after: str = "") -> Iterator[str]:
        """The names of all whole files, or of those below a folder; of these, those that come after a name."""

    @abstractmethod
    def url(self, name: str) -> str:
        """Where the file is, for people and other programs: ``s3://bucket/prefix/name``, ``file:///folder/name``."""

    def name_of(self, url: str) -> str | None:
        """The name of which ``url`` has said this; None if that was another store."""
        top = self.url("x")[:-1]
        return url.removeprefix(top) if url.startswith(top) else None

    @abstractmethod
    def presigned(self, name: str, seconds: int) -> str | None:
        """A link with which anybody gets the file for so long; None if the store has no such thing."""

    @abstractmethod
    def has(self, name: str) -> bool: ...

    async def send(self, name: str, data: bytes, label: Label) -> Blob | None:  # noqa: ARG002
        """A small file by one request that blocks nobody; None if the store has no such thing."""
        checked_name(name)
        return None

    def put(self, pieces: Iterable[bytes], name: str | None = None) -> Blob:
        with self.write(name) as writing:
            for piece in pieces:
                writing.write(piece)
            return writing.finish()

    def put_file(self, path: Path, name: str | None = None) -> Blob:
        with path.open("rb") as file:
            return self.put(pieces_of(file), name)

    def link(self, name: str, to: str | None = None) -> Blob:
        """A copy under a new name, and what is in it."""
        to = to or uuid4().hex
        self.copy(name, to)
        return self.look(to)

    def look(self, name: str) -> Blob:
        """What is in a file: all of it is read."""
        with self.open(name) as file:
            size, digest = 0, hashlib.sha256()
            for piece in pieces_of(file):
                size += len(piece)
                digest.update(piece)
        return Blob(name, size, digest.digest())

    def abandon(self, name: str) -> bool:
        """Remove a file that belongs to nobody; whether that was possible. A store that does not answer keeps it."""
        try:
            self.remove(name)
        except Unavailable as error:
            emit("file.abandoned", file=name, error=str(error))
            return False
        return True


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(PIECE), b"")
