"""Records on their way into a block, and what is wrong with those that are no inputs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import Checkpoint, InputBlock, InputDefect

DEFECT_VALUE_MAX_CHARS = 200  # characters of a bad value that an error shows
UNREADABLE_RECORD_MAX_CHARS = 64 * 1024  # characters of an unreadable record that are kept


class BlockBuilder:
    """A block that fills."""

    def __init__(self, rows: int, size: int) -> None:
        self.inputs: list[bytes] = []
        self.defects: dict[int, InputDefect] = {}
        self.lines: list[int] = []
        self.left = size  # bytes
        self._rows = rows

    @property
    def remaining_rows(self) -> int:
        """Records that still go in."""
        return self._rows - len(self.inputs) if self.left > 0 or not self.inputs else 0

    def add_record(self, record: bytes, line: int) -> None:
        self.inputs.append(record)
        self.lines.append(line)
        self.left -= len(record)

    def add_defective(self, raw: bytes | str, line: int, reason: str, byte_offset: int | None = None) -> None:
        """A record that cannot be an input is kept as text, so that nothing goes missing."""
        text = (
            raw[: 4 * UNREADABLE_RECORD_MAX_CHARS].decode(errors="replace")
            if isinstance(raw, bytes)
            else raw[:UNREADABLE_RECORD_MAX_CHARS]
        )
        text = text[:UNREADABLE_RECORD_MAX_CHARS].encode(errors="replace").decode().replace("\x00", "\ufffd")
        defect = InputDefect(line=line, code="invalid", reason=reason, value=text[:DEFECT_VALUE_MAX_CHARS])
        if byte_offset is not None:
            defect["byte_offset"] = byte_offset
        self.defects[len(self.inputs)] = defect
        self.add_record(msgspec.json.encode(text), line)

    def add_records(self, records: list[bytes], line: int) -> None:
        """Good records, each on a line of its own, from this one on."""
        self.inputs += records
        self.lines += range(line, line + len(records))
        self.left -= sum(map(len, records))


class BlockReader(ABC):
    """A source that adds to a draft what comes next. What goes wrong is said after what came before it was read."""

    columns: list[str] | None = None
    first_line = 1
    layout = FileLayout()

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._row = int(checkpoint.get("row", 0))
        self._error: InvalidInput | None = None

    def read(self, rows: int, size: int) -> InputBlock:
        if self._error is not None:
            raise self._error
        draft = BlockBuilder(rows, size)
        try:
            while draft.remaining_rows and self._read_into(draft):
                pass
        except InvalidInput as error:
            self._error = error
            if not draft.inputs:
                raise
        line = self._row + self.first_line
        self._row += len(draft.inputs)
        is_plain = draft.lines == list(range(line, line + len(draft.inputs)))
        checkpoint = {**self._get_checkpoint(), "row": self._row}
        return InputBlock(draft.inputs, checkpoint, draft.defects, None if is_plain else draft.lines)

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _read_into(self, draft: BlockBuilder) -> bool:
        """Add one record or as many as there is room for; False at the end."""

    @abstractmethod
    def _get_checkpoint(self) -> Checkpoint:
        """Where the next record begins."""


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """An input, encoded, or a defect; its line, and where the next one begins."""

    input: bytes
    line: int
    next_checkpoint: Checkpoint
    defect: InputDefect | None = None


class RecordReader(BlockReader):
    """For formats that give one record at a time."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self._now = checkpoint
        self._records = self._iter_records(checkpoint)

    @abstractmethod
    def _iter_records(self, checkpoint: Checkpoint) -> Iterator[EncodedRecord]: ...

    def _read_into(self, draft: BlockBuilder) -> bool:
        record = next(self._records, None)
        if record is None:
            return False
        if record.defect is not None:
            draft.defects[len(draft.inputs)] = record.defect
        draft.add_record(record.input, record.line)
        self._now = record.next_checkpoint
        return True

    def _get_checkpoint(self) -> Checkpoint:
        return self._now
