"""Reads a file of fixed rows of an import, stores them as fixes, and retries only these rows."""

import asyncio
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tidemill.core.batch import SEQ_LIST_MAX
from tidemill.core.errors import InvalidColumns, InvalidInput, InvalidRows, Unavailable
from tidemill.core.file_format import FileLayout, unescape_formula
from tidemill.core.input_source import InputBlock, InputSource, resolve_line_number
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.files.writers.xlsx_sheets import CELL_TEXT_MAX_UTF16_UNITS, truncate_utf16
from tidemill.imports.column_mapping import ERROR_FILE_COLUMNS, ROW_NUMBER_COLUMN, quote_names
from tidemill.imports.failed_rows import (
    escape_cell_if_formula,
    is_unicode_encoding,
    read_columns_of_failed_rows,
    read_import_layout,
)
from tidemill.imports.import_plan import ImportParams, ImportPlan
from tidemill.imports.import_submission import ImportFile
from tidemill.imports.use_cases import make_import_use_cases
from tidemill.jobs.file_inspection import FileInspection, inspect_file
from tidemill.jobs.staged_files import make_staged_files
from tidemill.runtime import Runtime
from tidemill.store import item_fixes, job_records, operation_records, quota_records, reprocess_items
from tidemill.store.database import Connection, Database, is_transient
from tidemill.store.item_records import read_item
from tidemill.store.job_events import report_operation_step
from tidemill.store.job_records import LockedJob
from tidemill.store.jsonb import decode_input_or_text, encode_json
from tidemill.store.operation_records import BulkOperation, OperationStep
from tidemill.tables.resource import normalize_column_name

FIX_PROBLEMS_MAX = 100  # messages; further problems are only counted
LISTED_COLUMNS_MAX = 20  # columns that a message lists


class FixProblems:
    """Collects the problems of a file of fixed rows: messages for the first ones, and the number of all."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.count = 0

    def add(self, problem: str) -> None:
        self.count += 1
        if len(self.messages) < FIX_PROBLEMS_MAX:
            self.messages.append(problem)


class FixedRowMatcher:
    """Matches records to rows of the import by row number, and detects repeated rows with one bit per row."""

    def __init__(self, total: int, problems: FixProblems, import_columns: Container[str] = ()) -> None:
        """``import_columns``: the columns of the import, which count as data even if they begin with an underscore."""
        self._total = total
        self._import_columns = import_columns
        self._seen = bytearray(total // 8 + 1)
        self._problems = problems

    def match_record_to_row(self, record: Any, line: int) -> tuple[int, JsonObject] | None:
        """Return the row's seq and its fixed fields, without the added columns; None after adding a problem."""
        row_number = record.get(ROW_NUMBER_COLUMN) if isinstance(record, dict) else None
        if row_number in (None, ""):
            self._problems.add(f'line {line}: "{ROW_NUMBER_COLUMN}" is missing, so the row of the import is unknown')
            return None
        row = parse_row_number_cell(row_number)
        if row is None or not 0 < row <= self._total:
            self._problems.add(f'line {line}: the import has no row "{str(row_number)[:40]}"')
            return None
        seq = row - 1
        if self._seen[seq >> 3] >> (seq & 7) & 1:
            self._problems.add(f"line {line}: row {row} appears more than once")
            return None
        self._seen[seq >> 3] |= 1 << (seq & 7)
        return seq, {name: value for name, value in record.items() if self._is_data_column(name)}

    def _is_data_column(self, name: str) -> bool:
        """The columns that an error file adds are never data, even if the import has columns of these names."""
        return name not in ERROR_FILE_COLUMNS and (name in self._import_columns or not name.startswith("_"))


