"""The files of a folder on this machine."""

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
from tidemill.watches.file_state import ListedFile
from tidemill.watches.sources.watch_source import ByteChunks, FolderChild, FolderTreeSource, join_path

_AT_FDCWD, _RENAME_NOREPLACE = -100, 1  # AT_FDCWD and RENAME_NOREPLACE of Linux
_RENAMEAT2_UNSUPPORTED_ERRNOS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)  # to the kernel, or to this file system
_libc = ctypes.CDLL(None, use_errno=True)


def rename_without_overwrite(source: Path, target: Path) -> None:
    """FileExistsError if the name is taken. Where that cannot be asked for, it is looked at right before."""
    rename = getattr(_libc, "renameat2", None)
    if rename is not None:
        if rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in _RENAMEAT2_UNSUPPORTED_ERRNOS:
            raise OSError(code, os.strerror(code))
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "there is another file of that name")
    source.rename(target)


LINK_ESCAPES_MESSAGE = "it is a link that leads out of the folder"
LINK_DENIED_MESSAGE = "it is a link to what is not for us"
NOT_A_FILE_MESSAGE = "it is not a file"
_MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_DENIED_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)


class FolderWatchSource(FolderTreeSource):
    """Links that lead out of it lead nowhere."""

    preserves_mtime = True

    def __init__(self, top: Path, path: str) -> None:
        """``top`` is a configured folder; ``path`` one below it, which may not lead out of it."""
        with _translate_errors(path or str(top.name)):
            try:
                self._root = (top / path).resolve(strict=True)
                outer = top.resolve(strict=True)
            except RuntimeError:
                raise InvalidInput("the folder is a link to itself") from None
        if not self._root.is_relative_to(outer) or not self._root.is_dir():
            raise InvalidInput("this is no folder inside the source")

    def list_children(self, folder: str) -> Iterator[FolderChild]:
        with _translate_errors(folder), os.scandir(self._root / folder) as found:
            for one in found:
                path = join_path(folder, one.name)
                if one.is_dir(follow_symlinks=False):
                    yield FolderChild(ListedFile(path, None, ""), is_folder=True)
                elif (entry := self.find_entry(path)) is not None and not _is_folder_or_link_to_one(one):
                    yield FolderChild(entry)

    def find_entry(self, path: str) -> ListedFile | None:
        try:
            return self._stat_file(path)
        except UnknownFile:  # a link to itself
            return None
        except OSError as error:
            if error.errno in _MISSING_ERRNOS:
                return None
            raise _translate_os_error(error, path) from error

    def _stat_file(self, path: str) -> ListedFile:
        about = os.lstat(self._root / path)
        if stat.S_ISLNK(about.st_mode):
            try:
                about = self._resolve_inside(path).stat()
            except InvalidInput:
                return ListedFile(path, None, str(about.st_mtime_ns), LINK_ESCAPES_MESSAGE)
            except OSError as error:
                if error.errno in _MISSING_ERRNOS:
                    raise
                return ListedFile(
                    path, None, str(about.st_mtime_ns), LINK_DENIED_MESSAGE
                )  # whoever can make a link stops nobody
        refused = None if stat.S_ISREG(about.st_mode) else NOT_A_FILE_MESSAGE
        size = about.st_size if refused is None else None
        return ListedFile(path, size, str(about.st_mtime_ns), refused, about.st_mtime)

    def read(self, path: str) -> ByteChunks:
        with _translate_errors(path):
            file = self._open_without_links(self._resolve_inside(path))
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
        """Nothing is made behind a link that leads out: what is there of it is followed first."""
        there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
        if not there.resolve().is_relative_to(self._root):
            raise InvalidInput(f"{to}: its folder is a link that leads out of the source")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidInput(f"{to}: a part of it is a file, and no folder") from None

    def _open_without_links(self, found: Path) -> int:
        """Part by part, and no part a link: one that is put where a folder was, after a look, leads nobody out."""
        *folders, name = found.relative_to(self._root).parts
        at = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for one in folders:
                above, at = at, os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(above)
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        finally:
            os.close(at)

    def _resolve_inside(self, path: str) -> Path:
        try:
            found = (self._root / path).resolve(strict=True)
        except RuntimeError:
            raise UnknownFile(f"there is no file {path!r}") from None
        if not found.is_relative_to(self._root):
            raise InvalidInput(LINK_ESCAPES_MESSAGE)
        return found


def _is_folder_or_link_to_one(one: "os.DirEntry[str]") -> bool:
    """Links to folders are passed over, as folders are."""
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
        return UnknownFile(f"there is no {path or 'such folder'}")
    kind = StorageAccessDenied if error.errno in _DENIED_ERRNOS else StorageUnavailable
    return kind(f"{path or 'the folder'}: {os.strerror(error.errno or 0)}")
