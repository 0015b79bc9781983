"""What every inlet can do: list files, read them, put them away."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from tidemill.core.errors import (
    Interrupted,
    RemoteUnreachable,
    StorageAccessDenied,
    StorageUnavailable,
    TooLarge,
    UnknownFile,
)
from tidemill.files.blobs.blob_store import Blob, BlobStore
from tidemill.watches.file_state import ListedFile

ShouldContinue = Callable[[], bool]
ByteChunks = Generator[bytes, None, None]  # closed by whoever does not want the rest
FOLDER_DEPTH_MAX = 20
FILE_SIZE_DIGITS_MAX = 30
FETCH_MIN_BYTES_PER_S = (
    64 << 10
)  # bytes a second: whoever is slower, for longer than a file may take, is not waited for
SERVER_SILENCE_TIMEOUT_S = 15.0  # how long another machine may say nothing


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Of one file: its size, how long it may take, and whether anybody still wants it."""

    max_bytes: int
    should_continue: ShouldContinue = lambda: True
    seconds: float = 300.0  # and one more for each part of it that comes, see SLOWEST


@dataclass(frozen=True, slots=True)
class FolderChild:
    """What is in a folder: a file, or a folder."""

    entry: ListedFile
    is_folder: bool = False


class WatchSource(ABC):
    """Where the files of a watch come from. Every call blocks: for threads, one at a time.

    Raises everywhere:
        UnknownFile: There is no such file (any more).
        Unreachable, StoreUnavailable: Nobody answers, or not in time; later somebody may.
        StoreDenied: We are not let in, or not to this.
        InvalidInput: It cannot be as it is declared.
        Interrupted: ``going_on`` says no; it is asked between two steps, of listings too.
    """

    should_continue: ShouldContinue = staticmethod(lambda: True)
    listing_errors: Sequence[str] = ()  # of the last listing: what could not be looked at, while the others could

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  not everybody has something to close
        """It is not used any more."""

    def check_interrupted(self) -> None:
        if not self.should_continue():
            raise Interrupted("nobody waits for the listing any more")

    @abstractmethod
    def list_files(self, *, recursive: bool, skip_folders: frozenset[str]) -> Iterator[ListedFile]:
        """All files; with ``deep`` also those of folders below, but for folders of these names."""

    @abstractmethod
    def find_entry(self, path: str) -> ListedFile | None:
        """As it is now; None if there is none."""

    @abstractmethod
    def read(self, path: str) -> ByteChunks: ...

    @abstractmethod
    def move(self, entry: ListedFile, to: str) -> bool:
        """Put this very version there; False if another one has its name by now, which keeps it.

        What is done already is done. Never is anything removed before it is elsewhere.

        Raises:
            FileExistsError: Another file has that name.
        """

    def fetch_to_blob_store(self, entry: ListedFile, blobs: BlobStore, name: str, limits: FetchLimits) -> Blob:
        """Store it under this name, whole or not at all."""
        _check_max_bytes(entry.size or 0, limits)
        began = time.monotonic()
        with closing(self.read(entry.path)) as pieces, blobs.open_writer(name) as writing:
            for piece in pieces:
                writing.write(piece)
                _check_max_bytes(writing.size, limits)
                if time.monotonic() - began > limits.seconds + writing.size / FETCH_MIN_BYTES_PER_S:
                    raise RemoteUnreachable(f"only {writing.size} bytes of it came in {time.monotonic() - began:.0f} s")
                if not limits.should_continue():
                    raise Interrupted("nobody waits for the file any more")
            return writing.finish()


class FolderTreeSource(WatchSource):
    """An inlet that knows folders one by one, and renames files."""

    preserves_mtime = False  # whether a renamed file is as old as before: behind some servers are buckets, which copy

    @abstractmethod
    def list_children(self, folder: str) -> Iterator[FolderChild]:
        """What is in a folder, which is empty for the top."""

    @abstractmethod
    def rename(self, path: str, to: str) -> None:
        """In one step; the folder of the new name is made."""

    def move(self, entry: ListedFile, to: str) -> bool:
        """Somebody may put another version under the name between a look and a rename: so we look afterwards, too."""
        now = self.find_entry(entry.path)
        if now is not None and not now.is_same_version(entry):
            return False
        if now is not None:
            self.rename(entry.path, to)
        there = self.find_entry(to)
        if there is None and now is None:
            raise UnknownFile(f"there is no {entry.path} any more")
        if there is None or self._is_same_version(entry, there):  # a link may lead nowhere from its new place
            return True
        self._undo_move(entry.path, to)
        return False

    def _is_same_version(self, entry: ListedFile, there: ListedFile) -> bool:
        return there.is_same_version(entry) if self.preserves_mtime else there.size == entry.size

    def _undo_move(self, path: str, to: str) -> None:
        try:
            if self.find_entry(path) is None:
                self.rename(to, path)
                return
        except FileExistsError:
            pass
        raise StorageUnavailable(f"{to} is a version that was not read, and there is another {path} by now")

    def list_files(self, *, recursive: bool, skip_folders: frozenset[str]) -> Iterator[ListedFile]:
        troubles: list[str] = []
        self.listing_errors = troubles
        folders = [("", 0)]
        while folders:
            folder, depth = folders.pop()
            try:
                for one in self.list_children(folder):
                    self.check_interrupted()
                    if not one.is_folder:
                        yield one.entry
                    elif (
                        recursive and depth < FOLDER_DEPTH_MAX and not _is_skipped_folder(one.entry.path, skip_folders)
                    ):
                        folders.append((one.entry.path, depth + 1))
            except UnknownFile:
                if not folder:
                    raise  # a folder below may vanish while we look
            except StorageAccessDenied as error:
                if not folder:
                    raise  # a folder below may be somebody else's
                troubles.append(str(error))


def _is_skipped_folder(folder: str, skip_folders: frozenset[str]) -> bool:
    name = folder.rpartition("/")[2]
    return name in skip_folders or name.startswith(".")


def join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def parse_size(text: str | None) -> int | None:
    """As a server says it; of what is no number at all, nothing. Nobody has files with more digits."""
    return int(text[:FILE_SIZE_DIGITS_MAX]) if text and text.isascii() and text.isdecimal() else None


def _check_max_bytes(size: int, limits: FetchLimits) -> None:
    if size > limits.max_bytes:
        raise TooLarge(f"it has more than {limits.max_bytes >> 20} MB")
