"""The blob store in a folder. Each file is complete or absent."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

from tidemill.core.blob_location import check_blob_name, is_blob_name
from tidemill.core.errors import InvalidInput, StorageAccessDenied, StorageUnavailable, UnknownFile
from tidemill.core.private_files import PRIVATE_FOLDER_MODE, make_private_folder, open_private_file
from tidemill.files.blobs.blob_store import Blob, BlobStore, BlobWriter, remove_stale_tmp_files

SYNC_STEP_BYTES = 16 << 20
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class BackgroundSync:
    """Syncs a long file to disk while it is written, so that the final sync is short.

    The operating system reports a disk error to the first sync only, so the next call here raises it.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._syncing: Future[None] | None = None
        self._bytes = 0

    def start_sync_if_due(self, file: BinaryIO, size: int) -> None:
        self._bytes += size
        if self._bytes < SYNC_STEP_BYTES or (self._syncing is not None and not self._syncing.done()):
            return
        self._wait_for_sync()
        self._thread = self._thread or ThreadPoolExecutor(1, "sync")
        self._syncing, self._bytes = self._thread.submit(_fdatasync, file.fileno()), 0

    def finish(self) -> None:
        """Wait for the running sync. The file can be closed afterwards."""
        try:
            self._wait_for_sync()
        finally:
            if self._thread is not None:
                self._thread.shutdown()

    def _wait_for_sync(self) -> None:
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_HARDLINK_UNSUPPORTED_ERRNOS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
_DENIED_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)
FOLDER_CREATE_TRIES_MAX = 10  # another process may remove the new folder while it is empty


