"""Workbooks, of rows as COPY writes them."""

import csv
import io
from collections.abc import Iterable

from tidemill.connectors.encoders.cells import Cells
from tidemill.connectors.encoders.records import Records
from tidemill.connectors.writers.output import Output
from tidemill.connectors.writers.xlsx_sheets import Sheets
from tidemill.domain.errors import InvalidInput
from tidemill.domain.form import Form

SHEET = "Rows"
LONGEST_FIELD = 1 << 30  # PostgreSQL has none


class XlsxEncoder:
    """An empty field is an empty cell, quoted or not: a spreadsheet does not tell them apart."""

    def __init__(self, form: Form, output: Output) -> None:
        csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))
        names = [column.name for column in form.columns]
        self._records = Records()
        self._sheets = Sheets(output, names, SHEET)
        self._columns = [Cells(column, self._sheets.text) for column in form.columns]

    @property
    def cut_cells(self) -> int:
        return self._sheets.cut_cells

    def write(self, chunk: bytes, /) -> None:
        if records := self._records.take(chunk):
            self._sheets.write(self._rows(records))

    def close(self) -> None:
        if rest := self._records.rest():
            self._sheets.write(self._rows(rest))
        self._sheets.close()

    def _rows(self, records: bytes) -> Iterable[tuple[str, ...]]:
        # Line feeds alone end a line here, as they do in COPY; other line ends stand in quotes.
        lines = io.StringIO(records.decode(), newline="\n")
        rows = [fields or [""] for fields in csv.reader(lines, strict=True)]  # an only column that is NULL: no fields
        if {*map(len, rows)} != {len(self._columns)}:
            raise InvalidInput(f"the rows have not {len(self._columns)} fields each, as there are columns")
        columns = zip(*rows, strict=True)
        made = [cells.of(values) for cells, values in zip(self._columns, columns, strict=True)]
        return zip(*made, strict=True)
