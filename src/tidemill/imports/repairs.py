"""Repairs: one rule fixes all rows of an import that failed for one cause, as a bulk operation with a preview."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tidemill.core.batch import SEQ_LIST_MAX
from tidemill.core.errors import Conflict, InvalidInput, TooLarge
from tidemill.core.job import Item, Job
from tidemill.core.json_input import JsonObject
from tidemill.core.kinds import IMPORT_KIND
from tidemill.core.status import ItemStatus
from tidemill.failpoints import failpoint
from tidemill.imports import import_records
from tidemill.imports.failed_rows import RowErrorView, build_row_error_views, check_job_not_purged
from tidemill.imports.handler import find_duplicates_to_skip_or_fail
from tidemill.imports.import_plan import ImportParams, ImportPlan
from tidemill.imports.import_records import FailedRow, sql
from tidemill.imports.repair_rules import Drop, Reformat, RepairRule, Split, compute_new_values, parse_repair_rule
from tidemill.imports.table_checks import TableChecker
from tidemill.imports.target_table import TableRejection, TargetTable, TargetUnusable
from tidemill.imports.validation.field_reader import Normalizer
from tidemill.imports.validation.row_checker import RowChecker
from tidemill.jobs.reprocessing import build_quota_part, run_operation_until_end_or_timeout
from tidemill.runtime import Runtime
from tidemill.store import operation_records
from tidemill.store.database import Connection
from tidemill.store.item_fixes import fix_and_requeue_failed_items
from tidemill.store.job_records import lock_job, read_job_params
from tidemill.store.jsonb import encode_json
from tidemill.store.operation_records import BulkOperation, StepProgress, record_operation_activity
from tidemill.store.reprocess_items import (
    ReprocessSelection,
    lock_job_for_requeue,
    reopen_job,
    set_dismissed_for_chunk,
)
from tidemill.tables.values.value_formats import PLAIN_FORMAT

REPAIR_VERB = "repair"
REPAIR_STEP_CHUNKS = 5  # of up to SEQ_LIST_MAX rows; the job is locked during a step
PREVIEW_ROWS_MAX = 1_000
PREVIEW_EXAMPLES_MAX = 20
LISTED_CAUSES_MAX = LISTED_COLUMNS_MAX = 20


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """All rows that failed with the error code ``cause``, and the rule for them.

    ``column`` is the column that the rule reads; None is the column of the field that the error names.
    """

    cause: str
    rule: RepairRule
    column: str | None = None


class RepairExample(NamedTuple):
    """A row that the rule changes: the changed columns before and after, and the errors that remain."""

    row: int
    line: int
    before: JsonObject
    after: JsonObject
    errors: list[RowErrorView]


@dataclass(frozen=True, slots=True)
class RepairPreview:
    """What a repair would do. All numbers except ``rows`` are about the first ``checked`` rows."""

    rows: int
    column: str | None
    checked: int = 0
    changed: int = 0
    valid: int = 0
    too_large: int = 0
    examples: list[RepairExample] = field(default_factory=list)


class _RepairedRow(NamedTuple):
    values: JsonObject  # the complete row
    data: bytes  # as it is stored
    changed: JsonObject


class _RowRepairer:
    """Applies a rule to failed rows."""

    def __init__(self, rule: RepairRule, column: str, plan: ImportPlan, max_row_bytes: int) -> None:
        self._rule = rule
        self._column = column
        self._fields = {column, plan.mapping.get(column, column)}  # an error names the field, or an unknown column
        self._max_row_bytes = max_row_bytes

    def repair_rows(self, rows: Sequence[FailedRow]) -> tuple[dict[int, _RepairedRow], int]:
        """Return the rows that the rule changes, by seq, and the number of rows that would be too large."""
        repaired: dict[int, _RepairedRow] = {}
        too_large = 0
        for row in rows:
            try:
                new = self._repair_row(row)
            except TooLarge:
                too_large += 1
                continue
            if new is not None:
                repaired[row.row - 1] = new
        return repaired, too_large

    def _repair_row(self, row: FailedRow) -> _RepairedRow | None:
        """Return the changed row; None if the rule does not change it, or its new values cannot be stored."""
        if not isinstance(row.input, dict):  # the record could not be parsed
            return None
        errors = row.error.get("errors") or [row.error]
        changed = compute_new_values(
            self._rule,
            row.input,
            self._column,
            is_invalid=any(error.get("field") in self._fields for error in errors),
            max_chars=self._max_row_bytes,
        )
        if not changed:
            return None
        values = row.input | changed
        try:
            data = encode_json(values, exact=True)
        except (TypeError, ValueError, RecursionError):
            return None
        if len(data) > self._max_row_bytes:
            raise TooLarge(f"The fixed row would have {len(data):,} bytes. The maximum is {self._max_row_bytes:,}.")
        return _RepairedRow(values, data, changed)


async def preview_repair(runtime: Runtime, job: Job, request: RepairRequest) -> RepairPreview:
    """Return what a repair would do, from the real checks of its first rows. Nothing is changed.

    Raises:
        InvalidInput: The column is missing or unknown.
        Conflict: No failed row has this error, or the rows of the import were deleted.
    """
    plan, rows = await _check_request(runtime, job, request)
    if isinstance(request.rule, Drop):
        return RepairPreview(rows, None)
    column = _resolve_column(plan, request)
    chunk = await runtime.db.read(_read_chunk, job.id, request.cause, after_seq=-1, limit=PREVIEW_ROWS_MAX)
    repairer = _RowRepairer(request.rule, column, plan, runtime.settings.max_row_bytes)
    repaired, too_large = await asyncio.to_thread(repairer.repair_rows, chunk.rows)
    items = [Item(job.id, seq, row.values) for seq, row in repaired.items()]
    normalizers = runtime.declarations.normalizers
    errors = await runtime.db.run(_check_rows, plan, items, normalizers) if items else {}
    examples: list[RepairExample] = []
    for found in chunk.rows:
        row = repaired.get(found.row - 1)
        if row is not None and len(examples) < PREVIEW_EXAMPLES_MAX:
            error = errors.get(found.row - 1)
            views = [] if error is None else build_row_error_views(error, found.row, found.line)
            before = {name: found.input.get(name) for name in row.changed}
            examples.append(RepairExample(found.row, found.line, before, row.changed, views))
    valid = len(repaired) - len(errors)
    return RepairPreview(rows, column, len(chunk.rows), len(repaired), valid, too_large, examples)


async def _check_rows(
    conn: Connection, plan: ImportPlan, items: Sequence[Item], normalizers: Mapping[str, Normalizer]
) -> dict[int, Any]:
    """Return the errors of rows by seq, from all checks that an import makes before it writes."""
    checker = RowChecker(plan, normalizers)
    checked = await asyncio.to_thread(checker.check_rows, [item.input for item in items])
    skipped = await find_duplicates_to_skip_or_fail(conn, plan, checker, checked, items)
    try:
        target = TargetTable(conn, plan.resource, plan.keeps_null, plan.guard_fields)
        await TableChecker(target, plan, checked, skipped).check_rows()
    except (TableRejection, TargetUnusable) as error:
        raise Conflict(f"Cannot check the rows: {error}") from error
    return {items[index].seq: error for index, error in checked.errors.build_details_by_row().items()}


async def start_repair(
    runtime: Runtime,
    job: Job,
    request: RepairRequest,
    *,
    by: int,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> BulkOperation:
    """Fix all rows of a cause with a rule, and retry them. The ``Drop`` rule dismisses them instead.

    After ``timeout_s`` seconds the operation is returned unfinished, and a background loop continues it.

    Raises:
        InvalidInput: The column is missing or unknown.
        Conflict: No failed row has this error, a repair of it is running, or the rows cannot be retried.
        QuotaExceeded: The rows exceed a quota of the user.
    """
    plan, _ = await _check_request(runtime, job, request)
    column = None if isinstance(request.rule, Drop) else _resolve_column(plan, request)
    predicate: JsonObject = {
        "cause": request.cause,
        "column": column,
        "rule": msgspec.to_builtins(request.rule),
        "max_row_bytes": runtime.settings.max_row_bytes,
    }
    if column is not None:  # the rows are requeued
        predicate |= build_quota_part(runtime.settings.default_quota)
    db = runtime.db
    operation_id = await db.read(operation_records.make_operation_id)
    await db.run(_add_repair, job.id, predicate, user_id=by, request_id=request_id, operation_id=operation_id)
    return await run_operation_until_end_or_timeout(db, operation_id, timeout_s, {REPAIR_VERB: run_repair_step})


async def _check_request(runtime: Runtime, job: Job, request: RepairRequest) -> tuple[ImportPlan, int]:
    """Return the plan of the import and the number of rows to repair."""
    if job.kind != IMPORT_KIND:
        raise InvalidInput(f"Job {job.key} is not an import")
    check_job_not_purged(job)
    counts = await runtime.db.read(count_repairable_rows, job.id)
    plan = ImportParams.from_json(job.params).plan
    if plan is None or not counts.get(request.cause):
        causes = sorted(counts, key=lambda cause: (-counts[cause], cause))[:LISTED_CAUSES_MAX]
        hint = f"The errors of this import are: {', '.join(causes)}" if causes else "The import has no failed rows"
        raise Conflict(f'No failed row has the error "{request.cause}". {hint}.')
    return plan, counts[request.cause]


async def count_repairable_rows(conn: Connection, job_id: UUID) -> dict[str, int]:
    """Return the number of failed rows that are not dismissed, by error code."""
    counts = await import_records.count_rows_by_error(conn, job_id)
    for code, dismissed in (await import_records.count_dismissed_rows_by_error(conn, job_id)).items():
        counts[code] = counts.get(code, 0) - dismissed
    return {code: count for code, count in counts.items() if count > 0}


def _resolve_column(plan: ImportPlan, request: RepairRequest) -> str:
    """Return the column that the rule reads. Check that the columns of the rule exist."""
    columns = list(dict.fromkeys([*plan.columns, *plan.mapping]))
    field_name = request.cause.rpartition(".")[0]
    column = request.column or next((name for name in columns if plan.mapping.get(name) == field_name), None)
    if column is None:
        raise InvalidInput(f'The error "{request.cause}" belongs to no single column. Set the column to repair.')
    for name in (column, *(request.rule.into if isinstance(request.rule, Split) else ())):
        if name not in columns:
            listed = ", ".join(columns[:LISTED_COLUMNS_MAX])
            raise InvalidInput(f'Column "{name}" is not a column of the import (the import has the columns {listed})')
    format_name = plan.formats.get(plan.mapping.get(column, ""))
    if isinstance(request.rule, Reformat) and format_name not in (None, PLAIN_FORMAT):
        # The import reads the new text in its own format, in which 1.500 can be another number.
        raise InvalidInput(f'The import reads column "{column}" in the format "{format_name}". Use another rule.')
    return column


async def _add_repair(
    conn: Connection,
    job_id: UUID,
    predicate: JsonObject,
    *,
    user_id: int,
    request_id: str | None,
    operation_id: UUID,
) -> None:
    """Add the operation, unless a repair of the same cause is running. The lock of the job admits one at a time."""
    await lock_job(conn, job_id)
    cursor = await conn.execute(sql("operation/running_repair"), {"job_id": job_id, "cause": predicate["cause"]})
    row = await cursor.fetchone()
    if row is not None and row[0] != operation_id:
        raise Conflict(f'A repair of the rows with the error "{predicate["cause"]}" is already running')
    await operation_records.add_operation(
        conn,
        REPAIR_VERB,
        predicate,
        user_id=user_id,
        job_id=job_id,
        request_id=request_id,
        operation_id=operation_id,
    )


async def run_repair_step(conn: Connection, operation: BulkOperation) -> StepProgress:
    """Repair, or dismiss, the next rows of the cause. Every row is visited once, even if it fails again."""
    place, job_id, predicate = operation.place, operation.job_id, operation.predicate
    if job_id is None or place.get("is_end"):
        return StepProgress(0, None, None)
    rule = parse_repair_rule(predicate["rule"])
    changed, unchanged, after_seq, is_end = 0, place.get("unchanged", 0), place.get("after_seq", -1), False
    drops = isinstance(rule, Drop)
    change_rows = await (_make_row_dropper if drops else _make_row_fixer)(conn, operation, job_id, rule)
    for _ in range(REPAIR_STEP_CHUNKS):
        chunk = await _read_chunk(conn, job_id, predicate["cause"], after_seq=after_seq, limit=SEQ_LIST_MAX)
        failpoint("repair.rows_read")
        count = await change_rows(chunk.rows) if chunk.rows else 0
        changed, unchanged = changed + count, unchanged + len(chunk.rows) - count
        if is_end := chunk.last_seq is None:
            break
        after_seq = chunk.last_seq
    if changed and not drops:
        failpoint("repair.rows_fixed")
        await reopen_job(conn, job_id)
    details = {"cause": predicate["cause"], "rule": predicate["rule"]}
    await record_operation_activity(conn, operation, job_id, changed, **details)
    next_place = {"after_seq": after_seq, "unchanged": unchanged, "is_end": is_end}
    return StepProgress(changed, next_place, None if drops else job_id)


ChangeRows = Callable[[Sequence[FailedRow]], Awaitable[int]]


async def _make_row_fixer(conn: Connection, operation: BulkOperation, job_id: UUID, rule: RepairRule) -> ChangeRows:
    """Lock the job, and return a function that fixes and requeues the rows that the rule changes."""
    job = await lock_job_for_requeue(conn, job_id, is_continuation=operation.items > 0)
    plan = ImportParams.from_json(await read_job_params(conn, job_id)).plan
    assert plan is not None  # noqa: S101  checked before the operation was added
    predicate = operation.predicate
    repairer = _RowRepairer(rule, predicate["column"], plan, predicate["max_row_bytes"])

    async def fix_rows(rows: Sequence[FailedRow]) -> int:
        repaired, _ = await asyncio.to_thread(repairer.repair_rows, rows)
        inputs = {seq: row.data for seq, row in repaired.items()}
        if not inputs:
            return 0
        fixed = await fix_and_requeue_failed_items(conn, job, inputs, by=operation.user_id, operation_id=operation.id)
        return len(fixed)

    return fix_rows


async def _make_row_dropper(conn: Connection, operation: BulkOperation, job_id: UUID, _: RepairRule) -> ChangeRows:
    async def dismiss_rows(rows: Sequence[FailedRow]) -> int:
        selection = ReprocessSelection((ItemStatus.FAILED,), [row.row - 1 for row in rows])
        return (await set_dismissed_for_chunk(conn, job_id, selection, dismiss=True, user_id=operation.user_id))[0]

    return dismiss_rows


async def _read_chunk(
    conn: Connection, job_id: UUID, cause: str, *, after_seq: int, limit: int
) -> import_records.FailedRowsChunk:
    return await import_records.read_failed_rows_chunk(
        conn, job_id, after_seq=after_seq, limit=limit, codes=[cause], with_dismissed=False, exact=True
    )
