"""What every inlet can do: list files, read them, put them away."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from tidemill.connectors.blobs import Blob, Blobs
from tidemill.domain.errors import Interrupted, StoreDenied, StoreUnavailable, TooLarge, UnknownFile, Unreachable
from tidemill.domain.watching import Entry

GoingOn = Callable[[], bool]
Pieces = Generator[bytes, None, None]  # closed by whoever does not want the rest
DEPTH_MAX = 20
DIGITS = 30
SLOWEST = 64 << 10  # bytes a second: whoever is slower, for longer than a file may take, is not waited for
AWAY_S = 15.0  # how long another machine may say nothing


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one file: its size, how long it may take, and whether anybody still wants it."""

    max_bytes: int
    going_on: GoingOn = lambda: True
    seconds: float = 300.0  # and one more for each part of it that comes, see SLOWEST


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a folder: a file, or a folder."""

    entry: Entry
    is_folder: bool = False


class Inlet(ABC):
    """Where the files of a watch come from. Every call blocks: for threads, one at a time.

    Raises everywhere:
        UnknownFile: There is no such file (any more).
        Unreachable, StoreUnavailable: Nobody answers, or not in time; later somebody may.
        StoreDenied: We are not let in, or not to this.
        InvalidInput: It cannot be as it is declared.
        Interrupted: ``going_on`` says no; it is asked between two steps, of listings too.
    """

    going_on: GoingOn = staticmethod(lambda: True)
    troubles: Sequence[str] = ()  # of the last listing: what could not be looked at, while the others could

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  not everybody has something to close
        """It is not used any more."""

    def insist(self) -> None:
        if not self.going_on():
            raise Interrupted("nobody waits for the listing any more")

    @abstractmethod
    def list(self, *, deep: bool, skip: frozenset[str]) -> Iterator[Entry]:
        """All files; with ``deep`` also those of folders below, but for folders of these names."""

    @abstractmethod
    def look(self, path: str) -> Entry | None:
        """As it is now; None if there is none."""

    @abstractmethod
    def read(self, path: str) -> Pieces: ...

    @abstractmethod
    def move(self, entry: Entry, to: str) -> bool:
        """Put this very version there; False if another one has its name by now, which keeps it.

        What is done already is done. Never is anything removed before it is elsewhere.

        Raises:
            FileExistsError: Another file has that name.
        """

    def fetch(self, entry: Entry, blobs: Blobs, name: str, bounds: Bounds) -> Blob:
        """Store it under this name, whole or not at all."""
        _check_size(entry.size or 0, bounds)
        began = time.monotonic()
        with closing(self.read(entry.path)) as pieces, blobs.write(name) as writing:
            for piece in pieces:
                writing.write(piece)
                _check_size(writing.size, bounds)
                if time.monotonic() - began > bounds.seconds + writing.size / SLOWEST:
                    raise Unreachable(f"only {writing.size} bytes of it came in {time.monotonic() - began:.0f} s")
                if not bounds.going_on():
                    raise Interrupted("nobody waits for the file any more")
            return writing.finish()


class FolderLike(Inlet):
    """An inlet that knows folders one by one, and renames files."""

    keeps_times = False  # whether a renamed file is as old as before: behind some servers are buckets, which copy

    @abstractmethod
    def children(self, folder: str) -> Iterator[Found]:
        """What is in a folder, which is empty for the top."""

    @abstractmethod
    def rename(self, path: str, to: str) -> None:
        """In one step; the folder of the new name is made."""

    def move(self, entry: Entry, to: str) -> bool:
        """Somebody may put another version under the name between a look and a rename: so we look afterwards, too."""
        now = self.look(entry.path)
        if now is not None and not now.is_like(entry):
            return False
        if now is not None:
            self.rename(entry.path, to)
        there = self.look(to)
        if there is None and now is None:
            raise UnknownFile(f"there is no {entry.path} any more")
        if there is None or self._is_moved(entry, there):  # a link may lead nowhere from its new place
            return True
        self._put_back(entry.path, to)
        return False

    def _is_moved(self, entry: Entry, there: Entry) -> bool:
        return there.is_like(entry) if self.keeps_times else there.size == entry.size

    def _put_back(self, path: str, to: str) -> None:
        try:
            if self.look(path) is None:
                self.rename(to, path)
                return
        except FileExistsError:
            pass
        raise StoreUnavailable(f"{to} is a version that was not read, and there is another {path} by now")

    def list(self, *, deep: bool, skip: frozenset[str]) -> Iterator[Entry]:
        troubles: list[str] = []
        self.troubles = troubles
        folders = [("", 0)]
        while folders:
            folder, depth = folders.pop()
            try:
                for one in self.children(folder):
                    self.insist()
                    if not one.is_folder:
                        yield one.entry
                    elif deep and depth < DEPTH_MAX and not _is_passed_over(one.entry.path, skip):
                        folders.append((one.entry.path, depth + 1))
            except UnknownFile:
                if not folder:
                    raise  # a folder below may vanish while we look
            except StoreDenied as error:
                if not folder:
                    raise  # a folder below may be somebody else's
                troubles.append(str(error))


def _is_passed_over(folder: str, skip: frozenset[str]) -> bool:
    name = folder.rpartition("/")[2]
    return name in skip or name.startswith(".")


def below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def size_of(text: str | None) -> int | None:
    """As a server says it; of what is no number at all, nothing. Nobody has files with more digits."""
    return int(text[:DIGITS]) if text and text.isascii() and text.isdecimal() else None


def _check_size(size: int, bounds: Bounds) -> None:
    if size > bounds.max_bytes:
        raise TooLarge(f"it has more than {bounds.max_bytes >> 20} MB")
