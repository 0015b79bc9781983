"""One JSON value per line."""

import json
from typing import Any

import msgspec

from tidemill.connectors.lines import Lines
from tidemill.connectors.records import BlockSource, Draft
from tidemill.connectors.stream import Stream
from tidemill.domain.depth import MAX_DEPTH, is_too_deep

_decode = msgspec.json.Decoder().decode
_NUL = b"\\u0000"


class NdjsonSource(BlockSource):
    """A checkpoint is the offset and number of the line that comes next."""

    def __init__(self, stream: Stream, checkpoint: dict[str, Any], *, max_row_bytes: int) -> None:
        super().__init__(checkpoint)
        self._stream = stream
        self._lines = Lines(stream, max_row_bytes, checkpoint.get("offset", 0), checkpoint.get("line", 0))

    def close(self) -> None:
        self._stream.close()

    def _place(self) -> dict[str, Any]:
        return {"offset": self._lines.offset, "line": self._lines.number}

    def _more(self, draft: Draft) -> bool:
        lines = self._lines.peek(draft.room, draft.left)
        texts = [line.strip() for line in lines]
        if max(map(len, lines), default=0) <= self._lines.limit and _are_good(texts):
            draft.extend(texts, self._lines.number + 1)
            self._lines.take(len(lines))
        else:
            for line in lines:
                self._add(draft, line)
                self._lines.take(1)
        return bool(lines)

    def _add(self, draft: Draft, line: bytes) -> None:
        number, text = self._lines.number + 1, line.strip()
        if len(line) > self._lines.limit:
            draft.add_bad(text, number, f"longer than {self._lines.limit} bytes")
        elif text:
            add_json(draft, text, number, self._lines.offset + line.index(text))


def add_json(draft: Draft, text: bytes, line: int, offset: int) -> None:
    """A value as it stands, or why it is none that can be stored."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        draft.add_bad(text, line, f"not JSON: {error}", byte_offset=offset + error.start)
        return
    reason = problem(text)
    if reason is None:
        draft.add(text, line)
    else:
        draft.add_bad(text, line, reason)


def problem(text: bytes) -> str | None:
    try:
        _decode(text)
    except msgspec.ValidationError:  # of what has no type only this can be said
        return "a number is too large: there is none beyond 1.8e308"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"not JSON: {'half of a surrogate pair is no character' if _is_halved(text) else error}"
    if is_too_deep(text):
        return f"nested more than {MAX_DEPTH} levels deep"
    if _NUL in text.replace(b"\\\\", b""):
        return "a NUL character cannot be stored"
    return None


def _is_halved(text: bytes) -> bool:
    r"""Whether all that is wrong is a ``\ud800`` by itself: others read it, and cannot write it."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _are_good(texts: list[bytes]) -> bool:
    """Whether all of them are values that can be stored."""
    together = b"\n".join(texts)
    if _NUL in together or not all(texts):
        return False
    try:
        together.decode()
        for text in texts:
            _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return not any(is_too_deep(text) for text in texts if len(text) > 2 * MAX_DEPTH)
