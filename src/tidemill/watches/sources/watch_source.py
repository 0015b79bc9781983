"""The interface of watch sources: list files, read them and move them to an archive folder."""

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
ByteChunks = Generator[bytes, None, None]  # a caller that stops early must close it
FOLDER_DEPTH_MAX = 20
FILE_SIZE_DIGITS_MAX = 30
FETCH_MIN_BYTES_PER_S = 64 << 10  # a slower transfer is aborted after FetchLimits.seconds
SERVER_SILENCE_TIMEOUT_S = 15.0  # how long a server may send nothing


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits for fetching one file: its size, its duration, and whether the scan should continue."""

    max_bytes: int
    should_continue: ShouldContinue = lambda: True
    seconds: float = 300.0  # plus one second for each FETCH_MIN_BYTES_PER_S bytes received


@dataclass(frozen=True, slots=True)
class FolderChild:
    """A file or a subfolder in a folder."""

    entry: ListedFile
    is_folder: bool = False


class WatchSource(ABC):
    """The source of a watch. Every call blocks; use it in a thread, with one call at a time.

    All methods may raise:
        UnknownFile: The file does not exist (any more).
        RemoteUnreachable, StorageUnavailable: The source does not respond in time; a later call may succeed.
        StorageAccessDenied: The credentials are wrong, or permission is denied.
        InvalidInput: The declaration of the source is wrong.
        Interrupted: ``should_continue`` returned False; it is checked between steps, also during a listing.
    """

    should_continue: ShouldContinue = staticmethod(lambda: True)
    listing_errors: Sequence[str] = ()  # files and folders that the last listing could not read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  some sources have nothing to close
        """Close the connection."""

    def raise_if_interrupted(self) -> None:
        if not self.should_continue():
            raise Interrupted("The listing was interrupted")

    @abstractmethod
    def list_files(self, *, recursive: bool, skip_folders: frozenset[str]) -> Iterator[ListedFile]:
        """Yield all files. With ``recursive``, include subfolders, except those named in ``skip_folders``."""

    @abstractmethod
    def find_file(self, path: str) -> ListedFile | None:
        """Return the current entry of a file, or None if the file does not exist."""

    @abstractmethod
    def read(self, path: str) -> ByteChunks: ...

    @abstractmethod
    def move(self, entry: ListedFile, to: str) -> bool:
        """Move this version of a file. Return False if another version has replaced it; that version stays.

        A repeated call succeeds. The file is never deleted before it exists at the target.

        Raises:
            FileExistsError: Another file exists at the target.
        """

    def fetch_to_blob_store(self, entry: ListedFile, blobs: BlobStore, name: str, limits: FetchLimits) -> Blob:
        """Store the complete file under this name, or nothing."""
        _check_max_bytes(entry.size or 0, limits)
        began = time.monotonic()
        with closing(self.read(entry.path)) as pieces, blobs.open_writer(name) as writing:
            for piece in pieces:
                writing.write(piece)
                _check_max_bytes(writing.size, limits)
                if time.monotonic() - began > limits.seconds + writing.size / FETCH_MIN_BYTES_PER_S:
                    elapsed = time.monotonic() - began
                    raise RemoteUnreachable(f"received only {writing.size} bytes in {elapsed:.0f} s")
                if not limits.should_continue():
                    raise Interrupted("The transfer was interrupted")
            return writing.finish()


class FolderTreeSource(WatchSource):
    """A source that lists one folder at a time and can rename files."""

    preserves_mtime = False  # whether a rename keeps the modification time; servers backed by buckets copy instead

    @abstractmethod
    def list_children(self, folder: str) -> Iterator[FolderChild]:
        """Yield the files and subfolders of a folder. The empty path is the top folder."""

    @abstractmethod
    def rename(self, path: str, to: str) -> None:
        """Rename a file atomically. Create the target folder if necessary."""

    def move(self, entry: ListedFile, to: str) -> bool:
        """Move the file. Check its version after the rename too, because another version may replace it in between."""
        now = self.find_file(entry.path)
        if now is not None and not now.is_same_version(entry):
            return False
        if now is not None:
            self.rename(entry.path, to)
        moved = self.find_file(to)
        if moved is None and now is None:
            raise UnknownFile(f'"{entry.path}" does not exist any more')
        if moved is None or self._may_be_same_version(entry, moved):  # a moved relative link may be broken, hence None
            return True
        self._undo_move(entry.path, to)
        return False

    def _may_be_same_version(self, entry: ListedFile, there: ListedFile) -> bool:
        return there.is_same_version(entry) if self.preserves_mtime else there.size == entry.size

    def _undo_move(self, path: str, to: str) -> None:
        try:
            if self.find_file(path) is None:
                self.rename(to, path)
                return
        except FileExistsError:
            pass
        raise StorageUnavailable(f'No job has read "{to}", and it cannot be moved back, because a new "{path}" exists')

    def list_files(self, *, recursive: bool, skip_folders: frozenset[str]) -> Iterator[ListedFile]:
        errors: list[str] = []
        self.listing_errors = errors
        folders = [("", 0)]
        while folders:
            folder, depth = folders.pop()
            try:
                for one in self.list_children(folder):
                    self.raise_if_interrupted()
                    if not one.is_folder:
                        yield one.entry
                    elif (
                        recursive and depth < FOLDER_DEPTH_MAX and not _is_skipped_folder(one.entry.path, skip_folders)
                    ):
                        folders.append((one.entry.path, depth + 1))
            except UnknownFile:
                if not folder:
                    raise  # a subfolder may be removed during the listing
            except StorageAccessDenied as error:
                if not folder:
                    raise  # a subfolder may belong to another user
                errors.append(str(error))


def _is_skipped_folder(folder: str, skip_folders: frozenset[str]) -> bool:
    name = folder.rpartition("/")[2]
    return name in skip_folders or name.startswith(".")


def join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def parse_reported_file_size(text: str | None) -> int | None:
    """Return the size that a server reports, or None if it is not a number. Ignore digits beyond the maximum."""
    return int(text[:FILE_SIZE_DIGITS_MAX]) if text and text.isascii() and text.isdecimal() else None


def _check_max_bytes(size: int, limits: FetchLimits) -> None:
    if size > limits.max_bytes:
        raise TooLarge(f"The file is larger than {limits.max_bytes >> 20} MB")
