"""Requests for a file with the results of a job, its columns, the queries that read them, and its writer."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NotRequired, Self, TypedDict, cast
from uuid import UUID

import psycopg
from psycopg.rows import class_row, dict_row

from tidemill.core.errors import InvalidInput, UnknownJob
from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec
from tidemill.core.json_input import JsonObject
from tidemill.core.outcome import ErrorDetails
from tidemill.core.result_grid import (
    ALL_COLUMNS,
    ALL_INPUT_COLUMNS,
    ALL_RESULT_COLUMNS,
    GRID_COLUMNS_MAX,
    INPUT_COLUMN,
    INPUT_COLUMNS_MAX,
    CellTypes,
    GridRow,
    KnownFields,
    ResultFileColumns,
    list_nested_fields,
    resolve_result_file_columns,
)
from tidemill.core.row_ranges import RowSelection
from tidemill.core.status import ItemStatus, ItemStatusResolver, parse_item_status
from tidemill.files.writers import RowWriter, open_row_writer
from tidemill.files.writers.byte_output import ByteOutput
from tidemill.store.database import Connection, Database
from tidemill.store.item_selection import ItemSelection, find_selected_seqs
from tidemill.store.jsonb import decode_input_or_text, decode_json
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, make_sql_loader

sql = make_sql_loader("tidemill.exports")

RESULT_WINDOW_ITEMS = 5_000  # items that one statement reads
RESULT_PACKET_ROWS, RESULT_PACKET_BYTES = 1_000, 1 << 20
# Number of rows that libpq returns at once.
RESULT_STREAM_ROWS = 16 if psycopg.capabilities.has_stream_chunked() else 1
ALL_ROWS = RowSelection()

SAMPLE_ITEMS = 100  # items whose inputs show the columns of a job without a scan
WANTED_COLUMNS_MAX = 2_000
FIXED_COLUMN_FORMATS = ("csv", "tsv", "xlsx", "parquet", "images")  # every row has the same columns

# seq, status, result, error, attempts, input
StoredResult = tuple[int, str | None, str | None, str | None, int, str | None]


@dataclass(frozen=True, slots=True)
class ExportedJob:
    """A job in the snapshot of an export: its size, its columns and the statuses of its unsettled items."""

    job_id: UUID
    key: str
    purged: bool
    total: int
    result_columns: tuple[str, ...]
    has_fixed_columns: bool
    is_closed: bool
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
    return ExportedJob(
        job_id,
        row["key"],
        row["purged"],
        row["total"],
        tuple(row["result_columns"]),
        row["source_format"] in FIXED_COLUMN_FORMATS,
        row["is_closed"],
        statuses,
    )


async def read_known_fields(
    conn: Connection, survey: ExportedJob, *, with_scan: bool = False, flatten: bool = False
) -> KnownFields:
    """Return the fields of a job's inputs and results, in the order of the first row that has them.

    Without ``with_scan``, only the first inputs are read, and nested fields are not known. With ``flatten``, fields of
    nested objects replace the objects.
    """
    fields = FieldScan(survey.result_columns, flatten=flatten)
    cursor = await conn.execute(sql("item/sample"), {"job_id": survey.job_id, "most": SAMPLE_ITEMS})
    for (text,) in await cursor.fetchall():
        fields.add_input(decode_input_or_text(text))
    scans_inputs = with_scan and not survey.has_fixed_columns
    if scans_inputs or (with_scan and flatten):
        async with aclosing(stream_results(conn, survey, reads_inputs=scans_inputs)) as packets:
            async for packet in packets:
                await asyncio.to_thread(fields.add_packet, packet)
    return KnownFields(
        fields.list_inputs(),
        fields.list_results(),
        are_inputs_final=scans_inputs or survey.has_fixed_columns,
        are_results_final=survey.is_closed and len(survey.result_columns) < GRID_COLUMNS_MAX,
    )


class FieldScan:
    """Collects the fields of inputs and results. With ``flatten``, those of nested objects, in place of the objects."""

    def __init__(self, result_columns: Iterable[str], *, flatten: bool) -> None:
        self._flatten = flatten
        self._result_columns = tuple(result_columns)
        self._inputs: dict[str, bool] = {}  # whether a field has a value
        self._nested_results: dict[str, dict[str, None]] = {}

    def add_packet(self, packet: Iterable[StoredResult]) -> None:
        for _, _, result, _, _, value in packet:
            if value:
                self.add_input(decode_input_or_text(value))
            if result and self._flatten:
                self._add_result(decode_json(result))

    def add_input(self, value: Any) -> None:
        if not isinstance(value, dict):
            self._inputs |= {} if value is None else {INPUT_COLUMN: True}
        elif self._flatten:
            for name in list_nested_fields(value):
                self._inputs[name] = self._inputs.get(name, False) or value.get(name, name) is not None
        elif not value.keys() <= self._inputs.keys():
            self._inputs |= dict.fromkeys(value, True)

    def _add_result(self, value: Any) -> None:
        for name, each in value.items() if isinstance(value, dict) else ():
            if isinstance(each, dict):
                self._nested_results.setdefault(name, {}).update(dict.fromkeys(list_nested_fields({name: each})))

    def list_inputs(self) -> tuple[str, ...]:
        # An object that is null in some rows needs no column besides those of its fields.
        objects = {name.rpartition(".")[0] for name in self._inputs} if self._flatten else set()
        names = (name for name, has_value in self._inputs.items() if has_value or name not in objects)
        return tuple(islice(names, INPUT_COLUMNS_MAX)) or (INPUT_COLUMN,)

    def list_results(self) -> tuple[str, ...]:
        names = (name for column in self._result_columns for name in self._nested_results.get(column, (column,)))
        return tuple(islice(dict.fromkeys(names), INPUT_COLUMNS_MAX))


async def stream_results(
    conn: Connection, survey: ExportedJob, only: RowSelection = ALL_ROWS, *, reads_inputs: bool = True
) -> AsyncGenerator[list[StoredResult]]:
    """Yield the items in order of seq, in packets of bounded size; only one packet is in memory.

    With ``only``, skip windows without a selected item, and items that are not selected. Without ``reads_inputs``, rows
    have no inputs, and an item without an outcome has an empty row.
    """
    statement = sql("item/walk" if reads_inputs else "outcome/walk")
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
                size += len(row[2] or "") + len(row[3] or "") + len(row[5] or "")
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
    return seq, None, None, None, 0, None


@dataclass(frozen=True, slots=True)
class ResultExportRequest:
    """The rows of a job to export, the columns, and the format. No columns means all.

    ``flatten`` gives each field of a nested object a column. ``spreadsheet_safe`` prevents text from running as a
    formula; it has no effect on formats that spreadsheets do not open.
    """

    job_id: UUID
    format: FileFormat
    statuses: tuple[ItemStatus, ...] = ()
    spreadsheet_safe: bool = False
    rows: RowSelection = field(default_factory=RowSelection)
    columns: tuple[str, ...] = ()
    flatten: bool = False
    compression: Compression = Compression.NONE

    @classmethod
    def create(
        cls,
        job_id: UUID,
        format_: str,
        statuses: Iterable[str] = (),
        *,
        spreadsheet_safe: bool = False,
        rows: RowSelection | None = None,
        columns: Sequence[str] = (),
        flatten: bool = False,
        compression: str = Compression.NONE,
    ) -> Self:
        """Return a validated request; InvalidInput for an unknown format or status. No statuses means all."""
        for name, value, choices in (("format", format_, FileFormat), ("compression", compression, Compression)):
            if value not in choices.__members__.values():
                raise InvalidInput(f'Unknown {name} "{value}". Use one of {", ".join(choices)}.')
        try:
            parsed_statuses = {parse_item_status(name) for name in statuses}
        except ValueError as error:
            raise InvalidInput(f"Invalid statuses: {error}") from error
        if len(columns) > WANTED_COLUMNS_MAX:
            raise InvalidInput(f"At most {WANTED_COLUMNS_MAX:,} columns can be selected")
        request = cls(
            job_id,
            FileFormat(format_),
            tuple(sorted(parsed_statuses)),
            spreadsheet_safe,
            rows or RowSelection(),
            tuple(columns),
            flatten,
            Compression(compression),
        )
        request.file_spec.validate()
        return request

    @classmethod
    def from_item_input(cls, value: Mapping[str, Any]) -> Self:
        """Parse the input of an export's item."""
        options = {name: value[name] for name in ("columns", "flatten", "compression") if name in value}
        safe, rows = value["spreadsheet_safe"], RowSelection.from_json(value.get("rows", {}))
        return cls.create(
            UUID(value["job_id"]), value["format"], value["statuses"], spreadsheet_safe=safe, rows=rows, **options
        )

    def to_item_input(self) -> dict[str, object]:
        """Return the input of the export's item."""
        request: dict[str, object] = {"job_id": str(self.job_id), "format": self.format}
        request |= {"statuses": list(self.statuses), "spreadsheet_safe": self.spreadsheet_safe}
        options: dict[str, object] = {"rows": self.rows.to_json(), "columns": list(self.columns)}
        options |= {"flatten": self.flatten}
        options |= {} if self.compression is Compression.NONE else {"compression": self.compression}
        return request | {name: value for name, value in options.items() if value}

    @property
    def file_spec(self) -> OutputFileSpec:
        is_safe = self.spreadsheet_safe and self.format in (FileFormat.CSV, FileFormat.XLSX)
        return OutputFileSpec(self.format, (), self.compression, is_safe)

    @property
    def needs_scan(self) -> bool:
        """Whether the columns depend on all rows: without a choice, or with a choice of all columns of a source."""
        return not self.columns or not {ALL_COLUMNS, ALL_INPUT_COLUMNS, ALL_RESULT_COLUMNS}.isdisjoint(self.columns)

    def build_file_name(self, job_key: str) -> str:
        chosen = ("selected",) if self.rows.to_json() else ()
        return "-".join((job_key, *self.statuses, *chosen)) + self.file_spec.suffix


