"""A folder of this machine."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.connectors.blobs.base import pieces_of
from tidemill.connectors.blobs.sync import sync_folder
from tidemill.connectors.inlets.base import FolderLike, Found, Pieces, below
from tidemill.connectors.inlets.rename import rename_to_free
from tidemill.domain.errors import InvalidInput, StoreDenied, StoreUnavailable, UnknownFile
from tidemill.domain.watching import Entry

LEADS_OUT = "it is a link that leads out of the folder"
CLOSED = "it is a link to what is not for us"
NO_FILE = "it is not a file"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


class FolderInlet(FolderLike):
    """Links that lead out of it lead nowhere."""

    keeps_times = True

    def __init__(self, top: Path, path: str) -> None:
        """``top`` is a configured folder; ``path`` one below it, which may not lead out of it."""
        with _in_our_words(path or str(top.name)):
            try:
                self._root = (top / path).resolve(strict=True)
                outer = top.resolve(strict=True)
            except RuntimeError:
                raise InvalidInput("the folder is a link to itself") from None
        if not self._root.is_relative_to(outer) or not self._root.is_dir():
            raise InvalidInput("this is no folder inside the source")

    def children(self, folder: str) -> Iterator[Found]:
        with _in_our_words(folder), os.scandir(self._root / folder) as found:
            for one in found:
                path = below(folder, one.name)
                if one.is_dir(follow_symlinks=False):
                    yield Found(Entry(path, None, ""), is_folder=True)
                elif (entry := self.look(path)) is not None and not _is_folder(one):
                    yield Found(entry)

    def look(self, path: str) -> Entry | None:
        try:
            return self._entry(path)
        except UnknownFile:  # a link to itself
            return None
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise _told(error, path) from error

    def _entry(self, path: str) -> Entry:
        about = os.lstat(self._root / path)
        if stat.S_ISLNK(about.st_mode):
            try:
                about = self._inside(path).stat()
            except InvalidInput:
                return Entry(path, None, str(about.st_mtime_ns), LEADS_OUT)
            except OSError as error:
                if error.errno in _GONE:
                    raise
                return Entry(path, None, str(about.st_mtime_ns), CLOSED)  # whoever can make a link stops nobody
        refused = None if stat.S_ISREG(about.st_mode) else NO_FILE
        size = about.st_size if refused is None else None
        return Entry(path, size, str(about.st_mtime_ns), refused, about.st_mtime)

    def read(self, path: str) -> Pieces:
        with _in_our_words(path):
            file = self._opened(self._inside(path))
            with os.fdopen(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise InvalidInput(NO_FILE)
                yield from pieces_of(opened)

    def rename(self, path: str, to: str) -> None:
        source, target = self._root / path, self._root / to
        with _in_our_words(path):
            self._make_folder(target.parent, to)
            rename_to_free(source, target)
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

    def _opened(self, found: Path) -> int:
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

    def _inside(self, path: str) -> Path:
        try:
            found = (self._root / path).resolve(strict=True)
        except RuntimeError:
            raise UnknownFile(f"there is no file {path!r}") from None
        if not found.is_relative_to(self._root):
            raise InvalidInput(LEADS_OUT)
        return found


def _is_folder(one: "os.DirEntry[str]") -> bool:
    """Links to folders are passed over, as folders are."""
    try:
        return one.is_dir()
    except OSError:
        return False


@contextmanager
def _in_our_words(path: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise _told(error, path) from error


def _told(error: OSError, path: str) -> UnknownFile | StoreDenied | StoreUnavailable:
    if error.errno in _GONE:
        return UnknownFile(f"there is no {path or 'such folder'}")
    kind = StoreDenied if error.errno in _DENIED else StoreUnavailable
    return kind(f"{path or 'the folder'}: {os.strerror(error.errno or 0)}")
