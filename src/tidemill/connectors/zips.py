"""Zip archives: their list is read whole, so it is measured first."""

import struct
import zipfile
from typing import BinaryIO

from tidemill.domain.errors import InvalidInput

ENTRIES_MAX = 65_534  # one less than what a plain zip can say: beyond it the list of entries has no bound
LIST_BYTES_MAX = 64 << 20
_END = struct.Struct("<4s4H2LH")
_IGNORED = ("__MACOSX/", ".DS_Store")


def open_zip(file: BinaryIO) -> zipfile.ZipFile:
    check_list(file)
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InvalidInput(f"not a zip file: {error}") from error


def members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The files in it, without what one desktop adds of its own accord."""
    return [e for e in archive.infolist() if not e.is_dir() and not e.filename.startswith(_IGNORED)]


def check_list(file: BinaryIO) -> None:
    """A zip's list of entries is read whole: refuse one that would fill the memory before it is read."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 65_557))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise InvalidInput("not a zip file: its end is missing")
    _, _, _, _, entries, list_bytes, _, _ = _END.unpack_from(tail, at)
    if entries > ENTRIES_MAX or list_bytes > LIST_BYTES_MAX:
        raise InvalidInput(f"a zip has at most {ENTRIES_MAX} images")