async def resolve_export_columns(
    conn: Connection, survey: ExportedJob, request: ResultExportRequest, *, with_scan: bool = True
) -> ResultFileColumns:
    """Return the columns of a result file; InvalidInput if a wanted column does not exist.

    Without ``with_scan``, the columns of later rows are missing.
    """
    scans = with_scan and request.needs_scan
    known = await read_known_fields(conn, survey, with_scan=scans, flatten=request.flatten)
    return resolve_result_file_columns(request.columns, known)


class ResultFileWriter:
    """Writes the selected ones of stored results to a file. The methods block, so call them in a thread."""

    def __init__(
        self,
        output: ByteOutput,
        request: ResultExportRequest,
        columns: ResultFileColumns,
        status_resolver: ItemStatusResolver,
        types: CellTypes | None = None,
    ) -> None:
        self.rows = 0
        self._request = request
        self._reads_inputs = columns.reads_inputs
        self._status_resolver = status_resolver
        self._types = types
        self._open_writer = partial(open_row_writer, request.file_spec, output, columns, types=types)
        self._writer: RowWriter | None = self._open_writer() if types is None else None

    @property
    def cut_cells(self) -> int:
        return self._writer.cut_cells if self._writer else 0

    def learn_types(self, stored: Iterable[StoredResult]) -> None:
        """Learn the types of the columns, before the first row is written."""
        assert self._types is not None  # noqa: S101  the constructor got them
        self._types.learn(self._select_rows(stored))

    def write_results(self, stored: Iterable[StoredResult]) -> None:
        if self._writer is None:
            self._writer = self._open_writer()
            self.rows = 0
        self._writer.write(self._select_rows(stored))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _select_rows(self, stored: Iterable[StoredResult]) -> Iterator[GridRow]:
        statuses, selection = self._request.statuses, self._request.rows
        for seq, stored_status, result, stored_error, attempts, value in stored:
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
                "result": decode_json(result) if result else None,
                "error": error,
                "attempts": attempts,
                "input": decode_input_or_text(value) if value and self._reads_inputs else None,
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
