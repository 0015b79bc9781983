"""Reads the table of a local file without a database: its layout, its columns, its rows and its defects."""

import csv
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import DetectedLayout, FileLayout
from tidemill.core.input_source import InputBlock, InputDefect, resolve_line_number
from tidemill.files.formats.block_reader import BlockReader
from tidemill.files.layout_detection import inspect_layout
from tidemill.files.source_opener import make_csv_dialect, open_block_reader

INSPECTED_ROW_MAX_BYTES = 4 << 20
INSPECTED_FILE_MAX_BYTES = 10 << 30  # decompressed
DEFECTS_KEPT_MAX = 100
BLOCK_ROWS, BLOCK_BYTES = 5_000, 2 << 20
_CSV_FORMATS = ("csv", "tsv")
_decode_json = msgspec.json.Decoder().decode
_encode_text = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class InspectedRow:
    """A row: its cells, and the defect if it does not fit the columns. Such a row has the cells of its line."""

    cells: list[str]
    line: int
    defect: InputDefect | None = None


@dataclass(slots=True)
class TableInspection:
    """The table of a file. ``row_count`` is the number of rows that were read."""

    detected: DetectedLayout
    columns: list[str] = field(default_factory=list)
    rows: list[InspectedRow] = field(default_factory=list)
    defects: list[InputDefect] = field(default_factory=list)
    row_count: int = 0
    defect_count: int = 0
    is_complete: bool = True

    @property
    def layout(self) -> FileLayout:
        return self.detected.layout

    @property
    def has_header(self) -> bool:
        return self.layout.header is not False

    def count_row(self, row: InspectedRow) -> None:
        self.row_count += 1
        if row.defect is not None:
            self.defect_count += 1
            if len(self.defects) < DEFECTS_KEPT_MAX:
                self.defects.append(row.defect)

    def to_json(self) -> dict[str, Any]:
        return {
            "layout": self.layout.to_json(),
            "findings": [each.to_json() for each in self.detected.findings],
            "columns": self.columns,
            "rows": [row.cells for row in self.rows],
            "row_count": self.row_count,
            "is_complete": self.is_complete,
            "defects": self.defects,
            "defect_count": self.defect_count,
        }


def inspect_table(path: Path, options: Mapping[str, object], rows: int) -> TableInspection:
    """Return the layout and the first rows of a file.

    Raises:
        InvalidInput: The file cannot be read as a table.
    """
    with _open(path) as file:
        found = _start_inspection(file, path, options)
        if found.columns:
            with closing(_open_reader(file, found.layout)) as reader:
                iterator = _iter_rows(reader, found)
                for row in islice(iterator, rows):
                    found.count_row(row)
                    found.rows.append(row)
                found.is_complete = next(iterator, None) is None
        return found


def convert_table(path: Path, options: Mapping[str, object], target: Path) -> TableInspection:
    """Write the table of a file as CSV: UTF-8, with line feeds, and with a header if the file has one.

    A row with a defect is written with the cells that its line has. Returns the inspection without rows.

    Raises:
        InvalidInput: The file cannot be read as a table, or the target cannot be written.
    """
    if target.exists() and target.samefile(path):
        raise InvalidInput(f'Cannot write "{target}": it is the file itself. Choose another folder.')
    with _open(path) as file:
        found = _start_inspection(file, path, options)
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            with temporary.open("w", encoding="utf-8", newline="") as out:
                _encode_rows_to_upload_sync(file, found, csv.writer(out, lineterminator="\n"))
            temporary.replace(target)
        except OSError as error:
            raise InvalidInput(f'Cannot write "{target}": {error.strerror or error}') from error
        finally:
            temporary.unlink(missing_ok=True)
        return found


def _encode_rows_to_upload_sync(file: BinaryIO, found: TableInspection, writer: Any) -> None:
    if not found.columns:
        return
    if found.has_header:
        writer.writerow(found.columns)
    with closing(_open_reader(file, found.layout)) as reader:
        for row in _iter_rows(reader, found):
            found.count_row(row)
            writer.writerow(row.cells)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"Cannot read the file: {error.strerror or error}") from error


def _start_inspection(file: BinaryIO, path: Path, options: Mapping[str, object]) -> TableInspection:
    """Return the layout and the columns. A file without bytes has none."""
    if not file.read(1):
        return TableInspection(DetectedLayout(FileLayout()))
    found = TableInspection(inspect_layout(file, name=path.name, options=options))
    if found.layout.format == "images":
        raise InvalidInput("The file contains images and no table")
    reader = _open_reader(file, found.layout)
    if found.layout.format == "xlsx":  # its reader detects the header
        found.detected = DetectedLayout(reader.layout, found.detected.findings + reader.findings)
    found.columns = list(reader.columns) if reader.columns is not None else _list_keys(reader)
    return found


def _open_reader(file: BinaryIO, layout: FileLayout) -> BlockReader:
    file.seek(0)
    return open_block_reader(
        cast("BinaryIO", _KeptOpen(file)),
        layout,
        {},
        max_row_bytes=INSPECTED_ROW_MAX_BYTES,
        max_bytes=INSPECTED_FILE_MAX_BYTES,
    )


class _KeptOpen:
    """A file that stays open when its reader is closed, as it is read twice."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        """Keep the file open."""


def _iter_blocks(reader: BlockReader) -> Iterator[InputBlock]:
    while (block := reader.read(BLOCK_ROWS, BLOCK_BYTES)).inputs:
        yield block


def _iter_rows(reader: BlockReader, found: TableInspection) -> Iterator[InspectedRow]:
    columns, number = found.columns, 0
    dialect = make_csv_dialect(found.layout) if found.layout.format in _CSV_FORMATS else None
    for block in _iter_blocks(reader):
        for at, data in enumerate(block.inputs):
            number += 1
            line = resolve_line_number(number, block.lines[at] if block.lines else None, reader.first_line)
            record, defect = _decode_json(data), block.defects.get(at)
            if defect is None and isinstance(record, dict):
                cells = [_format_cell(record.get(name)) for name in columns]
            elif dialect is not None and isinstance(record, str):
                cells = dialect.read_leniently(record, len(columns))
            else:
                cells = [_format_cell(record)]
            yield InspectedRow(cells, line, defect)


def _list_keys(reader: BlockReader) -> list[str]:
    """Return the keys of all objects, in order of first occurrence."""
    names: dict[str, None] = {}
    for block in _iter_blocks(reader):
        for at, data in enumerate(block.inputs):
            record = None if at in block.defects else _decode_json(data)
            names |= dict.fromkeys(record if isinstance(record, dict) else ["value"])
    return list(names)


def _format_cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _encode_text(value).decode()
