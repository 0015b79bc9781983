"""Whole records out of chunks that are cut anywhere."""

from tidemill.domain.errors import InvalidInput

QUOTE, END = b'"', b"\n"


class Records:
    """CSV as COPY writes it: a line feed ends a record unless a quote is open, and a quote in a field is doubled.

    So a line feed ends a record where the number of quotes before it is even. The first record, the header, is dropped.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._is_open = False  # a quote, at the end of the pieces
        self._has_header = False

    def take(self, chunk: bytes) -> bytes:
        """All records that are whole now, or nothing."""
        end = self._end_in(chunk)
        if end == 0:
            self._keep(chunk)
            return b""
        whole = b"".join((*self._pieces, chunk[:end]))
        self._pieces, self._is_open = [], False
        self._keep(chunk[end:])
        return self._without_header(whole)

    def rest(self) -> bytes:
        """The last record, if nothing ended it. InvalidInput when it is not whole."""
        rest, self._pieces = b"".join(self._pieces), []
        if self._is_open:
            raise InvalidInput("the rows break off in the midst of a quoted value")
        return self._without_header(rest + END) if rest else b""

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._is_open ^= piece.count(QUOTE) % 2 == 1

    def _end_in(self, chunk: bytes) -> int:
        """Behind the last record that ends in it; 0 if none does."""
        end = chunk.rfind(END)
        quotes = chunk.count(QUOTE, 0, end) if end >= 0 else 0
        while end >= 0 and (quotes + self._is_open) % 2:
            quote = chunk.rfind(QUOTE, 0, end)
            earlier = chunk.rfind(END, 0, max(quote, 0))
            quotes -= chunk.count(QUOTE, max(earlier, 0), end)
            end = earlier
        return end + 1

    def _without_header(self, whole: bytes) -> bytes:
        if self._has_header:
            return whole
        self._has_header = True
        end = whole.find(END)
        while whole.count(QUOTE, 0, end) % 2:
            end = whole.find(END, end + 1)
        return whole[end + 1 :]