class FixFileColumns:
    """Maps the columns of a file of fixed rows to those of the import: by column name or by field name."""

    def __init__(self, columns: Iterable[str], mapping: Mapping[str, str]) -> None:
        """``mapping``: column of the import -> field."""
        self._columns = dict.fromkeys([*columns, *mapping])
        self._columns_by_folded_name: dict[str, set[str]] = {}
        for column in self._columns:
            for name in (column, mapping.get(column, "")):
                self._columns_by_folded_name.setdefault(normalize_column_name(name), set()).add(column)
        self._columns_by_folded_name.pop("", None)  # the field of a column that is not imported

    def resolve_column(self, name: str) -> str | None:
        """Return the column of the import; None if none or several match. Names with a leading "_" are kept."""
        if name in self._columns or name.startswith("_"):
            return name
        if (original := unescape_formula(name)) in self._columns:  # an error file guards the header, too
            return original
        matches = self._columns_by_folded_name.get(normalize_column_name(name), set())
        return next(iter(matches)) if len(matches) == 1 else None

    def rename_record_fields(self, record: Any) -> Any:
        """Rename the fields of a record to columns of the import, unless the record has that column already."""
        if not isinstance(record, dict) or record.keys() <= self._columns.keys():
            return record
        renamed = {name: self.resolve_column(name) or name for name in record}
        return {name if renamed[name] in record else renamed[name]: value for name, value in record.items()}

    def find_header_problems(self, columns: Sequence[str]) -> list[str]:
        """Return a message for every problem of the header of a file of fixed rows."""
        problems = (
            []
            if ROW_NUMBER_COLUMN in columns
            else [f'Column "{ROW_NUMBER_COLUMN}" with the row numbers of the import is missing']
        )
        unknown = [name for name in columns if self.resolve_column(name) is None]
        problems += [
            f'Column "{name}" is not a column of the import{self._format_import_columns() if at == 0 else ""}'
            for at, name in enumerate(unknown)
        ]
        by_column: dict[str, list[str]] = {}
        for name in columns:
            by_column.setdefault(self.resolve_column(name) or name, []).append(name)
        return problems + [
            f'Columns {quote_names(names)} are all mapped to "{column}"'
            for column, names in by_column.items()
            if len(names) > 1
        ]

    def _format_import_columns(self) -> str:
        more = len(self._columns) - LISTED_COLUMNS_MAX
        listed = ", ".join(list(self._columns)[:LISTED_COLUMNS_MAX])
        return f" (the import has the columns {listed}" + (f" and {more:,} more)" if more > 0 else ")")


class FixedCellMerger:
    """Merges fixed rows of a text file into the stored rows. An unchanged cell keeps the stored value and its type."""

    def __init__(self, plan: ImportPlan | None) -> None:
        """``plan``: the plan of the import; None if its file was never read."""
        fields = plan.resource.fields if plan is not None and plan.documents else ()
        documents = {field.name for field in fields if field.type == "json"}
        mapping = plan.mapping if plan is not None else {}
        self._json_columns = {column for column, name in mapping.items() if name in documents}
        self._is_escaped = plan is not None and plan.spreadsheet_safe  # the checks remove the apostrophes

    def merge_row(self, held: Any, cells: Mapping[str, Any]) -> JsonObject:
        """Return the stored row with the changed cells. A field that the row lacks is not added for an empty cell."""
        if not isinstance(held, dict):
            return {
                name: self._parse_cell_if_json(name, self._unescape_like_error_file(held, value))
                for name, value in cells.items()
            }
        changed = {name for name, value in cells.items() if not self._is_unchanged(held.get(name), value)}
        return held | {
            name: self._parse_cell_if_json(name, self._unescape_like_error_file(held.get(name), cells[name]))
            for name in cells
            if name in changed
        }

    def _is_unchanged(self, held: Any, cell: Any) -> bool:
        """Whether a cell is the stored value as an error file shows it: maybe guarded, and in a workbook cut."""
        old, new = to_comparable_cell_text(held), to_comparable_cell_text(cell)
        shown = self._escape_like_error_file(held, old)
        return new in (old, shown) or new == truncate_utf16(shown, CELL_TEXT_MAX_UTF16_UNITS)

    def _escape_like_error_file(self, held: Any, text: str) -> str:
        return str(escape_cell_if_formula(text, is_escaped=self._is_escaped)) if isinstance(held, str) else text

    def _unescape_like_error_file(self, held: Any, cell: Any) -> Any:
        """Remove the apostrophe of a changed cell if the error file put one before the stored value."""
        is_guarded = isinstance(held, str) and not self._is_escaped and self._escape_like_error_file(held, held) != held
        return unescape_formula(cell) if is_guarded and isinstance(cell, str) else cell

    def _parse_cell_if_json(self, name: str, value: Any) -> Any:
        return _parse_json_cell(value) if name in self._json_columns else value


