"""One JSON value per line."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from tidemill.connectors.records import InputRecord, Lines, defective
from tidemill.domain.depth import MAX_DEPTH, is_too_deep

_decode = msgspec.json.Decoder().decode
_BOM = b"\xef\xbb\xbf"


class NdjsonSource:
    """A checkpoint is the offset and number of the line that comes next."""

    def __init__(self, file: BinaryIO, *, max_row_bytes: int) -> None:
        self._file = file
        self._max_row_bytes = max_row_bytes

    def close(self) -> None:
        self._file.close()

    def records(self, checkpoint: dict[str, Any]) -> Iterator[InputRecord]:
        lines = Lines(self._file, self._max_row_bytes, checkpoint.get("offset", 0), checkpoint.get("line", 0))
        for line in lines:
            text = line.removeprefix(_BOM) if lines.number == 1 else line
            text = text.strip()
            if text or lines.was_cut:
                here = {"offset": lines.offset, "line": lines.number}
                problem = f"longer than {self._max_row_bytes} bytes" if lines.was_cut else _problem(text)
                yield InputRecord(text, here) if problem is None else defective(text, lines.number, problem, here)


def _problem(text: bytes) -> str | None:
    try:
        _decode(text)
        text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"not JSON: {error}"
    if is_too_deep(text):
        return f"nested more than {MAX_DEPTH} levels deep"
    if b"\\u0000" in text.replace(b"\\\\", b""):
        return "a NUL character cannot be stored"
    return None
