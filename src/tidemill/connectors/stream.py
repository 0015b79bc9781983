"""Bytes of a file, forward: as they are, unpacked, or brought into UTF-8."""

import codecs
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from tidemill.domain.errors import InvalidInput

PIECE = 256 * 1024
MARKS_MAX = 100_000  # bad bytes whose place in the file is remembered
_BAD = b"\xff"  # what a byte that cannot be decoded becomes: no UTF-8 has it
_noted = threading.local()


class Stream(Protocol):
    """Read on, or go to a place: forward is cheap."""

    def read(self, size: int) -> bytes:
        """So many bytes at most, none at the end."""

    def go_to(self, offset: int) -> None: ...

    def origin(self, offset: int) -> int:
        """Where in the file (unpacked) a byte of the stream came from."""

    def close(self) -> None: ...


class Plain:
    """A file as it is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def go_to(self, offset: int) -> None:
        self._file.seek(offset)

    def origin(self, offset: int) -> int:
        return offset

    def close(self) -> None:
        self._file.close()


class Forward(ABC):
    """A stream that is made piece by piece from the beginning. To go back is to begin again."""

    def __init__(self) -> None:
        self._error: InvalidInput | None = None
        self._left = memoryview(b"")
        self._position = 0
        self._source: Iterator[bytes] = iter(())
        self._begin()

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

    def go_to(self, offset: int) -> None:
        if offset < self._position:
            self._begin()
        while self._position < offset and self.read(min(PIECE, offset - self._position)):
            pass

    def origin(self, offset: int) -> int:
        return offset

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _pieces(self) -> Iterator[bytes]:
        """All of it, from the beginning."""

    def _begin(self) -> None:
        self._source = self._pieces()
        self._left = memoryview(b"")
        self._position = 0
        self._error = None


class Transcoded(Forward):
    """Text of another encoding as UTF-8. A byte that is none of that encoding is none of UTF-8 here either."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self._stream = stream
        self._encoding = encoding
        self._marks: dict[int, int] = {}
        super().__init__()

    def close(self) -> None:
        self._stream.close()

    def origin(self, offset: int) -> int:
        return self._marks.get(offset, offset)

    def _pieces(self) -> Iterator[bytes]:
        self._stream.go_to(0)
        decoder = codecs.getincrementaldecoder(self._encoding)("tidemill.mark")
        taken = given = 0
        piece = b"begin"
        while piece:
            piece = self._stream.read(PIECE)
            base, _noted.starts = taken - len(decoder.getstate()[0]), []
            data = decoder.decode(piece, final=not piece).encode(errors="surrogateescape")
            self._mark(data, given, [base + start for start in _noted.starts])
            taken, given = taken + len(piece), given + len(data)
            if data:
                yield data

    def _mark(self, data: bytes, given: int, origins: list[int]) -> None:
        at = -1
        for origin in origins[: MARKS_MAX - len(self._marks)]:
            at = data.find(_BAD, at + 1)
            self._marks[given + at] = origin


class Lined(Plain):
    """Lines that end with a carriage return alone, as if they ended like all others."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        return self._stream.read(size).replace(b"\r", b"\n")

    def go_to(self, offset: int) -> None:
        self._stream.go_to(offset)

    def origin(self, offset: int) -> int:
        return self._stream.origin(offset)

    def close(self) -> None:
        self._stream.close()


def _mark_bad(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    _noted.starts.append(error.start)
    return "\udcff", error.end


codecs.register_error("tidemill.mark", _mark_bad)
