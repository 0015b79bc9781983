"""Decompresses files while they are read, with a limit on the decompressed size; reads entries of zip archives."""

import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tidemill.core.errors import InvalidInput, TidemillError
from tidemill.files.byte_streams import STREAM_READ_BYTES, ByteStream, FileStream, ForwardStream

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZIP_ENTRIES_MAX = 65_534  # one less than the maximum of a plain zip; zip64 has no limit
ZIP_DIRECTORY_MAX_BYTES = 32 << 20
_ZIP_ENTRY_SIGNATURE = b"PK\x01\x02"
_ZIP_ENTRY = struct.Struct("<4s24x3H12x")  # the signature, and the lengths of the name, the extra field and the comment
_MACOS_FOLDER, _MACOS_FILE = "__MACOSX", ".DS_Store"  # metadata that macOS adds to archives


def open_zip(file: BinaryIO) -> zipfile.ZipFile:
    try:
        check_zip_directory(file)
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, struct.error) as error:
        raise InvalidInput(f"Not a zip file: {error}") from error


@contextmanager
def report_damaged_archive(name: str) -> Iterator[None]:
    """Convert the errors of reading a member of an archive to InvalidInput: decompressors raise many types."""
    try:
        yield
    except (MemoryError, TidemillError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the storage; bz2 sets no number
            raise
        raise InvalidInput(f"The {name} is damaged: {error}") from error


def list_zip_files(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, without the ones that macOS adds."""
    return [entry for entry in archive.infolist() if is_zip_file_of_user(entry)]


def is_zip_file_of_user(entry: zipfile.ZipInfo) -> bool:
    """Return whether an entry is neither a folder nor metadata that macOS adds, in any folder of the archive."""
    *folders, name = entry.filename.split("/")
    return not entry.is_dir() and name != _MACOS_FILE and _MACOS_FOLDER not in folders


def check_zip_directory(file: BinaryIO) -> None:
    """Raise InvalidInput if the directory of a zip is too large to load into memory.

    ``zipfile`` ignores the number of entries in the end record and loads every entry in the bytes of the directory, so
    these are counted. Its own function finds the directory, also of a zip64, so that both read the same bytes.
    """
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # noqa: SLF001
    if not end:
        raise InvalidInput("Not a zip file, or the end of the file is missing")
    size, location = end[zipfile._ECD_SIZE], end[zipfile._ECD_LOCATION]  # type: ignore[attr-defined]  # noqa: SLF001
    if end[zipfile._ECD_SIGNATURE] == zipfile.stringEndArchive64:  # type: ignore[attr-defined]  # noqa: SLF001
        location -= zipfile.sizeEndCentDir64 + zipfile.sizeEndCentDir64Locator  # type: ignore[attr-defined]
    if size > location:
        raise InvalidInput("Not a zip file: its directory is larger than the file")
    if size > ZIP_DIRECTORY_MAX_BYTES:
        raise InvalidInput(f"The directory of the zip file is larger than {ZIP_DIRECTORY_MAX_BYTES >> 20} MB")
    file.seek(location - size)
    if _count_zip_entries(file.read(size), ZIP_ENTRIES_MAX + 1) > ZIP_ENTRIES_MAX:
        raise InvalidInput(f"The zip file has too many entries. At most {ZIP_ENTRIES_MAX:,} are allowed.")


def _count_zip_entries(directory: bytes, most: int) -> int:
    """Count the entries of a directory, at most ``most``. ``zipfile`` reports damaged entries."""
    at = count = 0
    while at + _ZIP_ENTRY.size <= len(directory) and count < most:
        signature, *lengths = _ZIP_ENTRY.unpack_from(directory, at)
        if signature != _ZIP_ENTRY_SIGNATURE:
            break
        at += _ZIP_ENTRY.size + sum(lengths)
        count += 1
    return count


DECOMPRESSION_RATIO_MAX = 200  # decompressed size / compressed size
DECOMPRESSION_RATIO_MIN_BYTES = 10 << 20  # the ratio is not checked below this decompressed size


class DecompressedStream(ForwardStream):
    """The decompressed content of a file."""

    def __init__(self, file: BinaryIO, compression: str, max_bytes: int) -> None:
        self._file = file
        self._unpack = DECOMPRESSORS[compression]
        self._max_bytes = max_bytes
        super().__init__()

    def close(self) -> None:
        self._file.close()

    def _iter_chunks(self) -> Iterator[bytes]:
        compressed_bytes = self._file.seek(0, 2)
        self._file.seek(0)
        return DecompressionLimit(compressed_bytes, self._max_bytes).iter_chunks_within_limit(self._unpack(self._file))


def open_decompressed(file: BinaryIO, compression: str, max_bytes: int) -> ByteStream:
    return FileStream(file) if compression == "none" else DecompressedStream(file, compression, max_bytes)


class DecompressionLimit:
    """Limits the decompressed size of one file, summed over all of its parts (against decompression bombs)."""

    def __init__(self, compressed_bytes: int, max_bytes: int) -> None:
        self._compressed_bytes = compressed_bytes
        self._max_bytes = max_bytes
        self._seen = 0

    def iter_chunks_within_limit(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the chunks; raise InvalidInput when the total size exceeds the limits."""
        for piece in chunks:
            self.add_bytes(len(piece))
            yield piece

    def add_bytes(self, count: int) -> None:
        self._seen += count
        if self._seen > self._max_bytes:
            raise InvalidInput(f"The file is larger than {self._max_bytes >> 20} MB when decompressed")
        if self._seen > max(DECOMPRESSION_RATIO_MIN_BYTES, DECOMPRESSION_RATIO_MAX * self._compressed_bytes):
            raise InvalidInput(f"The file decompresses to more than {DECOMPRESSION_RATIO_MAX} times its size")


def _decompress_gzip(file: BinaryIO) -> Iterator[bytes]:
    gzip = zlib.decompressobj(wbits=31)
    data = file.read(STREAM_READ_BYTES)
    while data:
        piece = _decompress_gzip_piece(gzip, data)
        if piece:
            yield piece
        if not gzip.eof:
            data = gzip.unconsumed_tail or file.read(STREAM_READ_BYTES)
            continue
        data = gzip.unused_data.lstrip(b"\x00")  # a gzip file can have several members, with zeros in between
        while not data and (padding := file.read(STREAM_READ_BYTES)):
            data = padding.lstrip(b"\x00")
        if data:
            gzip = zlib.decompressobj(wbits=31)
    yield from _drain_gzip(gzip)


def _decompress_gzip_piece(gzip: "zlib._Decompress", data: bytes) -> bytes:
    try:
        return gzip.decompress(data, STREAM_READ_BYTES)
    except zlib.error as error:
        raise InvalidInput(f"The gzip file is damaged: {error}") from error


def _drain_gzip(gzip: "zlib._Decompress") -> Iterator[bytes]:
    while not gzip.eof:
        piece = _decompress_gzip_piece(gzip, b"")
        if not piece and not gzip.eof:
            raise InvalidInput("The gzip file is truncated")
        yield piece


ZSTD_WINDOW_LOG_MAX = 27  # limits the memory of a frame to 128 MB
ZSTD_FRAMES_MAX = 100_000  # each frame takes at least 20 µs
ZSTD_READ_BYTES = 64 << 10  # the end of each frame copies the rest, so larger reads slow down files of many frames


def _decompress_zstd(file: BinaryIO) -> Iterator[bytes]:
    frame, data, is_end, frames = _make_zstd_decompressor(), file.read(ZSTD_READ_BYTES), False, 1
    while not is_end:
        if frame.needs_input and not data:
            raise InvalidInput("The zstd file is truncated")
        try:
            piece = frame.decompress(data, STREAM_READ_BYTES)
        except zstd.ZstdError as error:
            raise InvalidInput(f"The zstd file is damaged: {error}") from error
        if piece:
            yield piece
        is_end = frame.eof
        data = frame.unused_data if is_end else b""
        if not data and (is_end or frame.needs_input):
            data = file.read(ZSTD_READ_BYTES)
        if is_end and data:  # a file may consist of several frames
            frames += 1
            if frames > ZSTD_FRAMES_MAX:
                raise InvalidInput(f"The zstd file has more than {ZSTD_FRAMES_MAX:,} frames. Compress it as one frame.")
            frame, is_end = _make_zstd_decompressor(), False


def _make_zstd_decompressor() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX})


def _decompress_zip(file: BinaryIO) -> Iterator[bytes]:
    with open_zip(file) as archive:
        files = list_zip_files(archive)
        if len(files) != 1:
            raise InvalidInput(f"The zip file contains {len(files)} files. It must contain exactly one file of rows.")
        with report_damaged_archive("zip file"), archive.open(files[0]) as member:
            while piece := member.read(STREAM_READ_BYTES):
                yield piece


DECOMPRESSORS: dict[str, Callable[[BinaryIO], Iterator[bytes]]] = {
    "gzip": _decompress_gzip,
    "zstd": _decompress_zstd,
    "zip": _decompress_zip,
}
COMPRESSIONS = ("none", *DECOMPRESSORS)
