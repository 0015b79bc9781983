"""Records of a source, and what is wrong with those that are none."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

VALUE_MAX = 200  # characters of a bad value that an error shows
RAW_MAX = 64 * 1024  # bytes of an unreadable record that are kept


@dataclass(frozen=True, slots=True)
class InputRecord:
    """An input, encoded; or a defect and as much of the record as can be kept."""

    input: bytes
    checkpoint: dict[str, Any]
    defect: dict[str, Any] | None = None


def defective(raw: bytes | str, line: int, reason: str, checkpoint: dict[str, Any]) -> InputRecord:
    """A record that cannot be an input is kept as text, so that nothing goes missing."""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
    text = text.encode(errors="replace").decode().replace("\x00", "\ufffd")
    defect = {"line": line, "code": "invalid", "reason": reason, "value": text[:VALUE_MAX]}
    return InputRecord(msgspec.json.encode(text[:RAW_MAX]), checkpoint, defect)


@dataclass(slots=True)
class Lines:
    """Lines of a file with their number and the offset behind them; a line beyond ``limit`` is cut, not loaded."""

    file: BinaryIO
    limit: int
    offset: int = 0
    number: int = 0
    was_cut: bool = False

    def __post_init__(self) -> None:
        self.file.seek(self.offset)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        line = self.file.readline(self.limit + 1)
        if not line:
            raise StopIteration
        self.offset += len(line)
        self.number += 1
        self.was_cut = len(line) > self.limit and not line.endswith(b"\n")
        if self.was_cut:
            self._skip_rest()
        return line

    def go_back(self, offset: int, number: int) -> None:
        """Read on from an earlier place."""
        self.offset, self.number = offset, number
        self.file.seek(offset)

    def _skip_rest(self) -> None:
        while rest := self.file.readline(1 << 20):
            self.offset += len(rest)
            if rest.endswith(b"\n"):
                return
