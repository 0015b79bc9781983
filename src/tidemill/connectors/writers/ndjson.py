"""Newline-delimited JSON: one object a row, with values as they are."""

from collections.abc import Iterable

import msgspec

from tidemill.connectors.writers.output import Output
from tidemill.domain.columns import Columns, Row, record

_encode = msgspec.json.Encoder().encode


class NdjsonWriter:
    """Into an output. There is no header: every object has every column."""

    cut_cells = 0

    def __init__(self, output: Output, columns: Columns) -> None:
        self._output = output
        self._columns = columns

    def write(self, rows: Iterable[Row]) -> None:
        lines = [_encode(record(self._columns, row)) + b"\n" for row in rows]
        self._output.write(b"".join(lines))

    def close(self) -> None:
        self._output.write(b"")
