"""Workbooks, of rows as COPY writes them."""

import csv
import io
from collections.abc import Iterator

from tidemill.connectors.encoders.cells import Cell, to_cell
from tidemill.connectors.encoders.records import Records
from tidemill.connectors.writers.output import Output, defused
from tidemill.connectors.writers.xlsx import Sheets
from tidemill.domain.errors import InvalidInput
from tidemill.domain.form import Form

SHEET = "Rows"
LONGEST_FIELD = 1 << 30  # PostgreSQL has none


class XlsxEncoder:
    """An empty field is an empty cell, quoted or not: a spreadsheet does not tell them apart."""

    def __init__(self, form: Form, output: Output) -> None:
        csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))
        names = [column.name for column in form.columns]
        header = defused(names) if form.spreadsheet_safe else names
        self._records = Records()
        self._sheets = Sheets(output, header, SHEET)
        self._to_cells = [to_cell(column, spreadsheet_safe=form.spreadsheet_safe) for column in form.columns]

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

    def _rows(self, records: bytes) -> Iterator[list[Cell]]:
        # Line feeds alone end a line here, as they do in COPY; other line ends stand in quotes.
        for fields in csv.reader(io.StringIO(records.decode(), newline="\n"), strict=True):
            row = fields or [""]  # the one column of a table can be NULL: an empty line
            if len(row) != len(self._to_cells):
                raise InvalidInput(f"a row has {len(row)} fields, and there are {len(self._to_cells)} columns")
            yield [make(field) if field else None for make, field in zip(self._to_cells, row, strict=True)]