def to_comparable_cell_text(value: Any) -> str:
    """Return a value as a cell of a file shows it. A missing value and empty text are the same there."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Decimal):
        value = float(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def _parse_json_cell(text: Any) -> Any:
    """Parse a cell of a JSON field. A JSON string has no quotes in a cell, so other text stays text."""
    try:
        return json.loads(text, parse_float=Decimal)
    except (TypeError, ValueError, RecursionError):
        return text


def parse_row_number_cell(value: Any) -> int | None:
    """Return the row number in a cell, or None. Some spreadsheets write 7 as 7.0."""
    if isinstance(value, str):
        digits = value.strip().removesuffix(".0")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None  # noqa: PLR2004
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


FIX_FILE_CHUNK_BYTES = 4 << 20
MergeRow = Callable[[Any, JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class FixedRowsFile:
    """A staged file of fixed rows, and the user who sent it."""

    file: ImportFile
    by: int
    layout: FileLayout = field(default_factory=FileLayout)  # the layout options of the caller
    request_id: str | None = None


async def fix_rows_from_file(runtime: Runtime, job: Job, fixes: FixedRowsFile) -> BulkOperation:
    """Store the fixes of a file in one transaction, requeue these rows, and delete the file.

    Raises:
        InvalidInput, InvalidColumns: The file cannot be read, or its columns do not match the import.
        InvalidRows: Rows cannot be fixed. It lists the problems, and no row is changed.
        QuotaExceeded: The rows exceed a quota of the user. No row is changed.
        Unavailable: The database is not available. No row is changed.
    """
    try:
        if not fixes.file.blob.size:
            raise InvalidInput("The file is empty")
        return await _store_all_fixes_and_requeue(runtime, job, fixes)
    finally:
        await runtime.get(make_staged_files).discard(fixes.file.blob.id)


async def _store_all_fixes_and_requeue(runtime: Runtime, job: Job, fixes: FixedRowsFile) -> BulkOperation:
    file = fixes.file
    plan = ImportParams.from_json(job.params).plan
    given = fixes.layout.to_json() | ({"keep_empty": True} if plan is not None and plan.keep_empty else {})
    db, imports = runtime.db, runtime.get(make_import_use_cases)
    inspection = await _inspect_fix_file(runtime, job, file, given)
    mapping = plan.mapping if plan is not None else {}
    names = await _read_and_check_fix_file_columns(db, job, mapping, inspection)
    merge = _merge_fields if inspection.is_named_by_rows else FixedCellMerger(plan).merge_row
    source = await imports.open_source(file.blob.id, inspection.layout)
    try:
        with closing(source):
            async with db.transaction(bounded=False) as conn:
                step = await _RowFixer(
                    conn, job, mapping, fixes, names, merge, runtime.settings.max_row_bytes
                ).fix_all_rows(source)
                await quota_records.check_requeue_quota(conn, fixes.by, runtime.settings.default_quota)
    except Exception as error:
        if not is_transient(error):
            raise
        raise Unavailable("The database is not available. No row was changed.") from error
    await report_operation_step(db, step)
    return await db.run(operation_records.get_operation, step.operation_id)


async def _inspect_fix_file(
    runtime: Runtime, job: Job, file: ImportFile, given: Mapping[str, object]
) -> FileInspection:
    """Inspect a file of fixed rows. A file that is not Unicode has the encoding of the import.

    A few rows are too little text to detect an encoding such as cp1252.
    """
    content_type = file.content_type or "application/octet-stream"
    content_type += "" if "header=" in content_type else "; header=present"  # names say which rows are fixed
    options: dict[str, Any] = {"name": file.name, "content_type": content_type, "owner_id": job.owner_id}
    inspection = await inspect_file(runtime, file.blob.id, **options, layout_options=given, rows=SEQ_LIST_MAX)
    imported = await read_import_layout(runtime.db, job)
    encoding = None if imported is None else imported.encoding
    if "encoding" in given or is_unicode_encoding(inspection.layout.encoding) or is_unicode_encoding(encoding):
        return inspection
    return await inspect_file(
        runtime, file.blob.id, **options, layout_options={**given, "encoding": encoding}, rows=SEQ_LIST_MAX
    )


async def _read_and_check_fix_file_columns(
    db: Database, job: Job, mapping: Mapping[str, str], inspection: FileInspection
) -> FixFileColumns:
    names = FixFileColumns(await read_columns_of_failed_rows(db, job), mapping)
    problems = [] if inspection.is_named_by_rows else names.find_header_problems(inspection.columns)
    if problems:
        raise InvalidColumns(problems)
    return names


class _RowFixer:
    """Stores the fixes of one file in one transaction. ``merge`` combines the stored row with the fixed fields."""

    def __init__(
        self,
        conn: Connection,
        job: Job,
        import_columns: Container[str],
        fixes: FixedRowsFile,
        names: FixFileColumns,
        merge: MergeRow,
        max_row_bytes: int,
    ) -> None:
        self._conn = conn
        self._job = job
        self._fixes = fixes
        self._max_row_bytes = max_row_bytes
        self._names = names
        self._merge = merge
        self._problems = FixProblems()
        self._matcher = FixedRowMatcher(job.counts.total, self._problems, import_columns)
        self._row = 0

    async def fix_all_rows(self, source: InputSource) -> OperationStep:
        conn, job_id, fixes = self._conn, self._job.id, self._fixes
        locked = await reprocess_items.lock_job_for_requeue(conn, job_id)
        items = 0
        while (block := await asyncio.to_thread(source.read, SEQ_LIST_MAX, FIX_FILE_CHUNK_BYTES)).inputs:
            items += await self._store_fixes(locked, dict(self._match_rows(block, source.first_line)))
        if self._problems.count:
            raise InvalidRows(self._problems.messages, self._problems.count)
        if not items:
            raise InvalidInput("The file has no rows")
        await reprocess_items.reopen_job(conn, job_id)
        predicate = {"statuses": ["failed"], "reset_attempts": True, "fixed_rows": items}
        who = {"user_id": fixes.by, "job_id": job_id, "request_id": fixes.request_id}
        operation_id = await operation_records.add_finished_operation(conn, "reprocess", predicate, items=items, **who)
        await job_records.add_activity(
            conn, job_id, fixes.by, "fix", rows=items, operation=str(operation_id), file=fixes.file.name
        )
        return OperationStep(operation_id, items, job_id, fixes.request_id)

    def _match_rows(self, block: InputBlock, first_line: int) -> Iterator[tuple[int, JsonObject]]:
        for index, text in enumerate(block.inputs):
            self._row += 1
            line = resolve_line_number(self._row, None if block.lines is None else block.lines[index], first_line)
            if index in block.defects:
                self._problems.add(f"line {line}: {block.defects[index]['reason']}")
                continue
            record = self._names.rename_record_fields(decode_input_or_text(text.decode(), exact=True))
            if (row := self._matcher.match_record_to_row(record, line)) is not None:
                yield row

    async def _store_fixes(self, locked: LockedJob, fixes: dict[int, JsonObject]) -> int:
        if not fixes:
            return 0
        current = await item_fixes.read_current_inputs(self._conn, self._job.id, list(fixes))
        fixed = {seq: self._merge(current.get(seq), fields) for seq, fields in fixes.items()}
        inputs = {
            seq: data
            for seq, fields in fixed.items()
            if (data := self._encode_row_or_add_problem(seq, fields)) is not None
        }
        stored = await item_fixes.fix_and_requeue_failed_items(self._conn, locked, inputs, by=self._fixes.by)
        for seq in sorted(inputs.keys() - set(stored)):
            await self._add_rejected_row_problem(seq)
        return len(stored)

    def _encode_row_or_add_problem(self, seq: int, fields: JsonObject) -> bytes | None:
        try:
            data = encode_json(fields, exact=True)
        except (TypeError, ValueError, RecursionError) as error:
            self._problems.add(f"row {seq + 1} cannot be stored: {error}")
            return None
        if len(data) > self._max_row_bytes:
            self._problems.add(f"row {seq + 1} is larger than {self._max_row_bytes} bytes")
            return None
        return data

    async def _add_rejected_row_problem(self, seq: int) -> None:
        is_reported = len(self._problems.messages) < FIX_PROBLEMS_MAX
        status = (await read_item(self._conn, self._job.id, seq))["status"] if is_reported else "not failed"
        self._problems.add(f"row {seq + 1} is {status}: only failed rows can be fixed")


def _merge_fields(held: Any, fields: JsonObject) -> JsonObject:
    return (held if isinstance(held, dict) else {}) | fields
