"""Requests for a file with the results of a job, the queries that read them, and the writer of the file."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NotRequired, Self, TypedDict, cast
from uuid import UUID

import psycopg
from psycopg.rows import class_row, dict_row

from tidemill.core import file_format
from tidemill.core.errors import InvalidInput, UnknownJob
from tidemill.core.file_format import ResultFileFormat
from tidemill.core.json_input import JsonObject
from tidemill.core.outcome import ErrorDetails
from tidemill.core.result_grid import GridColumns, GridRow
from tidemill.core.row_ranges import RowSelection
from tidemill.core.status import ItemStatus, ItemStatusResolver, parse_item_status
from tidemill.files.writers import open_row_writer
from tidemill.files.writers.byte_output import ByteOutput
from tidemill.store.database import Connection, Database
from tidemill.store.item_selection import ItemSelection, find_selected_seqs
from tidemill.store.job_records import read_item_list_scope
from tidemill.store.jsonb import decode_input_or_text, decode_json
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, make_sql_loader

sql = make_sql_loader("tidemill.exports")

RESULT_WINDOW_ITEMS = 5_000  # items that one statement reads
RESULT_PACKET_ROWS, RESULT_PACKET_BYTES = 1_000, 1 << 20
# Number of rows that libpq returns at once.
RESULT_STREAM_ROWS = 16 if psycopg.capabilities.has_stream_chunked() else 1
ALL_ROWS = RowSelection()

StoredResult = tuple[int, str | None, str | None, str | None, str | None]  # seq, status, result, error, input


@dataclass(frozen=True, slots=True)
class ExportedJob:
    """A job in the snapshot of an export: its size, its columns and the statuses of its unsettled items."""

    job_id: UUID
    key: str
    purged: bool
    total: int
    columns: GridColumns
    item_statuses: ItemStatusResolver


@asynccontextmanager
async def open_snapshot(db: Database) -> AsyncIterator[Connection]:
    """Open a read-only transaction with one snapshot and no statement timeout. It does not block writers."""
    async with db.transaction(statement_timeout_s=0) as conn:
        await conn.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", prepare=False)
        yield conn


async def read_exported_job(conn: Connection, job_id: UUID) -> ExportedJob | None:
    """Return the job, or None if it was deleted."""
    job = {"job_id": job_id}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/survey"), job)
        row = await cursor.fetchone()
    if row is None:
        return None
    ranges = await (await conn.execute(sql("batch/live_ranges"), job)).fetchall()
    lists = await (await conn.execute(sql("batch/leased_lists"), job)).fetchall()
    leased_seqs = frozenset(seq for (seqs,) in lists for seq in seqs)
    statuses = ItemStatusResolver(ranges, leased_seqs, row["sparse"])
    columns = (await read_item_list_scope(conn, job_id)).columns
    return ExportedJob(job_id, row["key"], row["purged"], row["total"], columns, statuses)


async def stream_results(
    conn: Connection, survey: ExportedJob, only: RowSelection = ALL_ROWS
) -> AsyncGenerator[list[StoredResult]]:
    """Yield the items in order of seq, in packets of bounded size; only one packet is in memory.

    With ``only``, skip windows without a selected item, and items that are not selected. In a job with result columns,
    an item without an outcome has an empty row.
    """
    statement = sql("item/walk" if survey.columns.value_key == "input" else "outcome/walk")
    packet: list[StoredResult] = []
    size = seq = 0
    for lo in range(0, survey.total, RESULT_WINDOW_ITEMS):
        hi = min(lo + RESULT_WINDOW_ITEMS, survey.total)
        wanted = await _select_window_seqs(conn, survey.job_id, only, lo, hi)
        if wanted is not None and not wanted:
            seq = hi
            continue
        async with aclosing(_stream_rows(conn, statement, {"job_id": survey.job_id, "lo": lo, "hi": hi})) as rows:
            async for row in rows:
                packet += [
                    _make_row_without_outcome(gap) for gap in range(seq, row[0]) if wanted is None or gap in wanted
                ]
                seq = row[0] + 1
                if wanted is not None and row[0] not in wanted:
                    continue
                packet.append(row)
                size += sum(len(text) for text in row[2:] if text)
                if size >= RESULT_PACKET_BYTES or len(packet) >= RESULT_PACKET_ROWS:
                    yield packet
                    packet, size = [], 0
        packet += [_make_row_without_outcome(gap) for gap in range(seq, hi) if wanted is None or gap in wanted]
        seq = hi
    yield packet


async def _select_window_seqs(conn: Connection, job_id: UUID, only: RowSelection, lo: int, hi: int) -> set[int] | None:
    """Return the selected items of a window; None means all."""
    if only.seqs is None and only.key is None:
        return None
    selection = ItemSelection(seqs=only.seqs, key=only.key, ranges=only.ranges)
    return set(await find_selected_seqs(conn, job_id, lo, hi, selection))


def _stream_rows(conn: Connection, statement: bytes, params: SqlParams) -> AsyncGenerator[StoredResult]:
    return cast("AsyncGenerator[StoredResult]", conn.cursor().stream(statement, params, size=RESULT_STREAM_ROWS))


def _make_row_without_outcome(seq: int) -> StoredResult:
    return seq, None, None, None, None


RESULT_CONTENT_TYPES = {
    format_: file_format.FORMAT_CONTENT_TYPES[file_format.FileFormat(format_)] for format_ in ResultFileFormat
}


@dataclass(frozen=True, slots=True)
class ResultExportRequest:
    """The rows of a job to export, and the format. ``spreadsheet_safe`` prevents text from running as a formula."""

    job_id: UUID
    format: ResultFileFormat
    statuses: tuple[ItemStatus, ...] = ()
    spreadsheet_safe: bool = False
    rows: RowSelection = field(default_factory=RowSelection)

    @classmethod
    def create(
        cls,
        job_id: UUID,
        format_: str,
        statuses: Iterable[str] = (),
        *,
        spreadsheet_safe: bool = False,
        rows: RowSelection | None = None,
    ) -> Self:
        """Return a validated request; InvalidInput for an unknown format or status. No statuses means all."""
        if format_ not in ResultFileFormat.__members__.values():
            raise InvalidInput(f'Unknown format "{format_}". Use one of {", ".join(ResultFileFormat)}.')
        try:
            parsed_statuses = {parse_item_status(name) for name in statuses}
        except ValueError as error:
            raise InvalidInput(f"Invalid statuses: {error}") from error
        return cls(
            job_id, ResultFileFormat(format_), tuple(sorted(parsed_statuses)), spreadsheet_safe, rows or RowSelection()
        )

    @classmethod
    def from_item_input(cls, value: Mapping[str, Any]) -> Self:
        """Parse the input of an export's item."""
        safe, rows = value["spreadsheet_safe"], RowSelection.from_json(value.get("rows", {}))
        return cls.create(UUID(value["job_id"]), value["format"], value["statuses"], spreadsheet_safe=safe, rows=rows)

    def to_item_input(self) -> dict[str, object]:
        """Return the input of the export's item."""
        request: dict[str, object] = {"job_id": str(self.job_id), "format": self.format}
        request |= {"statuses": list(self.statuses), "spreadsheet_safe": self.spreadsheet_safe}
        return request | ({"rows": self.rows.to_json()} if self.rows.to_json() else {})

    def build_file_name(self, job_key: str) -> str:
        chosen = ("selected",) if self.rows.to_json() else ()
        return "-".join((job_key, *self.statuses, *chosen)) + f".{self.format}"


