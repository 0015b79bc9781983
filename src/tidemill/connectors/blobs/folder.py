"""A folder of files, each whole or absent."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tidemill.connectors.blobs.base import Blob, Blobs, Writing
from tidemill.connectors.blobs.stale import remove_stale
from tidemill.connectors.blobs.sync import SyncAhead, sync_folder
from tidemill.domain.errors import InvalidInput, StoreDenied, StoreUnavailable, UnknownFile
from tidemill.domain.place import checked_name, is_name

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # of some file systems
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
TRIES = 10  # at a folder that somebody removes, empty, at the same moment


class Folder(Blobs):
    """Written as a temporary file, synced, renamed: a crash leaves nothing that looks complete."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def scratch(self) -> Path:
        return self._root

    def write(self, name: str | None = None) -> "FolderWriting":
        return FolderWriting(self, name or uuid4().hex)

    def adopt(self, path: Path, name: str) -> Blob:
        with contextlib.suppress(FileExistsError):  # another one was quicker; his stays: it may be in use
            self._place(path, name, _link_or_rename)
        return self.look(name)

    def copy(self, name: str, to: str) -> None:
        temporary = self._root / f"{uuid4().hex}.tmp"
        try:
            _link_or_copy(self.path(name), temporary)
            self.move(temporary, to)
        except FileNotFoundError:
            raise _unknown(name) from None
        finally:  # two names of one file are not renamed into each other
            temporary.unlink(missing_ok=True)

    def open(self, name: str) -> BinaryIO:
        try:
            return self.path(name).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise _unknown(name) from None

    def path(self, name: str) -> Path:
        """Inside the folder, wherever links may lead."""
        path = self._root / checked_name(name)
        if path.is_symlink() or ("/" in name and not path.parent.resolve().is_relative_to(self._root.resolve())):
            raise InvalidInput(f"{name!r} leads out of the folder of stored files")
        return path

    def size(self, name: str) -> int:
        if not self.has(name):
            raise _unknown(name)
        return self.path(name).stat().st_size

    def has(self, name: str) -> bool:
        return self.path(name).is_file()

    def remove_all(self, names: Iterable[str]) -> list[str]:
        here = [name for name in names if is_name(name) and self.has(name)]
        for name in here:
            self.remove(name)
        return here

    def remove(self, name: str) -> None:
        """Folders that become empty go with it."""
        path = self.path(name)
        try:
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder == self._root:
                    return
                folder.rmdir()
        except OSError as error:
            if path.exists():  # or a folder of it is gone, or in use
                raise error from None

    def remove_stale(self, age_s: float) -> list[str]:
        return remove_stale(self._root, age_s)

    def list_names(self, below: str = "", *, after: str = "") -> Iterator[str]:
        top = self.path(below) if below else self._root
        for folder, _, files in os.walk(top):
            names = (Path(folder, file).relative_to(self._root).as_posix() for file in sorted(files))
            yield from (name for name in names if name > after and is_name(name))

    def url(self, name: str) -> str:
        return self.path(name).absolute().as_uri()

    def presigned(self, name: str, seconds: int) -> str | None:  # noqa: ARG002
        checked_name(name)
        return None

    def move(self, source: Path, name: str) -> None:
        """A synced file of the folder gets its name, durably."""
        self._place(source, name, Path.rename)

    def _place(self, source: Path, name: str, how: Callable[[Path, Path], object]) -> None:
        path = self.path(name)
        for left in reversed(range(TRIES)):
            try:
                self._make(path.parent, name)
                how(source, path)
                break
            except FileNotFoundError:
                if not left or not source.exists():
                    raise
            except IsADirectoryError:
                raise InvalidInput(f"{name!r} is a folder of stored files") from None
        sync_folder(path.parent)

    def _make(self, folder: Path, name: str) -> None:
        """With the folders above it, each synced into the one above. It may be gone again at once: it is empty."""
        try:
            folder.mkdir()
        except FileNotFoundError:
            self._make(folder.parent, name)
            self._make(folder, name)
        except (FileExistsError, NotADirectoryError):
            if not folder.is_dir() and any(above.is_file() for above in (folder, *folder.parents)):
                raise InvalidInput(f"{name!r} cannot be stored: a part of it is a file") from None
        else:
            sync_folder(folder.parent)


class FolderWriting(Writing):
    """On disk under another name."""

    def __init__(self, folder: Folder, name: str) -> None:
        super().__init__(name)
        self._folder = folder
        self._path = folder.path(name)
        self._temporary = folder.scratch / f"{uuid4().hex}.tmp"
        self._file: BinaryIO | None = None
        self._ahead = SyncAhead()

    def _append(self, piece: bytes) -> None:
        with _in_our_words():
            self._opened().write(piece)
            self._ahead.wrote(self._opened(), len(piece))

    def _complete(self) -> None:
        with _in_our_words():
            with self._opened() as file:
                try:
                    file.flush()
                finally:  # the file is not closed while it is being synced
                    self._ahead.end()
                os.fsync(file.fileno())
            self._folder.move(self._temporary, self.name)

    def _drop(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._ahead.end()
            with contextlib.suppress(OSError):  # of a full disk, which was told of already
                self._file.close()
            if self._is_finished:
                self._folder.remove(self.name)
            else:
                self._temporary.unlink(missing_ok=True)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._temporary.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._temporary.open("xb")
        return self._file


@contextlib.contextmanager
def _in_our_words() -> Iterator[None]:
    """Of a disk that is full, or not to be written."""
    try:
        yield
    except OSError as error:
        kind = StoreDenied if error.errno in _DENIED else StoreUnavailable
        raise kind(f"the folder of stored files cannot be written: {error.strerror or error}") from error


def _link_or_rename(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        source.rename(target)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with source.open("rb") as file, target.open("xb") as made:
            shutil.copyfileobj(file, made)
            os.fsync(made.fileno())


def _unknown(name: str) -> UnknownFile:
    return UnknownFile(f"there is no stored file {name}")
