"""Files in the configured folders and buckets. A submission can refer to these files only, and only if its user may."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import BinaryIO

from tidemill.config import SourceFolder, list_allowed_sources
from tidemill.core.blob_location import BucketLocation
from tidemill.core.errors import InvalidInput, TooLarge, UnknownFile
from tidemill.core.principal import Role
from tidemill.files.blobs.blob_store import iter_chunks

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a pipe must not wait for its writer


def iter_source_chunks(
    folders: Mapping[str, SourceFolder], role: Role, name: str, path: str, max_bytes: int
) -> Iterator[bytes]:
    """Yield the content of a file in a configured folder or bucket.

    Raises:
        InvalidInput: The source is unknown or not allowed for the role, or it has no such file.
        TooLarge: The file has more than ``max_bytes``.
        Unavailable: The bucket cannot be read.
    """
    location = _get_allowed_location(folders, role, name)
    if not isinstance(location, BucketLocation):
        yield from iter_file_chunks(open_source_file(folders, role, name, path), PurePath(path).name, max_bytes)
        return
    from tidemill.files.blobs.bucket_store import iter_object_chunks  # noqa: PLC0415  it imports an HTTP client

    if not path.isprintable() or {"", ".", ".."}.intersection(path.split("/")):
        raise _make_missing_file_error(name, path)
    try:
        yield from iter_object_chunks(location, path, max_bytes)
    except UnknownFile:
        raise _make_missing_file_error(name, path) from None


def open_source_file(folders: Mapping[str, SourceFolder], role: Role, name: str, path: str) -> BinaryIO:
    """Open a file in a configured folder. The path contains no symbolic links and does not leave the folder.

    Raises:
        InvalidInput: The source is unknown, not allowed for the role or not a folder, or it has no such file.
    """
    location, missing = _get_allowed_location(folders, role, name), _make_missing_file_error(name, path)
    parts = path.split("/")
    if isinstance(location, BucketLocation) or {"", ".", ".."}.intersection(parts):
        raise missing
    try:
        opened = open_without_links(location, parts)
    except (OSError, ValueError):
        raise missing from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise missing
    return os.fdopen(opened, "rb")


def _get_allowed_location(folders: Mapping[str, SourceFolder], role: Role, name: str) -> Path | BucketLocation:
    allowed = list_allowed_sources(folders, role)
    if name not in allowed:
        raise InvalidInput(f'Unknown source "{name}". Configured sources: {", ".join(allowed) or "none"}.')
    return folders[name].path


def _make_missing_file_error(source: str, path: str) -> InvalidInput:
    return InvalidInput(f'Source "{source}" has no file "{path}"')


def open_without_links(root: Path, parts: Sequence[str]) -> int:
    """Open the file at a path below a folder and return its descriptor.

    Each folder of the path is opened from its parent, and links are not followed. A folder or file that is replaced
    with a link at any time therefore cannot lead outside.
    """
    *folders, name = parts
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            parent, at = at, os.open(folder, _FOLDER_FLAGS, dir_fd=at)
            os.close(parent)
        return os.open(name, _FILE_FLAGS, dir_fd=at)
    finally:
        os.close(at)


def iter_file_chunks(file: BinaryIO, name: str, max_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the content of a file and close it; TooLarge above ``max_bytes``. Counts as it reads: the file may grow."""
    size = 0
    try:
        with file:
            for piece in iter_chunks(file):
                size += len(piece)
                if max_bytes is not None and size > max_bytes:
                    raise TooLarge(f"The file is larger than {max_bytes >> 20} MB")
                yield piece
    except OSError as error:
        raise InvalidInput(f'Cannot read the file "{name}": {error.strerror}') from error


def iter_local_file_chunks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file that this process may read; raise InvalidInput if it cannot be read."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInput(f'Cannot read the file "{path.name}": {error.strerror}') from error
    yield from iter_file_chunks(file, path.name)
