"""A JSON file that is one array: its elements are records, kept as they stand."""

import json
import re
from typing import Any

from tidemill.connectors.lines import BYTE_ORDER_MARK
from tidemill.connectors.ndjson import add_json
from tidemill.connectors.records import RAW_MAX, BlockSource, Draft
from tidemill.connectors.stream import PIECE, Stream
from tidemill.domain.errors import InvalidInput

_MARK = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{},"]', re.DOTALL)
_BLANK, _BLANKS = b" \t\r\n", re.compile(rb"[ \t\r\n]*")
_scan = json.JSONDecoder(strict=False).raw_decode
_OPENING, _CLOSING = b"[{", b"]}"


class JsonSource(BlockSource):
    """A checkpoint is the offset behind the last element, and the line that it is on."""

    def __init__(self, stream: Stream, checkpoint: dict[str, Any], *, max_row_bytes: int) -> None:
        super().__init__(checkpoint)
        self._stream = stream
        self._limit = max_row_bytes
        self._data = b""
        self._text: str | None = None
        self._at = 0
        self._head = b""  # of an element that is too long
        self._is_over = False
        self._offset = checkpoint.get("offset", 0)  # of the data we hold
        self._line = checkpoint.get("line", 1)
        stream.go_to(self._offset)
        if not checkpoint:
            self._open()

    def close(self) -> None:
        self._stream.close()

    def _place(self) -> dict[str, Any]:
        return {"offset": self._offset + self._at, "line": self._line}

    def _open(self) -> None:
        self._skip_blank()
        if self._data.startswith(BYTE_ORDER_MARK):
            self._at = len(BYTE_ORDER_MARK)
            self._skip_blank()
        if self._at == len(self._data):
            raise InvalidInput("the file is empty: a JSON file of records is an array")
        if self._next() != b"[":
            raise InvalidInput("a JSON file of records is an array: it begins with [")
        self._at += 1

    def _more(self, draft: Draft) -> bool:
        if self._is_over:
            return False
        before, count = self._place(), len(draft.inputs)
        try:
            self._step(draft, is_first=self._row + count == 0)
        finally:
            if len(draft.inputs) == count:  # the end, or something broken: whoever goes on here meets it again
                self._at, self._line = before["offset"] - self._offset, before["line"]
        return not self._is_over

    def _step(self, draft: Draft, *, is_first: bool) -> None:
        self._skip_blank()
        if self._next() == b"]":
            self._at += 1
            self._end()
            return
        if not is_first:
            if self._next() != b",":
                raise self._broken("a comma is missing")
            self._at += 1
            self._skip_blank()
        self._element(draft)

    def _element(self, draft: Draft) -> None:
        line, begin = self._line, self._offset + self._at
        self._head = b""
        end = self._scan() or self._find_end()
        text = self._data[self._at : end].rstrip(_BLANK)
        if not text and not self._head:
            raise self._broken("an element is missing")
        if self._head or len(text) > self._limit:
            draft.add_bad(self._head or text, line, f"longer than {self._limit} bytes")
        else:
            add_json(draft, text, line, begin)
        self._pass(len(text))

    def _scan(self) -> int | None:
        """Where a well-formed element ends that we hold whole: the same as below, only sooner."""
        if self._text is None:
            self._text = self._data.decode("latin-1")  # a letter a byte: places stay what they are
        try:
            _, end = _scan(self._text, self._at)
        except (ValueError, RecursionError):
            return None
        return end if end < len(self._data) else None

    def _find_end(self) -> int:
        """Where the element ends that begins here: at a comma or bracket that is not its own."""
        depth = seen = 0
        while True:
            for mark in _MARK.finditer(self._data, self._at + seen):
                word = mark.group()
                if word == b'"':  # it closes in what was not read yet
                    break
                if word in _OPENING:
                    depth += 1
                elif word in _CLOSING or word == b",":
                    if depth == 0:
                        return mark.start()
                    depth -= word in _CLOSING
                seen = mark.end() - self._at
                if depth == 0 and word in _CLOSING:
                    return mark.end()
            seen = self._forget(seen)
            if not self._fill():
                raise self._broken("an element is never closed")

    def _forget(self, seen: int) -> int:
        """Of an element that is too long only the beginning is kept; how much of what we hold was looked at."""
        if len(self._data) - self._at <= self._limit:
            return seen
        if seen == 0:
            raise self._broken(f"a word of more than {self._limit} bytes")
        self._head = self._head or self._data[self._at : self._at + 4 * RAW_MAX]
        self._pass(seen)
        return 0

    def _pass(self, count: int) -> None:
        self._line += self._data.count(b"\n", self._at, self._at + count)
        self._at += count

    def _skip_blank(self) -> None:
        while True:
            blank = _BLANKS.match(self._data, self._at)
            self._pass(0 if blank is None else blank.end() - self._at)
            if self._at < len(self._data) or not self._fill():
                return

    def _next(self) -> bytes:
        if self._at == len(self._data):
            raise self._broken("the array is never closed")
        return self._data[self._at : self._at + 1]

    def _end(self) -> None:
        self._skip_blank()
        if self._at < len(self._data):
            raise self._broken("there is something behind the array")
        self._is_over = True

    def _fill(self) -> bool:
        piece = self._stream.read(PIECE)
        self._offset += self._at
        self._data, self._text = self._data[self._at :] + piece, None
        self._at = 0
        return bool(piece)

    def _broken(self, what: str) -> InvalidInput:
        return InvalidInput(f"the JSON is broken at byte {self._offset + self._at}, line {self._line}: {what}")
