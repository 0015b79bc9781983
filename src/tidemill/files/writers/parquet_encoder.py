"""Encodes the output of COPY as Parquet, with typed columns and row groups of bounded size."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import OutputColumn, OutputFileSpec
from tidemill.core.result_grid import CellType, CellTypes, GridCell, GridRow, ResultFileColumns, format_cell_as_text
from tidemill.files.formats.parquet_reader import load_pyarrow
from tidemill.files.writers.byte_output import ByteOutput
from tidemill.files.writers.copy_encoders import CsvRecordSplitter

DECIMAL128_PRECISION_MAX = 38  # digits of a 128-bit decimal
_match_numeric = re.compile(r"numeric\((?P<precision>[0-9]+)(?:,(?P<scale>-?[0-9]+))?\)").fullmatch


def choose_arrow_type(column: OutputColumn, pa: Any) -> Any:
    """Return the type for the text of COPY; string if no type fits every value. Bytes are read as text."""
    match column.type:
        case "integer":
            return {"smallint": pa.int16(), "integer": pa.int32()}.get(column.sql_type, pa.int64())
        case "number":
            return _choose_number_type(column.sql_type, pa)
        case "boolean":
            return pa.bool_()
        case "date":
            return pa.date32()
        case "timestamp":
            return pa.timestamp("us", None if "without time zone" in column.sql_type else "UTC")
        case _:
            return pa.string()


def _choose_number_type(sql_type: str, pa: Any) -> Any:
    """Return the type of a number; string for numeric without a precision, which is unlimited."""
    if sql_type in ("real", "double precision"):
        return pa.float64()
    match = _match_numeric(sql_type)
    if match is None or int(match["precision"]) > DECIMAL128_PRECISION_MAX:
        return pa.string()
    precision, scale = int(match["precision"]), int(match["scale"] or 0)
    return pa.decimal128(precision, scale) if 0 <= scale <= precision else pa.string()


PARQUET_CSV_BLOCK_BYTES = 256 << 10  # of CSV that is parsed at once
PARQUET_ROW_GROUP_BYTES = 2 << 20  # of CSV per row group; 16 MB needed 30 MB more memory and the file was not smaller
_ARROW_ERROR_VALUE = re.compile(r"'(?P<value>.*)'", re.DOTALL)
_ARROW_ERROR_COLUMN = re.compile(r"In CSV column #(?P<number>[0-9]+): (?P<reason>.*)", re.DOTALL)
_ARROW_ERROR_VALUE_MAX_CHARS = 100


class ParquetEncoder:
    """Encodes Parquet. Raises InvalidInput with the column and the value if a type cannot store a value."""

    cut_cells = 0

    def __init__(self, form: OutputFileSpec, output: ByteOutput) -> None:
        self._pa = pa = load_pyarrow()
        from pyarrow import csv  # noqa: PLC0415  an extra

        self._csv = csv
        self._columns = form.columns
        self._records = CsvRecordSplitter()
        self._read = {
            name: choose_arrow_type(column, pa)
            for name, column in zip(self._temporary_column_names, form.columns, strict=True)
        }
        self._binary = [at for at, column in enumerate(form.columns) if column.type == "bytes"]
        names = [column.name for column in form.columns]
        types = [pa.binary() if at in self._binary else kind for at, kind in enumerate(self._read.values())]
        self._schema = pa.schema(list(zip(names, types, strict=True)))
        self._options = self._make_csv_options()
        self._file = _RowGroupWriter(output, self._schema)
        self._block: list[bytes] = []
        self._block_bytes = 0

    def write(self, chunk: bytes, /) -> None:
        if records := self._records.extract_complete_records(chunk):
            self._block.append(records)
            self._block_bytes += len(records)
            if self._block_bytes >= PARQUET_CSV_BLOCK_BYTES:
                self._parse_block_and_add_to_group()

    def close(self) -> None:
        if rest := self._records.extract_last_record():
            self._block.append(rest)
        self._parse_block_and_add_to_group()
        self._file.close()

    @property
    def _temporary_column_names(self) -> list[str]:
        """Temporary names for parsing, because column names may not be unique."""
        return [str(number) for number in range(len(self._columns))]

    def _make_csv_options(self) -> dict[str, Any]:
        csv = self._csv
        convert = csv.ConvertOptions(
            column_types=self._read,
            null_values=[""],
            true_values=["t", "true"],
            false_values=["f", "false"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return {
            "parse_options": csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            "convert_options": convert,
        }

    def _parse_block_and_add_to_group(self) -> None:
        """Convert the buffered records to columns."""
        data = b"".join(self._block)
        self._block, self._block_bytes = [], 0
        if not data:
            return
        self._file.add(self._parse_csv_block(data), len(data))

    def _parse_csv_block(self, data: bytes) -> Any:
        reading = self._csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=self._temporary_column_names
        )
        try:
            table = self._csv.read_csv(self._pa.py_buffer(data), reading, **self._options)
        except self._pa.ArrowInvalid as error:
            raise self._translate_arrow_error(str(error)) from error
        for at in self._binary:
            table = table.set_column(at, str(at), _decode_hex_column(table.column(at), self._pa))
        return table.rename_columns(self._schema.names)

    def _translate_arrow_error(self, arrow_error: str) -> InvalidInput:
        match = _ARROW_ERROR_COLUMN.search(arrow_error)
        if match is None:
            return InvalidInput(f"Cannot write the rows as Parquet: {arrow_error}")
        at = int(match["number"])
        value = _ARROW_ERROR_VALUE.search(match["reason"])
        what = f"the value {value['value'][:_ARROW_ERROR_VALUE_MAX_CHARS]!r}" if value else "a value"
        return InvalidInput(
            f"Column {self._columns[at].name!r} has {what}, which Parquet type {self._schema.types[at]} cannot store"
        )


_ARROW_TYPE_NAMES: dict[CellType, str] = {
    "text": "string",
    "integer": "int64",
    "number": "float64",
    "boolean": "bool_",
}


class ParquetRowWriter:
    """Writes result rows as Parquet, with the types that all cells of a column have."""

    cut_cells = 0

    def __init__(self, output: ByteOutput, columns: ResultFileColumns, types: CellTypes) -> None:
        self._pa = pa = load_pyarrow()
        self._columns = columns
        self._types = types.list_types()
        arrow_types = [getattr(pa, _ARROW_TYPE_NAMES[type_])() for type_ in self._types]
        self._schema = pa.schema(list(zip(columns.header, arrow_types, strict=True)))
        self._file = _RowGroupWriter(output, self._schema)

    def write(self, rows: Iterable[GridRow]) -> None:
        cells = [self._columns.build_cells(row) for row in rows]
        if cells:
            arrays = [
                self._pa.array(_convert_cells(column, type_), field.type)
                for column, type_, field in zip(zip(*cells, strict=True), self._types, self._schema, strict=True)
            ]
            table = self._pa.Table.from_arrays(arrays, schema=self._schema)
            self._file.add(table, table.nbytes)

    def close(self) -> None:
        self._file.close()


def _convert_cells(cells: Sequence[GridCell], type_: CellType) -> Sequence[GridCell]:
    if type_ != "text":
        return cells
    return [format_cell_as_text(cell) if cell is not None and type(cell) is not str else cell for cell in cells]


class _RowGroupWriter:
    """Writes tables to a Parquet file, in row groups of bounded size."""

    def __init__(self, output: ByteOutput, schema: Any) -> None:
        self._pa = pa = load_pyarrow()
        from pyarrow import parquet  # noqa: PLC0415  an extra

        self._sink = _ArrowSink(output)
        self._writer = parquet.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"), schema, compression="zstd", use_dictionary=False
        )
        self._group: list[Any] = []
        self._group_bytes = 0

    def add(self, table: Any, size: int) -> None:
        self._group.append(table)
        self._group_bytes += size
        if self._group_bytes >= PARQUET_ROW_GROUP_BYTES:
            self._write_row_group()

    def close(self) -> None:
        self._write_row_group()
        self._writer.close()
        self._sink.flush()

    def __del__(self) -> None:
        self._sink.is_deaf = True  # pyarrow would write the footer of an abandoned file

    def _write_row_group(self) -> None:
        if self._group:
            rows = self._pa.concat_tables(self._group)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._group, self._group_bytes = [], 0
            self._pa.default_memory_pool().release_unused()


class _ArrowSink:
    """The file interface that pyarrow needs. ``close`` does nothing."""

    closed = False

    def __init__(self, output: ByteOutput) -> None:
        self.is_deaf = False
        self._output = output

    def write(self, piece: Any, /) -> int:
        return len(piece) if self.is_deaf else self._output.write(bytes(piece))

    def flush(self) -> None:
        if not self.is_deaf:
            self._output.flush()

    def close(self) -> None: ...


def _decode_hex_column(column: Any, pa: Any) -> Any:
    values = [None if text is None else bytes.fromhex(text.removeprefix("\\x")) for text in column.to_pylist()]
    return pa.chunked_array([values], pa.binary())
