"""The watch source for a local folder."""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.core.errors import InvalidInput, StorageAccessDenied, StorageUnavailable, UnknownFile
from tidemill.files.blobs.blob_store import iter_chunks
from tidemill.files.blobs.folder_store import sync_folder
from tidemill.files.source_folders import open_without_links
from tidemill.watches.file_state import ListedFile
from tidemill.watches.sources.watch_source import ByteChunks, FolderChild, FolderTreeSource, join_path

_AT_FDCWD, _RENAME_NOREPLACE = -100, 1  # AT_FDCWD and RENAME_NOREPLACE of Linux
_RENAMEAT2_UNSUPPORTED_ERRNOS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)  # by the kernel or the file system
_libc = ctypes.CDLL(None, use_errno=True)


def rename_without_overwrite(source: Path, target: Path) -> None:
    """Rename a file. Raise FileExistsError if the target exists.

    Without renameat2, the target is checked right before the rename, which is not atomic.
    """
    rename = getattr(_libc, "renameat2", None)
    if rename is not None:
        if rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in _RENAMEAT2_UNSUPPORTED_ERRNOS:
            raise OSError(code, os.strerror(code))
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "target file exists")
    source.rename(target)


LINK_ESCAPES_MESSAGE = "The symbolic link points outside the watched folder"
LINK_DENIED_MESSAGE = "No permission to read the target of the symbolic link"
NOT_A_FILE_MESSAGE = "Not a regular file"
_MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_DENIED_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)


class FolderWatchSource(FolderTreeSource):
    """A local folder. Symbolic links that point outside it are refused."""

    preserves_mtime = True

    def __init__(self, top: Path, path: str) -> None:
        """``top`` is a configured folder. ``path`` is a subfolder and must not point outside ``top``."""
        with _translate_errors(path or str(top.name)):
            try:
                self._root = (top / path).resolve(strict=True)
                outer = top.resolve(strict=True)
            except RuntimeError:
                raise InvalidInput("The watched folder is a symbolic link to itself") from None
        if not self._root.is_relative_to(outer) or not self._root.is_dir():
            raise InvalidInput("The watched path is not a folder inside its TIDEMILL_SOURCES folder")

    def list_children(self, folder: str) -> Iterator[FolderChild]:
        with _translate_errors(folder), os.scandir(self._root / folder) as children:
            for child in children:
                path = join_path(folder, child.name)
                if child.is_dir(follow_symlinks=False):
                    yield FolderChild(ListedFile(path, None, ""), is_folder=True)
                elif (entry := self.find_file(path)) is not None and not _is_folder_or_link_to_one(child):
                    yield FolderChild(entry)

    def find_file(self, path: str) -> ListedFile | None:
        try:
            return self._stat_file(path)
        except UnknownFile:  # a symbolic link to itself
            return None
        except OSError as error:
            if error.errno in _MISSING_ERRNOS:
                return None
            raise _translate_os_error(error, path) from error

    def _stat_file(self, path: str) -> ListedFile:
        info = os.lstat(self._root / path)
        if stat.S_ISLNK(info.st_mode):
            try:
                info = self._resolve_path_inside_root(path).stat()
            except InvalidInput:
                return ListedFile(path, None, str(info.st_mtime_ns), LINK_ESCAPES_MESSAGE)
            except OSError as error:
                if error.errno in _MISSING_ERRNOS:
                    raise
                # Refuse only this file: a link to an unreadable target must not stop the scan.
                return ListedFile(path, None, str(info.st_mtime_ns), LINK_DENIED_MESSAGE)
        refusal = None if stat.S_ISREG(info.st_mode) else NOT_A_FILE_MESSAGE
        size = info.st_size if refusal is None else None
        return ListedFile(path, size, str(info.st_mtime_ns), refusal, info.st_mtime)

    def read(self, path: str) -> ByteChunks:
        with _translate_errors(path):
            file = open_without_links(self._root, self._resolve_path_inside_root(path).relative_to(self._root).parts)
            with os.fdopen(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise InvalidInput(NOT_A_FILE_MESSAGE)
                yield from iter_chunks(opened)

    def rename(self, path: str, to: str) -> None:
        source, target = self._root / path, self._root / to
        with _translate_errors(path):
            self._make_folder(target.parent, to)
            rename_without_overwrite(source, target)
            sync_folder(target.parent)

    def _make_folder(self, folder: Path, to: str) -> None:
        """Create the folder. First resolve its existing part, so that nothing is created outside the source."""
        existing = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
        if not existing.resolve().is_relative_to(self._root):
            raise InvalidInput(f'the folder of "{to}" is a symbolic link that points outside the watched folder')
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidInput(f'a parent of "{to}" is a file, not a folder') from None

    def _resolve_path_inside_root(self, path: str) -> Path:
        try:
            resolved = (self._root / path).resolve(strict=True)
        except RuntimeError:
            raise UnknownFile(f'File "{path}" does not exist') from None
        if not resolved.is_relative_to(self._root):
            raise InvalidInput(LINK_ESCAPES_MESSAGE)
        return resolved


def _is_folder_or_link_to_one(one: "os.DirEntry[str]") -> bool:
    """Return whether the entry is a folder or a symbolic link to one. Listings skip both."""
    try:
        return one.is_dir()
    except OSError:
        return False


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise _translate_os_error(error, path) from error


def _translate_os_error(error: OSError, path: str) -> UnknownFile | StorageAccessDenied | StorageUnavailable:
    if error.errno in _MISSING_ERRNOS:
        return UnknownFile(f'"{path}" does not exist' if path else "The watched folder does not exist")
    kind = StorageAccessDenied if error.errno in _DENIED_ERRNOS else StorageUnavailable
    return kind(f"{path or 'Watched folder'}: {os.strerror(error.errno or 0)}")
