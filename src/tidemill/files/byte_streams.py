"""Reads the bytes of a file forward: decompressed, transcoded to UTF-8 and split into lines."""

import bisect
import codecs
import itertools
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from tidemill.core.errors import InvalidInput

STREAM_READ_BYTES = 256 * 1024
BAD_BYTE_OFFSETS_MAX = 100_000  # invalid bytes whose offsets in the file are kept
_BAD_BYTE = b"\xff"  # replaces a byte that cannot be decoded: never occurs in UTF-8
_SINGLE_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
_decode_errors = threading.local()


class ByteStream(Protocol):
    """A readable stream. Seeking forward is cheap."""

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes; none at the end."""

    def seek(self, offset: int) -> None: ...

    def map_to_source_offset(self, offset: int) -> int:
        """Return the offset in the decompressed file of a byte of this stream."""

    def close(self) -> None: ...


class FileStream:
    """An unchanged file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int) -> None:
        self._file.seek(offset)

    def map_to_source_offset(self, offset: int) -> int:
        return offset

    def close(self) -> None:
        self._file.close()


class ForwardStream(ABC):
    """A stream that is produced in chunks. Seeking backwards restarts it."""

    def __init__(self) -> None:
        self._error: InvalidInput | None = None
        self._left = memoryview(b"")
        self._position = 0
        self._source: Iterator[bytes] = iter(())
        self._restart()

    def read(self, size: int) -> bytes:
        if self._error is not None:
            raise self._error
        while not self._left:
            try:
                self._left = memoryview(next(self._source))
            except StopIteration:
                return b""
            except InvalidInput as error:
                self._error = error
                raise
        data, self._left = bytes(self._left[:size]), self._left[size:]
        self._position += len(data)
        return data

    def seek(self, offset: int) -> None:
        if offset < self._position:
            self._restart()
        while self._position < offset and self.read(min(STREAM_READ_BYTES, offset - self._position)):
            pass

    def map_to_source_offset(self, offset: int) -> int:
        return offset

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _iter_chunks(self) -> Iterator[bytes]:
        """Yield the whole stream from the beginning."""

    def _restart(self) -> None:
        self._source = self._iter_chunks()
        self._left = memoryview(b"")
        self._position = 0
        self._error = None


class TranscodedStream(ForwardStream):
    """Converts text to UTF-8. A byte that is invalid in its encoding becomes a byte that is invalid in UTF-8."""

    def __init__(self, stream: ByteStream, encoding: str) -> None:
        self._stream = stream
        self._encoding = encoding
        self._marks: dict[int, int] = {}
        super().__init__()

    def close(self) -> None:
        self._stream.close()

    def map_to_source_offset(self, offset: int) -> int:
        return self._marks.get(offset, offset)

    def _iter_chunks(self) -> Iterator[bytes]:
        self._stream.seek(0)
        decoder = codecs.getincrementaldecoder(self._encoding)("tidemill.mark")
        taken = given = 0
        piece = b"begin"
        while piece:
            piece = self._stream.read(STREAM_READ_BYTES)
            base, _decode_errors.starts = taken - len(decoder.getstate()[0]), []
            data = decode_piece(decoder, piece, self._encoding, is_last=not piece).encode(errors="surrogateescape")
            self._record_bad_bytes(data, given, [base + start for start in _decode_errors.starts])
            taken, given = taken + len(piece), given + len(data)
            if data:
                yield data

    def _record_bad_bytes(self, data: bytes, given: int, origins: list[int]) -> None:
        at = -1
        for origin in origins[: BAD_BYTE_OFFSETS_MAX - len(self._marks)]:
            at = data.find(_BAD_BYTE, at + 1)
            self._marks[given + at] = origin


class CarriageReturnStream(FileStream):
    """Converts line ends that are a single carriage return to line feeds, and keeps the ones before a line feed."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes, or one more if the last one may be the first half of a line end."""
        data = self._stream.read(size)
        if data.endswith(b"\r"):
            data += self._stream.read(1)
        return _SINGLE_CARRIAGE_RETURN.sub(b"\n", data)

    def seek(self, offset: int) -> None:
        self._stream.seek(offset)

    def map_to_source_offset(self, offset: int) -> int:
        return self._stream.map_to_source_offset(offset)

    def close(self) -> None:
        self._stream.close()


