"""Parquet, of rows as COPY writes them: columns with their types, row groups of bounded size."""

import re
from typing import Any

from tidemill.connectors.encoders.parquet_types import arrow_type
from tidemill.connectors.encoders.records import Records
from tidemill.connectors.parquet import load_pyarrow
from tidemill.connectors.writers.output import Output
from tidemill.domain.errors import InvalidInput
from tidemill.domain.form import Form

BLOCK_BYTES = 256 << 10  # of CSV that are read at once
GROUP_BYTES = 2 << 20  # of CSV that become a row group: 16 MB took 30 MB more of memory, for no smaller file
_VALUE = re.compile(r"'(?P<value>.*)'", re.DOTALL)
_COLUMN = re.compile(r"In CSV column #(?P<number>[0-9]+): (?P<reason>.*)", re.DOTALL)
_MAX_SHOWN = 100


class ParquetEncoder:
    """A value that its column's type cannot hold stops it: InvalidInput names column and value."""

    cut_cells = 0

    def __init__(self, form: Form, output: Output) -> None:
        self._sink = _Sink(output)
        self._pa = pa = load_pyarrow()
        from pyarrow import csv, parquet  # noqa: PLC0415  an extra

        self._csv = csv
        self._columns = form.columns
        self._records = Records()
        self._read = {name: arrow_type(column, pa) for name, column in zip(self._numbers, form.columns, strict=True)}
        self._binary = [at for at, column in enumerate(form.columns) if column.type == "bytes"]
        names = [column.name for column in form.columns]
        types = [pa.binary() if at in self._binary else kind for at, kind in enumerate(self._read.values())]
        self._schema = pa.schema(list(zip(names, types, strict=True)))
        self._options = self._make_options()
        self._writer = parquet.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"), self._schema, compression="zstd", use_dictionary=False
        )
        self._block: list[bytes] = []
        self._block_bytes = self._group_bytes = 0
        self._group: list[Any] = []

    def write(self, chunk: bytes, /) -> None:
        if records := self._records.take(chunk):
            self._block.append(records)
            self._block_bytes += len(records)
            if self._block_bytes >= BLOCK_BYTES:
                self._end_block()

    def close(self) -> None:
        if rest := self._records.rest():
            self._block.append(rest)
        self._end_block()
        self._end_group()
        self._writer.close()
        self._sink.flush()

    def __del__(self) -> None:
        self._sink.is_deaf = True  # the library would write the end of a file that nobody wanted

    @property
    def _numbers(self) -> list[str]:
        """Names to read by: those of the columns need not be unique."""
        return [str(number) for number in range(len(self._columns))]

    def _make_options(self) -> dict[str, Any]:
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

    def _end_block(self) -> None:
        """Whole records become columns."""
        data = b"".join(self._block)
        self._block, self._block_bytes = [], 0
        if not data:
            return
        self._group.append(self._typed(data))
        self._group_bytes += len(data)
        if self._group_bytes >= GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if self._group:
            rows = self._pa.concat_tables(self._group)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._group, self._group_bytes = [], 0
            self._pa.default_memory_pool().release_unused()

    def _typed(self, data: bytes) -> Any:
        reading = self._csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._numbers)
        try:
            table = self._csv.read_csv(self._pa.py_buffer(data), reading, **self._options)
        except self._pa.ArrowInvalid as error:
            raise self._misfit(str(error)) from error
        for at in self._binary:
            table = table.set_column(at, str(at), _unhexed(table.column(at), self._pa))
        return table.rename_columns(self._schema.names)

    def _misfit(self, said: str) -> InvalidInput:
        found = _COLUMN.search(said)
        if found is None:
            return InvalidInput(f"the rows cannot be written as Parquet: {said}")
        at = int(found["number"])
        value = _VALUE.search(found["reason"])
        what = f"the value {value['value'][:_MAX_SHOWN]!r}" if value else "a value"
        return InvalidInput(
            f"column {self._columns[at].name!r} has {what}, which {self._schema.types[at]} of Parquet cannot hold"
        )


class _Sink:
    """What the library asks of a file. Closing is not its business."""

    closed = False

    def __init__(self, output: Output) -> None:
        self.is_deaf = False
        self._output = output

    def write(self, piece: Any, /) -> int:
        return len(piece) if self.is_deaf else self._output.write(bytes(piece))

    def flush(self) -> None:
        if not self.is_deaf:
            self._output.flush()

    def close(self) -> None: ...


def _unhexed(column: Any, pa: Any) -> Any:
    values = [None if text is None else bytes.fromhex(text.removeprefix("\\x")) for text in column.to_pylist()]
    return pa.chunked_array([values], pa.binary())