class ResultFileWriter:
    """Writes stored results to a file. The methods block, so call them in a thread."""

    def __init__(
        self,
        output: ByteOutput,
        request: ResultExportRequest,
        columns: GridColumns,
        status_resolver: ItemStatusResolver,
    ) -> None:
        self.rows = 0
        self._output = output
        self._request = request
        self._columns = columns
        self._status_resolver = status_resolver
        self._writer = open_row_writer(request.format, output, columns, spreadsheet_safe=request.spreadsheet_safe)

    @property
    def cut_cells(self) -> int:
        return self._writer.cut_cells

    def write_results(self, stored: Iterable[StoredResult]) -> None:
        self._writer.write(self._select_rows(stored))

    def close(self) -> None:
        self._writer.close()

    def _select_rows(self, stored: Iterable[StoredResult]) -> Iterator[GridRow]:
        statuses, selection = self._request.statuses, self._request.rows
        shows_input = self._columns.value_key == "input"
        for seq, stored_status, result, stored_error, value in stored:
            status = self._status_resolver.resolve(seq, stored_status)
            if (statuses and status not in statuses) or not selection.includes(seq):
                continue
            error = decode_json(stored_error) if stored_error else None
            if selection.codes is not None and (
                status != ItemStatus.FAILED or (error or {}).get("code") not in selection.codes
            ):
                continue
            self.rows += 1
            yield {
                "seq": seq,
                "status": status,
                "result": decode_json(result) if result and not shows_input else None,
                "error": error,
                "input": decode_input_or_text(value) if value else None,
            }


class ExportedFile(TypedDict):
    """The result of an export: a description of its file."""

    name: str
    format: str
    rows: int
    cut_cells: int
    size: int
    sha256: str
    file_id: str
    spreadsheet_safe: bool
    expires_at: str
    compression: NotRequired[str]  # only for tables


def is_table_export_input(value: Mapping[str, Any]) -> bool:
    """Return whether the input belongs to a table export, whose request is in the params of the job."""
    return "resource" in value


async def is_export_file_needed(conn: Connection, export_id: UUID) -> bool:
    """Return whether an export still needs its file: it is not deleted, not cancelled and not finished."""
    cursor = await conn.execute(sql("job/is_wanted"), {"export_id": export_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """The request of an export, and its result or error if it has one."""

    id: UUID
    idem_key: str | None
    input: JsonObject | None
    result: ExportedFile | None
    error: ErrorDetails | None


async def read_export_records_by_id(conn: Connection, export_ids: Sequence[UUID]) -> dict[UUID, ExportRecord]:
    async with conn.cursor(row_factory=class_row(ExportRecord)) as cursor:
        await cursor.execute(sql("job/exports"), {"ids": list(export_ids)})
        return {record.id: record for record in await cursor.fetchall()}


async def read_results_version(conn: Connection, job_id: UUID) -> RowDict:
    """Return the columns of a job that change whenever its results do; raise UnknownJob if the job does not exist."""
    rows = await fetch_rows(conn, sql("job/results_state"), {"job_id": job_id})
    if not rows:
        raise UnknownJob(f'Unknown job "{job_id}"')
    return rows[0]


async def is_result_export_file_needed(conn: Connection, job_id: UUID, export_id: UUID) -> bool:
    """Return whether an export still needs its file and the job with the results still exists."""
    cursor = await conn.execute(sql("job/is_exportable"), {"job_id": job_id, "export_id": export_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
