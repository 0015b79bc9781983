"""Zstandard, block by block: the decompressor itself bounds neither what it gives nor says that the end is missing."""

from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from tidemill.domain.errors import InvalidInput

WINDOW_MAX = 128 << 20  # memory that a frame may ask for
_FRAME, _SKIPPABLE = 0xFD2FB528, 0x184D2A5
_RLE = 1
_ID_BYTES, _SIZE_BYTES = (0, 1, 2, 4), (0, 2, 4, 8)


def unpack_zstd(file: BinaryIO) -> Iterator[bytes]:
    """A block gives 128 KB at most."""
    magic = _exactly(file, 4)
    while magic:
        number = int.from_bytes(magic, "little")
        if number >> 4 == _SKIPPABLE:
            _skip(file, int.from_bytes(_exactly(file, 4), "little"))
        elif number == _FRAME:
            yield from _frame(file, magic)
        else:
            raise InvalidInput("the zstd file is damaged: a frame begins with something else")
        magic = file.read(4)


def _frame(file: BinaryIO, magic: bytes) -> Iterator[bytes]:
    header, has_checksum = _header(file)
    frame = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX).decompressobj()
    try:
        frame.decompress(magic + header)
        is_last = False
        while not is_last:
            head = _exactly(file, 3)
            word = int.from_bytes(head, "little")
            is_last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
            yield frame.decompress(head + _exactly(file, 1 if kind == _RLE else size))
        if has_checksum:
            yield frame.decompress(_exactly(file, 4))
    except zstandard.ZstdError as error:
        raise InvalidInput(f"the zstd file is damaged: {error}") from error


def _header(file: BinaryIO) -> tuple[bytes, bool]:
    first = _exactly(file, 1)
    flags = first[0]
    is_single = bool(flags & 0x20)
    size = _SIZE_BYTES[flags >> 6] or int(is_single)
    rest = _exactly(file, (0 if is_single else 1) + _ID_BYTES[flags & 3] + size)
    return first + rest, bool(flags & 4)


def _skip(file: BinaryIO, size: int) -> None:
    while size:
        size -= len(_exactly(file, min(size, 1 << 20)))


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise InvalidInput("the zstd file is cut off: its end is missing")
    return data
