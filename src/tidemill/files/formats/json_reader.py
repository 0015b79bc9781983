"""Reads NDJSON, one value per line, and JSON files that consist of one array, or of an object with an array."""

import json
import re

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import Checkpoint
from tidemill.core.json_input import MAX_JSON_DEPTH, is_json_too_deep
from tidemill.files.byte_streams import BYTE_ORDER_MARK, STREAM_READ_BYTES, ByteStream, LineBuffer
from tidemill.files.formats.block_reader import UNREADABLE_RECORD_MAX_CHARS, BlockBuilder, BlockReader

_decode_json = msgspec.json.Decoder().decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode_json = msgspec.json.Encoder().encode
_JSON_ESCAPED_NUL = b"\\u0000"


class NdjsonReader(BlockReader):
    """Reads NDJSON. A checkpoint is the offset and number of the next line."""

    def __init__(
        self, stream: ByteStream, checkpoint: Checkpoint, *, max_row_bytes: int, flattens: bool = False
    ) -> None:
        super().__init__(checkpoint)
        self._stream = stream
        self._flattens = flattens
        self._lines = LineBuffer(stream, max_row_bytes, checkpoint.get("offset", 0), checkpoint.get("line", 0))

    def close(self) -> None:
        self._stream.close()

    def _get_checkpoint(self) -> Checkpoint:
        return {"offset": self._lines.offset, "line": self._lines.number}

    def _read_into(self, draft: BlockBuilder) -> bool:
        lines = self._lines.peek_lines(draft.remaining_rows, draft.left)
        texts = [line.strip() for line in lines]
        is_short = max(map(len, lines), default=0) <= self._lines.limit
        if is_short and not self._flattens and _are_all_storable_json(texts):
            draft.add_single_line_records(texts, self._lines.number + 1)
            self._lines.consume_lines(len(lines))
        else:
            for line in lines:
                self._add_line(draft, line)
                self._lines.consume_lines(1)
        return bool(lines)

    def _add_line(self, draft: BlockBuilder, line: bytes) -> None:
        number, text = self._lines.number + 1, line.strip()
        if len(line) > self._lines.limit:
            # Of a line that ends after the buffered data, only these bytes are kept.
            raw = line[: self._lines.limit + 1].strip()
            draft.add_defective(raw, number, f"Row is longer than {self._lines.limit} bytes")
        elif text:
            offset = self._lines.offset + line.index(text)
            add_json_value_to_block(draft, text, number, offset, flattens=self._flattens)


