"""The rows of a job as an Excel workbook, with numbers to their last digit."""

from collections.abc import Iterable

from tidemill.connectors.writers.output import Output, defused
from tidemill.connectors.writers.xlsx_parts import EMPTY, boolean, number
from tidemill.connectors.writers.xlsx_sheets import Sheets
from tidemill.domain.columns import Cell, Columns, Row, cells

SHEET = "Results"


class XlsxWriter:
    """Into an output that cannot seek."""

    def __init__(self, output: Output, columns: Columns, *, spreadsheet_safe: bool = False) -> None:
        self._columns = columns
        self._safe = spreadsheet_safe
        header = defused(columns.header) if spreadsheet_safe else columns.header
        self._sheets = Sheets(output, map(str, header), SHEET)

    @property
    def cut_cells(self) -> int:
        return self._sheets.cut_cells

    def write(self, rows: Iterable[Row]) -> None:
        self._sheets.write(map(self._row, rows))

    def close(self) -> None:
        self._sheets.close()

    def _row(self, row: Row) -> tuple[str, ...]:
        line = cells(self._columns, row)
        return tuple(map(self._cell, defused(line) if self._safe else line))

    def _cell(self, cell: Cell) -> str:
        if isinstance(cell, str):
            return self._sheets.text(cell)
        if cell is None:
            return EMPTY
        return boolean(cell) if isinstance(cell, bool) else number(repr(cell))
