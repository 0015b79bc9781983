"""Rows into a file of some format, piece by piece."""

from collections.abc import Iterable
from typing import Protocol

from tidemill.connectors.writers.csv import CsvWriter
from tidemill.connectors.writers.ndjson import NdjsonWriter
from tidemill.connectors.writers.output import Output
from tidemill.connectors.writers.xlsx import XlsxWriter
from tidemill.domain.columns import Columns, Row
from tidemill.domain.export import Format

__all__ = ["Output", "Writer", "open_writer"]


class Writer(Protocol):
    """Blocking. ``cut_cells`` counts what the format has no room for."""

    @property
    def cut_cells(self) -> int: ...
    def write(self, rows: Iterable[Row]) -> None: ...
    def close(self) -> None: ...


def open_writer(format_: Format, output: Output, columns: Columns, *, spreadsheet_safe: bool = False) -> Writer:
    """With ``spreadsheet_safe``, text that a spreadsheet could read as a formula begins with an apostrophe."""
    match format_:
        case Format.CSV:
            return CsvWriter(output, columns, spreadsheet_safe=spreadsheet_safe)
        case Format.XLSX:
            return XlsxWriter(output, columns, spreadsheet_safe=spreadsheet_safe)
        case Format.NDJSON:
            return NdjsonWriter(output, columns)
