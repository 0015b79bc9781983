"""Base classes of readers, which collect the rows of a file in blocks and report invalid rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout, LayoutFinding
from tidemill.core.input_source import Checkpoint, InputBlock, InputDefect

DEFECT_VALUE_MAX_CHARS = 200  # characters of an invalid value in an error
UNREADABLE_RECORD_MAX_CHARS = 64 * 1024  # characters of an unreadable row that are stored


class BlockBuilder:
    """Collects the rows of a block."""

    def __init__(self, rows: int, size: int) -> None:
        self.inputs: list[bytes] = []
        self.defects: dict[int, InputDefect] = {}
        self.lines: list[int] = []
        self.left = size  # bytes
        self._rows = rows

    @property
    def remaining_rows(self) -> int:
        """The number of rows that the block has room for."""
        return self._rows - len(self.inputs) if self.left > 0 or not self.inputs else 0

    def add_record(self, record: bytes, line: int) -> None:
        self.inputs.append(record)
        self.lines.append(line)
        self.left -= len(record)

    def add_defective(self, raw: bytes | str, line: int, reason: str, byte_offset: int | None = None) -> None:
        """Add a row that is not a valid input. It is stored as text, so that no row is lost."""
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

    def add_single_line_records(self, records: list[bytes], line: int) -> None:
        """Add valid rows, one per line, beginning at ``line``."""
        self.inputs += records
        self.lines += range(line, line + len(records))
        self.left -= sum(map(len, records))


class BlockReader(ABC):
    """An input source that reads blocks. An error in the file is raised after the rows before it are returned."""

    columns: list[str] | None = None
    first_line = 1
    layout = FileLayout()
    findings: tuple[LayoutFinding, ...] = ()  # of the options that the reader detects itself
    sample: Callable[[], list[bytes]] = staticmethod(list)  # set by the opener, which can read other parts of the file

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

    def read_sample(self) -> list[bytes]:
        return self.sample()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _read_into(self, draft: BlockBuilder) -> bool:
        """Add one or more rows; return False at the end."""

    @abstractmethod
    def _get_checkpoint(self) -> Checkpoint:
        """Return where the next row begins."""


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """An encoded row with its line, the checkpoint after it and, for an invalid row, the defect."""

    input: bytes
    line: int
    next_checkpoint: Checkpoint
    defect: InputDefect | None = None


class RecordReader(BlockReader):
    """Base class for formats that are read one row at a time."""

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