class FolderBlobStore(BlobStore):
    """Blobs in a folder. Writes a temporary file, syncs it and renames it, so a crash leaves no partial blob.

    Only the user of this process can read new files and folders.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def scratch_folder(self) -> Path:
        return self._root

    def open_writer(self, name: str | None = None) -> "FolderBlobWriter":
        return FolderBlobWriter(self, name or uuid4().hex)

    def publish_scratch_file(self, path: Path, name: str) -> Blob:
        with contextlib.suppress(FileExistsError):  # keep the existing blob: it may be in use
            self._move_file_into_place(path, name, _link_or_rename)
        return self.read_size_and_hash(name)

    def copy(self, name: str, to: str) -> None:
        temporary = self._root / f"{uuid4().hex}.tmp"
        try:
            _link_or_copy(self.path(name), temporary)
            self.rename_file_to_blob(temporary, to)
        except FileNotFoundError:
            raise _make_unknown_file_error(name) from None
        finally:  # rename() does nothing if both names are links to the same file
            temporary.unlink(missing_ok=True)

    def open(self, name: str) -> BinaryIO:
        try:
            return self.path(name).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise _make_unknown_file_error(name) from None

    def path(self, name: str) -> Path:
        """Return the path of a blob; InvalidInput if links lead out of the folder."""
        path = self._root / check_blob_name(name)
        if path.is_symlink() or ("/" in name and not path.parent.resolve().is_relative_to(self._root.resolve())):
            raise InvalidInput(f'File "{name}" is outside the blob store folder')
        return path

    def size(self, name: str) -> int:
        if not self.has(name):
            raise _make_unknown_file_error(name)
        return self.path(name).stat().st_size

    def has(self, name: str) -> bool:
        return self.path(name).is_file()

    def remove_many(self, names: Iterable[str]) -> list[str]:
        here = [name for name in names if is_blob_name(name) and self.has(name)]
        for name in here:
            self.remove(name)
        return here

    def remove(self, name: str) -> None:
        """Remove a blob, and the folders that become empty."""
        path = self.path(name)
        try:
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder == self._root:
                    return
                folder.rmdir()
        except OSError as error:
            if path.exists():  # otherwise only a parent folder is gone or not empty
                raise error from None

    def remove_stale_scratch_files(self, age_s: float) -> list[str]:
        return remove_stale_tmp_files(self._root, age_s)

    def list_names(self, below: str = "", *, after: str = "") -> Iterator[str]:
        top = self.path(below) if below else self._root
        for folder, _, files in os.walk(top):
            names = (Path(folder, file).relative_to(self._root).as_posix() for file in sorted(files))
            yield from (name for name in names if name > after and is_blob_name(name))

    def url(self, name: str) -> str:
        return self.path(name).absolute().as_uri()

    def presign_url(self, name: str, seconds: int) -> str | None:  # noqa: ARG002
        check_blob_name(name)
        return None

    def rename_file_to_blob(self, source: Path, name: str) -> None:
        """Rename a synced file of the folder to a blob name, durably."""
        self._move_file_into_place(source, name, Path.rename)

    def _move_file_into_place(self, source: Path, name: str, rename: Callable[[Path, Path], object]) -> None:
        path = self.path(name)
        for left in reversed(range(FOLDER_CREATE_TRIES_MAX)):
            try:
                self._make_folder(path.parent, name)
                rename(source, path)
                break
            except FileNotFoundError:
                if not left or not source.exists():
                    raise
            except IsADirectoryError:
                raise InvalidInput(f'Cannot store "{name}": it is a folder in the blob store') from None
        sync_folder(path.parent)

    def _make_folder(self, folder: Path, name: str) -> None:
        """Create a folder and its parents durably. Another process may remove it again while it is empty."""
        try:
            folder.mkdir(PRIVATE_FOLDER_MODE)
        except FileNotFoundError:
            self._make_folder(folder.parent, name)
            self._make_folder(folder, name)
        except (FileExistsError, NotADirectoryError):
            if not folder.is_dir() and any(above.is_file() for above in (folder, *folder.parents)):
                raise InvalidInput(f'Cannot store "{name}": a parent folder in this name is a file') from None
        else:
            sync_folder(folder.parent)


class FolderBlobWriter(BlobWriter):
    """Writes a blob to a temporary file."""

    def __init__(self, folder: FolderBlobStore, name: str) -> None:
        super().__init__(name)
        self._folder = folder
        self._path = folder.path(name)
        self._temporary = folder.scratch_folder / f"{uuid4().hex}.tmp"
        self._file: BinaryIO | None = None
        self._ahead = BackgroundSync()

    def _append(self, piece: bytes) -> None:
        with _translate_write_errors():
            self._get_or_open_temporary().write(piece)
            self._ahead.start_sync_if_due(self._get_or_open_temporary(), len(piece))

    def _complete(self) -> None:
        with _translate_write_errors():
            with self._get_or_open_temporary() as file:
                try:
                    file.flush()
                finally:  # do not close the file during a sync
                    self._ahead.finish()
                os.fsync(file.fileno())
            self._folder.rename_file_to_blob(self._temporary, self.name)

    def _remove_written(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._ahead.finish()
            with contextlib.suppress(OSError):  # the disk is full; an earlier write raised it
                self._file.close()
            if self._is_finished:
                self._folder.remove(self.name)
            else:
                self._temporary.unlink(missing_ok=True)

    def _get_or_open_temporary(self) -> BinaryIO:
        if self._file is None:
            make_private_folder(self._temporary.parent)
            self._file = cast("BinaryIO", open_private_file(self._temporary, "xb"))
        return self._file


@contextlib.contextmanager
def _translate_write_errors() -> Iterator[None]:
    """Raise StorageAccessDenied or StorageUnavailable instead of an OSError."""
    try:
        yield
    except OSError as error:
        kind = StorageAccessDenied if error.errno in _DENIED_ERRNOS else StorageUnavailable
        raise kind(f"Cannot write to the blob store folder: {error.strerror or error}") from error


def _link_or_rename(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in _HARDLINK_UNSUPPORTED_ERRNOS:
            raise
        source.rename(target)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in _HARDLINK_UNSUPPORTED_ERRNOS:
            raise
        with source.open("rb") as file, open_private_file(target, "xb") as made:
            shutil.copyfileobj(file, made)
            os.fsync(made.fileno())


def _make_unknown_file_error(name: str) -> UnknownFile:
    return UnknownFile(f'The blob store has no file "{name}"')