def decode_piece(decoder: codecs.IncrementalDecoder, piece: bytes, encoding: str, *, is_last: bool) -> str:
    """Decode a piece of a text; raise InvalidInput if the encoding requires a byte order mark and there is none."""
    try:
        return decoder.decode(piece, final=is_last)
    except UnicodeDecodeError:
        raise
    except UnicodeError:
        raise InvalidInput(
            f'The file has no byte order mark, which encoding "{encoding}" requires. '
            f"Set encoding to {encoding}-le or {encoding}-be."
        ) from None


def _record_and_replace_bad_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    _decode_errors.starts.append(error.start)
    return "\udcff", error.end


codecs.register_error("tidemill.mark", _record_and_replace_bad_bytes)


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineBuffer:
    """Complete lines without their ends. A longer line than ``limit`` is cut to ``limit + 1`` bytes, not loaded.

    ``offset`` and ``number`` count the consumed bytes and lines.
    """

    def __init__(self, stream: ByteStream, limit: int, offset: int = 0, number: int = 0) -> None:
        self.limit = limit
        self.offset = offset
        self.number = number
        self._stream = stream
        self._lines: list[bytes] = []
        self._next = 0
        self._tail = b""
        self._cut: dict[int, int] = {}  # line number -> bytes that were skipped
        self._is_over = self._is_unended = False
        self._error: InvalidInput | None = None
        stream.seek(offset)
        if offset == 0:
            self._skip_byte_order_mark()

    def peek_lines(self, max_lines: int, max_bytes: int = 2 * STREAM_READ_BYTES) -> list[bytes]:
        """Return the next lines, until they exceed ``max_bytes``, but at least one; none at the end."""
        if self.peek_line(0) is None:
            if self._error is not None:
                raise self._error
            return []
        lines = self._lines[self._next : self._next + max_lines]
        max_bytes = min(max_bytes, 2 * STREAM_READ_BYTES)
        if sum(map(len, lines)) > max_bytes:
            lines = lines[: 1 + bisect.bisect(list(itertools.accumulate(map(len, lines))), max_bytes)]
        return lines

    def peek_line(self, ahead: int) -> bytes | None:
        """Return the line ``ahead`` lines after the next one; None after the end."""
        while self._next + ahead >= len(self._lines):
            if self._is_over:
                return None
            self._fill_buffer()
        return self._lines[self._next + ahead]

    def consume_lines(self, count: int) -> None:
        """Move past ``count`` lines."""
        taken = self._lines[self._next : self._next + count]
        self.offset += sum(map(len, taken)) + len(taken)
        if self._cut:
            self.offset += sum(self._cut.pop(self.number + n, 0) for n in range(1, len(taken) + 1))
        self.number += len(taken)
        self._next += len(taken)
        if self._is_unended and self._next == len(self._lines) and taken:
            self.offset -= 1

    def _fill_buffer(self) -> None:
        del self._lines[: self._next]
        self._next = 0
        piece = self._read_chunk()
        *whole, self._tail = (self._tail + piece).split(b"\n")
        self._lines += whole
        if self._is_over and self._tail and self._error is None:
            self._add_unterminated_line()
        elif len(self._tail) > self.limit:
            self._add_truncated_line()

    def _add_truncated_line(self) -> None:
        kept, skipped = self._tail[: self.limit + 1], len(self._tail) - self.limit - 1
        while (piece := self._read_chunk()) and b"\n" not in piece:
            skipped += len(piece)
        if self._error is not None:
            return
        rest, _, self._tail = piece.partition(b"\n")
        self._lines.append(kept)
        self._cut[self.number + len(self._lines)] = skipped + len(rest)
        self._is_unended = not piece

    def _add_unterminated_line(self) -> None:
        kept = self._tail[: self.limit + 1]
        self._lines.append(kept)
        self._cut[self.number + len(self._lines)] = len(self._tail) - len(kept)
        self._is_unended = True

    def _read_chunk(self) -> bytes:
        """Read a chunk. Keep an error until the complete lines before it are consumed; drop a partial line."""
        try:
            piece = self._stream.read(STREAM_READ_BYTES)
        except InvalidInput as error:
            self._error, piece = error, b""
        self._is_over = not piece
        return piece

    def _skip_byte_order_mark(self) -> None:
        first = self.peek_line(0)
        if first is not None and first.startswith(BYTE_ORDER_MARK):
            self._lines[0] = first[len(BYTE_ORDER_MARK) :]
            self.offset = len(BYTE_ORDER_MARK)