def add_json_value_to_block(
    draft: BlockBuilder, text: bytes, line: int, offset: int, *, flattens: bool = False
) -> None:
    """Add a JSON value unchanged or flattened, or as an invalid row with the reason."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        draft.add_defective(text, line, f"Row is not valid JSON: {error}", byte_offset=offset + error.start)
        return
    reason, flat = find_json_problem(text), text
    if reason is None and flattens:
        flat, reason = flatten_json_object(text)
    if reason is None:
        draft.add_record(flat, line)
    else:
        draft.add_defective(text, line, reason)


def flatten_json_object(text: bytes) -> tuple[bytes, str | None]:
    """Return an object with the fields of nested objects as its own, and a problem, if any. Lists do not change.

    The values keep their text, so that numbers lose no digits.
    """
    if not text.startswith(b"{"):
        return text, None
    fields: dict[str, msgspec.Raw] = {}
    repeated = _add_flat_fields(_decode_fields(text), "", fields)
    reason = f'Row has two values for "{repeated}" if nested objects are flattened' if repeated else None
    return _encode_json(fields), reason


def _add_flat_fields(nested: dict[str, msgspec.Raw], prefix: str, fields: dict[str, msgspec.Raw]) -> str | None:
    """Add the fields; return the first name that occurs twice."""
    for name, value in nested.items():
        inner = _decode_fields(value) if bytes(memoryview(value)[:1]) == b"{" else {}
        if inner and (repeated := _add_flat_fields(inner, f"{prefix}{name}.", fields)):
            return repeated
        if not inner and prefix + name in fields:
            return prefix + name
        if not inner:
            fields[prefix + name] = value
    return None


def find_json_problem(text: bytes) -> str | None:
    try:
        _decode_json(text)
    except msgspec.ValidationError:  # an untyped decoder raises it only for such numbers
        return "Row contains a number that is too large. The maximum is about 1.8e308."
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"Row is not valid JSON: {'unpaired surrogate' if _has_lone_surrogate(text) else error}"
    if is_json_too_deep(text):
        return f"Row is nested more than {MAX_JSON_DEPTH} levels deep"
    if _JSON_ESCAPED_NUL in text.replace(b"\\\\", b""):
        return "Row contains a NUL character, which PostgreSQL cannot store"
    return None


def _decode_json_or_none(text: bytes) -> object:
    try:
        return _decode_json(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _has_lone_surrogate(text: bytes) -> bool:
    r"""Return whether the only problem is an unpaired surrogate such as ``\ud800``, which ``json`` decodes."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _are_all_storable_json(texts: list[bytes]) -> bool:
    """Return whether all texts are JSON values that PostgreSQL can store."""
    joined = b"\n".join(texts)
    if _JSON_ESCAPED_NUL in joined or not all(texts):
        return False
    try:
        joined.decode()
        for text in texts:
            _decode_json(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return not any(is_json_too_deep(text) for text in texts if len(text) > 2 * MAX_JSON_DEPTH)


_BRACKET_OR_QUOTE, _VALUE_STARTS = re.compile(rb'[][{}"]'), (b"[", b"{", b'"')
_STRING_PART = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)  # possessive: to search again would need memory
_WORD = re.compile(rb'[^][{}", \t\r\n]*')
_WHITESPACE, _WHITESPACE_RUN = b" \t\r\n", re.compile(rb"[ \t\r\n]*")
_raw_decode = json.JSONDecoder(strict=False).raw_decode
SKIPPED_DEPTH_MAX = 10_000  # a deeper element ends the read: it has no end that could be found quickly
SKIPPED_ELEMENT_MAX_BYTES = 64 << 20  # a longer element ends the read
SLOW_ELEMENTS_MAX = 1_024  # elements that are scanned after repeated failures of the fast decoder


class JsonValueScanner:
    """Finds the end of a value in chunks: after its closing bracket or quote, or the end of a number or a word.

    It checks brackets and strings only, so that the end of an invalid value is found as well.
    """

    def __init__(self, first: bytes) -> None:
        self.depth = 0
        self.is_complete = False
        self._is_word = first not in _VALUE_STARTS
        self._is_text = False

    def scan(self, data: bytes, at: int) -> int:
        """Scan the data from ``at``. Return the end of the value, or where to continue when there is more data."""
        if self._is_word:
            at = _find_match_end(_WORD, data, at)
            self.is_complete = at < len(data)
            return at
        while at < len(data) and not self.is_complete and self.depth <= SKIPPED_DEPTH_MAX:
            if self._is_text:
                at = _find_match_end(_STRING_PART, data, at)
                if data[at : at + 1] != b'"':  # the string ends in later data
                    return at
                at += 1
                self._is_text = False
                self.is_complete = self.depth == 0
            else:
                mark = _BRACKET_OR_QUOTE.search(data, at)
                at = len(data) if mark is None else mark.end()
                self._add_mark(b"" if mark is None else mark.group())
        return at

    def _add_mark(self, mark: bytes) -> None:
        self._is_text = mark == b'"'
        self.depth += (mark in (b"[", b"{")) - (mark in (b"]", b"}"))
        self.is_complete = mark in (b"]", b"}") and self.depth == 0


def _find_match_end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """Return where the match of a pattern ends that also matches nothing."""
    match = pattern.match(data, at)
    return at if match is None else match.end()


