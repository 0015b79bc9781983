"""A stored object as a file: read in ranges, which grow while it is read on and on."""

import io
from typing import Protocol

SMALLEST, LARGEST = 64 << 10, 8 << 20


class Ranges(Protocol):
    """What can be read in ranges: from one byte to before another."""

    size: int

    def read(self, start: int, end: int) -> bytes: ...

    def close(self) -> None: ...


class RangeReader(io.RawIOBase):
    """Holds one range in memory at a time."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._at = 0
        self._start, self._held = 0, b""
        self._ahead = SMALLEST

    def close(self) -> None:
        if not self.closed:
            self._ranges.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._ranges.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        if self._at >= self._ranges.size:
            return 0
        if not self._start <= self._at < self._start + len(self._held):
            self._fill(len(buffer))
        begin = self._at - self._start
        piece = self._held[begin : begin + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _fill(self, wanted: int) -> None:
        goes_on = self._at == self._start + len(self._held)
        self._ahead = min(self._ahead * 2, LARGEST) if goes_on else SMALLEST
        end = min(self._at + max(self._ahead, min(wanted, LARGEST)), self._ranges.size)
        self._start, self._held = self._at, b""  # never two of them
        self._held = self._ranges.read(self._at, end)
