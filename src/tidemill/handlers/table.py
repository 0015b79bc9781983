"""Stored rows on their way into a file: decoded, with their status, in the order they come."""

from collections.abc import Iterable, Iterator

from tidemill.connectors.writers import Output, open_writer
from tidemill.domain.columns import Columns, Row
from tidemill.domain.export import ExportRequest
from tidemill.domain.standing import Standing
from tidemill.domain.status import ItemStatus
from tidemill.store.json import decode, decode_input
from tidemill.store.results import Stored


class Table:
    """One export's file while it grows. Blocking: lives in a thread."""

    def __init__(self, output: Output, request: ExportRequest, columns: Columns, standing: Standing) -> None:
        self.rows = 0
        self._output = output
        self._request = request
        self._columns = columns
        self._standing = standing
        self._writer = open_writer(request.format, output, columns, spreadsheet_safe=request.spreadsheet_safe)

    @property
    def cut_cells(self) -> int:
        return self._writer.cut_cells

    def add(self, stored: Iterable[Stored]) -> None:
        self._writer.write(self._rows(stored))

    def close(self) -> None:
        self._writer.close()

    def _rows(self, stored: Iterable[Stored]) -> Iterator[Row]:
        wanted, chosen = self._request.statuses, self._request.rows
        of_input = self._columns.of == "input"
        for seq, said, result, error, value in stored:
            status = self._standing.status(seq, said)
            if (wanted and status not in wanted) or not chosen.has(seq):
                continue
            told = decode(error) if error else None
            if chosen.codes is not None and (
                status != ItemStatus.FAILED or (told or {}).get("code") not in chosen.codes
            ):
                continue
            self.rows += 1
            yield {
                "seq": seq,
                "status": status,
                "result": decode(result) if result and not of_input else None,
                "error": told,
                "input": decode_input(value) if value else None,
            }