class JsonArrayReader(BlockReader):
    """Reads an array, or the array ``records`` of an object. A checkpoint is the offset after the last element."""

    def __init__(
        self,
        stream: ByteStream,
        checkpoint: Checkpoint,
        *,
        max_row_bytes: int,
        records: str = "",
        flattens: bool = False,
    ) -> None:
        super().__init__(checkpoint)
        self._records, self._flattens = records, flattens
        self._stream = stream
        self._limit = max_row_bytes
        self._data = b""
        self._text: str | None = None
        self._at = 0
        self._head = b""  # the beginning of an element that is too long
        self._element_offset, self._element_line = 0, 1
        self._fast_failures = self._slow_elements = 0
        self._is_over = False
        self._offset = checkpoint.get("offset", 0)  # of the buffered data
        self._line = checkpoint.get("line", 1)
        stream.seek(self._offset)
        if not checkpoint:
            self._open_array()

    def close(self) -> None:
        self._stream.close()

    def _get_checkpoint(self) -> Checkpoint:
        return {"offset": self._offset + self._at, "line": self._line}

    def _open_array(self) -> None:
        while len(self._data) < len(BYTE_ORDER_MARK) and self._fill_buffer():
            pass
        if self._data.startswith(BYTE_ORDER_MARK):
            self._at = len(BYTE_ORDER_MARK)
        self._skip_whitespace()
        if self._at == len(self._data):
            raise InvalidInput("The file is empty. A JSON file must contain an array of rows.")
        for name in self._records.split(".") if self._records else ():
            self._enter_member(name)
        if self._peek_byte() != b"[":
            if self._records:
                raise InvalidInput(f'records: "{self._records}" is not a list in the JSON file')
            raise InvalidInput(
                "The JSON file is not an array. It must begin with [, or set records to one of its lists."
            )
        self._at += 1

    def _enter_member(self, name: str) -> None:
        """Move to the value of a member of the object at the current position."""
        mark = b"{"
        while self._peek_byte() == mark:
            self._at += 1
            if self._read_member_name() == name:
                return
            self._skip_value()
            self._skip_whitespace()
            mark = b","
        raise InvalidInput(f'records: the JSON file has no list "{self._records}"')

    def _leave_object(self) -> None:
        """Move to the end of the object whose member ends at the current position."""
        self._skip_whitespace()
        while self._peek_byte() == b",":
            self._at += 1
            self._read_member_name()
            self._skip_value()
            self._skip_whitespace()
        if self._peek_byte() != b"}":
            raise self._make_syntax_error("missing comma")
        self._at += 1

    def _read_member_name(self) -> object:
        """Return the name of the next member, and move to its value."""
        self._skip_whitespace()
        name = _decode_json_or_none(self._skip_value())
        self._skip_whitespace()
        if self._peek_byte() != b":":
            raise self._make_syntax_error("missing colon")
        self._at += 1
        self._skip_whitespace()
        return name

    def _skip_value(self) -> bytes:
        """Move to the end of a value; return its text if it is short."""
        self._head, self._element_offset, self._element_line = b"", self._offset + self._at, self._line
        end = self._find_element_end()  # before the next line, because it fills the buffer
        text = self._data[self._at : end]
        self._advance(len(text))
        return text

    def _read_into(self, draft: BlockBuilder) -> bool:
        if self._is_over:
            return False
        before, count = self._get_checkpoint(), len(draft.inputs)
        try:
            self._skip_separator_and_add_element(draft, is_first=self._row + count == 0)
        finally:
            if len(draft.inputs) == count:  # the end or a syntax error: a resumed read must reach it again
                self._at, self._line = before["offset"] - self._offset, before["line"]
        return not self._is_over

    def _skip_separator_and_add_element(self, draft: BlockBuilder, *, is_first: bool) -> None:
        self._skip_whitespace()
        if self._peek_byte() == b"]":
            self._at += 1
            self._expect_end_after_array()
            return
        if not is_first:
            if self._peek_byte() != b",":
                raise self._make_syntax_error("missing comma")
            self._at += 1
            self._skip_whitespace()
        self._add_element(draft)

    def _add_element(self, draft: BlockBuilder) -> None:
        line, begin = self._line, self._offset + self._at
        self._head, self._element_offset, self._element_line = b"", begin, line
        end = self._find_element_end()  # before the next line, because it fills the buffer
        text = self._data[self._at : end]
        if not text and not self._head:
            raise self._make_syntax_error("missing element")
        if self._head or len(text) > self._limit:
            raw = (self._head or text)[: self._limit + 1]
            draft.add_defective(raw, line, f"Row is longer than {self._limit} bytes")
        else:
            add_json_value_to_block(draft, text, line, begin, flattens=self._flattens)
        self._advance(len(text))

    def _find_element_end(self) -> int:
        """Return the end of the current element, the same for any number of buffered bytes."""
        end = self._find_element_end_fast()
        if end is not None:
            return end
        end = self._scan_to_element_end()
        if self._head:
            self._check_skipped_bytes(end)
            return end
        try:  # the decoder ends a value earlier, for example 1 in 1.2.3
            return self._at + _raw_decode(self._data[self._at : end].decode("latin-1"))[1]
        except (ValueError, RecursionError):
            return end

    def _find_element_end_fast(self) -> int | None:
        """Return the end of a valid, fully buffered element; None otherwise. Faster than ``_scan_to_element_end``.

        Each failure searches the buffer for line ends, so after several failures in a row it is skipped for a while.
        """
        if self._data[self._at : self._at + 1] not in _VALUE_STARTS:
            return None  # the decoder would return 1 if the buffered data ends with 1. or 1e
        if self._slow_elements:
            self._slow_elements -= 1
            return None
        if self._text is None:
            self._text = self._data.decode("latin-1")  # one character per byte keeps the offsets
        try:
            _, end = _raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            self._fast_failures += 1
            self._slow_elements = min(2 ** min(self._fast_failures, 20) - 2, SLOW_ELEMENTS_MAX)
            return None
        self._fast_failures = 0
        return end if end < len(self._data) else None

    def _scan_to_element_end(self) -> int:
        """Return the end of the current element, also of an invalid or very long one."""
        scanner, at = JsonValueScanner(self._data[self._at : self._at + 1]), self._at
        while True:
            at = scanner.scan(self._data, at)
            if scanner.is_complete:
                return at
            if scanner.depth > SKIPPED_DEPTH_MAX:
                raise self._make_element_error(f"value nested more than {SKIPPED_DEPTH_MAX:,} levels deep")
            seen = self._discard_scanned_bytes(at - self._at)
            if not self._fill_buffer():
                raise self._make_element_error("unclosed element")
            at = self._at + seen

    def _discard_scanned_bytes(self, seen: int) -> int:
        """Discard the scanned part of an element that is too long. Return the number of scanned bytes in the buffer."""
        self._check_skipped_bytes(self._at + seen)
        if len(self._data) - self._at <= self._limit:
            return seen
        self._head = self._head or self._data[self._at : self._at + self._limit + 1][: 4 * UNREADABLE_RECORD_MAX_CHARS]
        self._advance(seen)
        return 0

    def _check_skipped_bytes(self, end: int) -> None:
        if self._offset + end - self._element_offset > self._limit + SKIPPED_ELEMENT_MAX_BYTES:
            raise self._make_element_error(f"value longer than {self._limit} bytes")

    def _advance(self, count: int) -> None:
        self._line += self._data.count(b"\n", self._at, self._at + count)
        self._at += count

    def _skip_whitespace(self) -> None:
        while True:
            blank = _WHITESPACE_RUN.match(self._data, self._at)
            self._advance(0 if blank is None else blank.end() - self._at)
            if self._at < len(self._data) or not self._fill_buffer():
                return

    def _peek_byte(self) -> bytes:
        if self._at == len(self._data):
            raise self._make_syntax_error("unclosed object" if self._records else "unclosed array")
        return self._data[self._at : self._at + 1]

    def _expect_end_after_array(self) -> None:
        for _ in self._records.split(".") if self._records else ():
            self._leave_object()
        self._skip_whitespace()
        if self._at < len(self._data):
            raise self._make_syntax_error(f"unexpected data after the {'object' if self._records else 'array'}")
        self._is_over = True

    def _fill_buffer(self) -> bool:
        piece = self._stream.read(STREAM_READ_BYTES)
        self._offset += self._at
        self._data, self._text = self._data[self._at :] + piece, None
        self._at = 0
        return bool(piece)

    def _make_syntax_error(self, what: str) -> InvalidInput:
        return InvalidInput(f"Invalid JSON at byte {self._offset + self._at}, line {self._line}: {what}")

    def _make_element_error(self, what: str) -> InvalidInput:
        """Return an error with the position where the current element begins."""
        return InvalidInput(f"Invalid JSON at byte {self._element_offset}, line {self._element_line}: {what}")
