"""Compressed files, unpacked as they are read, with one guard against those that only want to fill the memory."""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tidemill.connectors.stream import PIECE, Forward, Plain, Stream
from tidemill.connectors.zips import members, open_zip
from tidemill.connectors.zstd import unpack_zstd
from tidemill.domain.errors import InvalidInput

RATIO_MAX = 200  # times its size that a file may unpack to
RATIO_FROM = 10 << 20  # bytes; little may be as dense as it likes


class Unpacked(Forward):
    """What a compressed file holds."""

    def __init__(self, file: BinaryIO, compression: str, max_bytes: int) -> None:
        self._file = file
        self._unpack = UNPACKERS[compression]
        self._max_bytes = max_bytes
        super().__init__()

    def close(self) -> None:
        self._file.close()

    def _pieces(self) -> Iterator[bytes]:
        packed = self._file.seek(0, 2)
        self._file.seek(0)
        return guarded(self._unpack(self._file), packed, self._max_bytes)


def unpacked(file: BinaryIO, compression: str, max_bytes: int) -> Stream:
    return Plain(file) if compression == "none" else Unpacked(file, compression, max_bytes)


def guarded(pieces: Iterator[bytes], packed: int, max_bytes: int) -> Iterator[bytes]:
    """The same pieces, until they are more than an honest file of that size unpacks to."""
    seen = 0
    for piece in pieces:
        seen += len(piece)
        if seen > max_bytes:
            raise InvalidInput(f"the file unpacks to more than {max_bytes >> 20} MB")
        if seen > RATIO_FROM and seen > RATIO_MAX * packed:
            raise InvalidInput(f"the file unpacks to more than {RATIO_MAX} times its size")
        yield piece


def _unpack_gzip(file: BinaryIO) -> Iterator[bytes]:
    gzip = zlib.decompressobj(wbits=31)
    data = file.read(PIECE)
    while data:
        try:
            piece = gzip.decompress(data, PIECE)
        except zlib.error as error:
            raise InvalidInput(f"the gzip file is damaged: {error}") from error
        if piece:
            yield piece
        data = gzip.unused_data.lstrip(b"\x00") if gzip.eof else gzip.unconsumed_tail
        data = data or file.read(PIECE)
        if gzip.eof and (data := data.lstrip(b"\x00")):  # files may be strung together
            gzip = zlib.decompressobj(wbits=31)
    yield from _rest(gzip)


def _rest(gzip: "zlib._Decompress") -> Iterator[bytes]:
    while not gzip.eof:
        piece = gzip.decompress(b"", PIECE)
        if not piece and not gzip.eof:
            raise InvalidInput("the gzip file is cut off: its end is missing")
        yield piece


def _unpack_zip(file: BinaryIO) -> Iterator[bytes]:
    with open_zip(file) as archive:
        found = members(archive)
        if len(found) != 1:
            raise InvalidInput(f"a zip file of records holds one file; this one holds {len(found)}")
        try:
            with archive.open(found[0]) as member:
                while piece := member.read(PIECE):
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise InvalidInput(f"the zip file is damaged: {error}") from error


UNPACKERS: dict[str, Callable[[BinaryIO], Iterator[bytes]]] = {
    "gzip": _unpack_gzip,
    "zstd": unpack_zstd,
    "zip": _unpack_zip,
}
COMPRESSIONS = ("none", *UNPACKERS)
