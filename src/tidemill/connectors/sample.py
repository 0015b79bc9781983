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
    """``head``: whole lines at the beginning. ``far``: the bytes around those that are not ASCII, of the first MBs."""

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._stream = unpacked(file, compression, UNPACKED_MAX)
        self._stream.go_to(0)
        begin = self._read(HEAD)
        whole, end, _ = begin.rpartition(b"\n") if len(begin) == HEAD else (begin, b"", b"")
        self.head = whole + end or begin
        self._begin = begin

    @cached_property
    def far(self) -> bytes:
        """Windows of text, joined: short lists of encodings are told apart by their neighbours."""
        found: list[bytes] = []
        piece, seen = self._begin, 0
        while piece and seen < FAR and sum(map(len, found)) < HEAD:
            found += _windows(piece)
            seen += len(piece)
            piece = self._read(PIECE)
        return b"\n".join(found)

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


def _windows(piece: bytes) -> list[bytes]:
    """The lines of a piece that have something else than ASCII in them; whole ones, but for the last."""
    if piece.isascii():
        return []
    return [line[:1000] for line in piece.split(b"\n") if not line.isascii()][:200]
