"""A bounded look at a file: its first lines, and what is not ASCII further on."""

from functools import cached_property
from typing import BinaryIO

from tidemill.connectors.stream import PIECE
from tidemill.connectors.unpack import unpacked
from tidemill.domain.errors import InvalidInput

HEAD = 64 * 1024
FAR = 8 << 20  # how far we look for a byte that tells the encoding
UNPACKED_MAX = 1 << 30


class Sample:
    """``head``: whole lines at the beginning. ``far``: lines that tell its encoding."""

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._stream = unpacked(file, compression, UNPACKED_MAX)
        self._stream.go_to(0)
        begin = self._read(HEAD)
        whole, end, _ = begin.rpartition(b"\n") if len(begin) == HEAD else (begin, b"", b"")
        self.head = whole + end or begin
        self._begin = begin

    @cached_property
    def far(self) -> list[bytes]:
        """Whole lines that have something else than ASCII in them, of the first megabytes."""
        found: list[bytes] = []
        piece, tail, seen, size = self._begin, b"", 0, 0
        while piece and seen < FAR and size < HEAD:
            *lines, tail = (tail + piece).split(b"\n")
            found += [line for line in lines if not line.isascii()]
            seen, size = seen + len(piece), sum(map(len, found))
            piece = self._read(PIECE)
        if not piece and not tail.isascii():
            found.append(tail)
        return found

    def _read(self, size: int) -> bytes:
        """What is cut off or damaged further on is told by whoever reads it."""
        data = b""
        try:
            while len(data) < size and (piece := self._stream.read(size - len(data))):
                data += piece
        except InvalidInput:
            if not data:
                return b""
        return data
