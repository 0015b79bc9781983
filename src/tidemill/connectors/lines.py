"""Lines of a stream, many at a time."""

import bisect
import itertools

from tidemill.connectors.stream import PIECE, Stream
from tidemill.domain.errors import InvalidInput

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Lines:
    """Whole lines, without their ends. One beyond ``limit`` is cut behind it, not loaded: its length tells.

    ``offset`` and ``number`` are of what was taken: the bytes and lines before the next one.
    """

    def __init__(self, stream: Stream, limit: int, offset: int = 0, number: int = 0) -> None:
        self.limit = limit
        self.offset = offset
        self.number = number
        self._stream = stream
        self._lines: list[bytes] = []
        self._next = 0
        self._tail = b""
        self._cut: dict[int, int] = {}  # number of a line -> its bytes that were skipped
        self._is_over = self._is_unended = False
        self._error: InvalidInput | None = None
        stream.go_to(offset)
        if offset == 0:
            self._skip_mark()

    def peek(self, most: int, size: int = 2 * PIECE) -> list[bytes]:
        """Some of the next lines, up to the one that goes beyond so many bytes, one at least; none at the end."""
        if self.at(0) is None:
            if self._error is not None:
                raise self._error
            return []
        found = self._lines[self._next : self._next + most]
        size = min(size, 2 * PIECE)
        if sum(map(len, found)) > size:
            found = found[: 1 + bisect.bisect(list(itertools.accumulate(map(len, found))), size)]
        return found

    def at(self, ahead: int) -> bytes | None:
        """A line further on; None behind the end."""
        while self._next + ahead >= len(self._lines):
            if self._is_over:
                return None
            self._fill()
        return self._lines[self._next + ahead]

    def take(self, count: int) -> None:
        """Go on behind so many lines."""
        taken = self._lines[self._next : self._next + count]
        self.offset += sum(map(len, taken)) + len(taken)
        if self._cut:
            self.offset += sum(self._cut.pop(self.number + n, 0) for n in range(1, len(taken) + 1))
        self.number += len(taken)
        self._next += len(taken)
        if self._is_unended and self._next == len(self._lines) and taken:
            self.offset -= 1

    def _fill(self) -> None:
        del self._lines[: self._next]
        self._next = 0
        piece = self._read()
        *whole, self._tail = (self._tail + piece).split(b"\n")
        self._lines += whole
        if self._is_over and self._tail and self._error is None:
            self._end_without_end()
        elif len(self._tail) > self.limit:
            self._skip_rest()

    def _skip_rest(self) -> None:
        kept, skipped = self._tail[: self.limit + 1], len(self._tail) - self.limit - 1
        while (piece := self._read()) and b"\n" not in piece:
            skipped += len(piece)
        if self._error is not None:
            return
        rest, _, self._tail = piece.partition(b"\n")
        self._lines.append(kept)
        self._cut[self.number + len(self._lines)] = skipped + len(rest)
        self._is_unended = not piece

    def _end_without_end(self) -> None:
        kept = self._tail[: self.limit + 1]
        self._lines.append(kept)
        self._cut[self.number + len(self._lines)] = len(self._tail) - len(kept)
        self._is_unended = True

    def _read(self) -> bytes:
        """An error waits until the lines before it were taken; half a line before it is none."""
        try:
            piece = self._stream.read(PIECE)
        except InvalidInput as error:
            self._error, piece = error, b""
        self._is_over = not piece
        return piece

    def _skip_mark(self) -> None:
        first = self.at(0)
        if first is not None and first.startswith(BYTE_ORDER_MARK):
            self._lines[0] = first[len(BYTE_ORDER_MARK) :]
            self.offset = len(BYTE_ORDER_MARK)
