"""Undo of imports: rows that an import wrote and that have not changed since get their earlier content back.

An undo is a bulk operation. It records what it writes in the same way as an import, so that a redo can reverse it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.core.kinds import IMPORT_KIND
from tidemill.core.list_pages import ListOrder, Page, fingerprint_filters, parse_number
from tidemill.failpoints import failpoint
from tidemill.imports import undo_log
from tidemill.imports.failed_rows import check_job_not_purged
from tidemill.imports.import_plan import ImportParams, ImportPlan
from tidemill.imports.import_records import sql
from tidemill.imports.target_table import TargetUnusable
from tidemill.imports.undo_log import UndoException, UndoRecord, UndoTotals
from tidemill.imports.undo_table import (
    LoggedLayout,
    LoggedRows,
    RecordOwner,
    ReferencingKey,
    RowRefusal,
    TableCatalog,
    is_row_timeout,
    open_reversal_savepoint,
    use_text_settings,
)
from tidemill.jobs.reprocessing import run_operation_until_end_or_timeout
from tidemill.runtime import Runtime
from tidemill.store import operation_records
from tidemill.store.database import Connection
from tidemill.store.job_records import lock_job, read_job_params
from tidemill.store.operation_records import BulkOperation, RunStep, StepProgress, record_operation_activity
from tidemill.tables.introspection.table_introspection import (
    AccessProblem,
    describe_access_problems,
    find_access_problems,
)
from tidemill.tables.resource import Resource, TableName

UNDO_VERB, REDO_VERB = "undo", "redo"
FIRST_STEP_ROWS, STEP_ROWS_MAX = 500, 10_000
STEP_S, TIMEOUT_SHRINK_FACTOR = 1.0, 16  # a step should take this long; after a timeout it gets fewer rows
REVERSE_S = 3.0  # a step starts no further part after this time, because it holds locks
SAVEPOINTS_MAX = 40  # of a step; more than 64 subtransactions slow every other session
ATTEMPTS_MAX = 400  # of a step, to isolate rows that the table refuses
SELF_REFERENCE_ROUNDS_MAX = 20
PREVIEW_S = 2.0  # one call of a preview checks rows for about this long
PREVIEW_CHUNK_ROWS = 10_000
PREVIEW_ORDER = ListOrder("undo_preview", (parse_number, parse_number))

KEPT, BLOCKED = "kept", "blocked"
_REASONS = {
    "changed": "the row has changed since",
    "deleted": "the row was deleted since",
    "exists": "a row with this key exists again",
}
Problems = dict[int, tuple[str, str]]
"""Row of a record -> error code and reason."""


@dataclass(frozen=True, slots=True)
class UndoPreview:
    """What an undo or redo would do with the first ``checked`` of its ``rows``. ``position``: where the rest begins."""

    rows: int
    checked: int
    reversed: int
    kept: int
    blocked: int
    position: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class UndoState:
    """The rows of an import that can be undone and redone, and its newest undo or redo."""

    undoable: int
    redoable: int
    operation: BulkOperation | None

    @property
    def reversed(self) -> int:
        """The number of rows that the operation reversed."""
        return 0 if self.operation is None else self.operation.items

    @property
    def kept(self) -> int:
        """The number of rows that the operation kept, because they have changed since."""
        return 0 if self.operation is None else int(self.operation.place.get(KEPT, 0))

    @property
    def blocked(self) -> int:
        """The number of rows that the operation could not reverse."""
        return 0 if self.operation is None else int(self.operation.place.get(BLOCKED, 0))


async def read_undo_state(runtime: Runtime, job: Job) -> UndoState:
    totals = await runtime.db.read(undo_log.read_undo_totals, job.id)
    last = await runtime.db.read(undo_log.find_last_undo, job.id)
    operation = None if last is None else await runtime.db.read(operation_records.get_operation, last)
    if job.purged_at is not None:
        return UndoState(0, 0, operation)
    return UndoState(totals.undoable, totals.redoable, operation)


async def preview_undo(runtime: Runtime, job: Job, *, redo: bool = False, position: object = None) -> UndoPreview:
    """Return what an undo would do with the next rows, newest first. It checks rows for about two seconds.

    Raises:
        Conflict: The import cannot be undone, or has no rows to undo.
        InvalidInput: The role of the database lacks privileges.
    """
    plan, totals = await _check_request(runtime, job, redo=redo)
    started = time.monotonic()
    checked = reversed_ = 0
    counts = {KEPT: 0, BLOCKED: 0}
    mark = fingerprint_filters(job.id, redo)
    max_id, after_row = (totals.max_id, 0) if position is None else PREVIEW_ORDER.parse_position(position, mark)
    while True:
        chunk = await runtime.db.run(_preview_chunk, job.id, plan, max_id, after_row, redo=redo)
        if chunk is None:
            rest = None
            break
        checked += chunk.rows
        reversed_ += chunk.rows - chunk.kept - chunk.blocked
        counts[KEPT] += chunk.kept
        counts[BLOCKED] += chunk.blocked
        max_id, after_row = chunk.position
        rest = PREVIEW_ORDER.build_position(mark, max_id, after_row)
        if time.monotonic() - started > PREVIEW_S:
            break
    rows = totals.redoable if redo else totals.undoable
    return UndoPreview(rows, checked, reversed_, counts[KEPT], counts[BLOCKED], rest)


async def preview_complete_undo(
    runtime: Runtime, job: Job, *, redo: bool = False, report: Callable[[UndoPreview], None] | None = None
) -> UndoPreview:
    """Return what an undo would do with all rows. ``report`` is called with each part."""
    total = part = await preview_undo(runtime, job, redo=redo)
    while part.position is not None:
        if report is not None:
            report(total)
        part = await preview_undo(runtime, job, redo=redo, position=part.position)
        total = UndoPreview(
            part.rows,
            total.checked + part.checked,
            total.reversed + part.reversed,
            total.kept + part.kept,
            total.blocked + part.blocked,
        )
    return replace(total, position=None)


class _PreviewedChunk(NamedTuple):
    rows: int
    kept: int
    blocked: int
    position: tuple[int, int]


async def _preview_chunk(
    conn: Connection, job_id: UUID, plan: ImportPlan, max_id: int, after_row: int, *, redo: bool
) -> _PreviewedChunk | None:
    record = await undo_log.read_next_record(conn, job_id, is_undo=redo, max_id=max_id)
    if record is None:
        return None
    rows = [row for row in record.list_live_rows() if record.id < max_id or row > after_row][:PREVIEW_CHUNK_ROWS]
    if not rows:
        return _PreviewedChunk(0, 0, 0, (record.id - 1, 0))
    logged = _RecordedChunk(conn, job_id, plan.resource, record, await TableCatalog.read(conn, plan.resource.table))
    problems = await logged.find_problems(rows, lock=False)
    kept = sum(code in _REASONS for code, _ in problems.values())
    return _PreviewedChunk(len(rows), kept, len(problems) - kept, (record.id, rows[-1]))


async def start_undo(
    runtime: Runtime,
    job: Job,
    *,
    redo: bool = False,
    by: int,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> BulkOperation:
    """Undo a closed import, or with ``redo`` reverse its undos.

    After ``timeout_s`` seconds the operation is returned unfinished, and a background loop continues it.

    Raises:
        Conflict: The import cannot be undone, has no rows to undo, or an undo of it is running.
        InvalidInput: The role of the database lacks privileges.
    """
    _, totals = await _check_request(runtime, job, redo=redo)
    verb = REDO_VERB if redo else UNDO_VERB
    predicate: JsonObject = {"rows": totals.redoable if redo else totals.undoable, "max_id": totals.max_id}
    db = runtime.db
    operation_id = await db.read(operation_records.make_operation_id)
    await db.run(_add_undo, job, verb, predicate, user_id=by, request_id=request_id, operation_id=operation_id)
    return await run_operation_until_end_or_timeout(db, operation_id, timeout_s, UNDO_STEPS)


async def list_undo_exceptions(
    runtime: Runtime, job: Job, *, status: str | None = None, limit: int, after: object = None
) -> Page[UndoException]:
    """Return a page of the rows that the last undo or redo kept or could not reverse."""
    return await runtime.db.read(undo_log.list_exceptions, job.id, status=status, limit=limit, after=after)


async def _check_request(runtime: Runtime, job: Job, *, redo: bool) -> tuple[ImportPlan, UndoTotals]:
    if job.kind != IMPORT_KIND:
        raise InvalidInput(f"Job {job.key} is not an import")
    check_job_not_purged(job)
    plan = ImportParams.from_json(job.params).plan
    if plan is None or not plan.is_undoable:
        raise Conflict(f'Import {job.key} kept no data for an undo. Set "undo" when you import a file.')
    if not job.is_closed:
        raise Conflict(f"Cannot undo import {job.key} while it is {job.status}. Wait until it is closed.")
    totals = await runtime.db.read(undo_log.read_undo_totals, job.id)
    if not (totals.redoable if redo else totals.undoable):
        raise Conflict(f"Import {job.key} has no rows to {'redo' if redo else 'undo'}")
    await runtime.db.run(_check_privileges, plan.resource.table)
    return plan, totals


async def _check_privileges(conn: Connection, table: TableName) -> None:
    """Raise InvalidInput with the missing grants, before the first row is changed."""
    catalog = await TableCatalog.read(conn, table)
    writable = [column.name for column in catalog.columns if not column.generated]
    lacking = await find_access_problems(conn, table, writable, "upsert")
    cursor = await conn.execute(sql("undo/may_delete"), {"schema": table.schema, "name": table.name})
    row = await cursor.fetchone()
    if row is not None and not row[1]:
        lacking.append(AccessProblem(f"role {row[0]} lacks DELETE on {table}", f"GRANT DELETE ON {table} TO {row[0]}"))
    for key in catalog.references:
        lacking += await find_access_problems(conn, key.table_name, key.columns, "read")
    if lacking:
        raise InvalidInput(f"Cannot undo an import into {table}: {describe_access_problems(lacking)}")


async def _add_undo(
    conn: Connection,
    job: Job,
    verb: str,
    predicate: JsonObject,
    *,
    user_id: int,
    request_id: str | None,
    operation_id: UUID,
) -> None:
    """Add the operation, unless an undo of the import is running. The lock of the job admits one at a time."""
    locked = await lock_job(conn, job.id)
    running = await undo_log.find_running_undo(conn, job.id)
    if running == operation_id:  # the answer to an earlier COMMIT was lost
        return
    if running is not None:
        raise Conflict(f"An undo or redo of import {job.key} is already running")
    if locked.closed_as is None:
        raise Conflict(f"Cannot undo import {job.key}: it was reopened. Wait until it is closed.")
    await undo_log.delete_exceptions(conn, job.id)
    await operation_records.add_operation(
        conn, verb, predicate, user_id=user_id, job_id=job.id, request_id=request_id, operation_id=operation_id
    )


class _RecordedChunk:
    """Rows of one record, with the checks before they are reversed."""

    def __init__(
        self, conn: Connection, job_id: UUID, resource: Resource, record: UndoRecord, catalog: TableCatalog
    ) -> None:
        self._conn = conn
        self._job_id = job_id
        self._resource = resource
        self._record = record
        self._catalog = catalog
        layout = LoggedLayout.from_json(record.layout)
        self._settings = layout.settings
        self.rows = LoggedRows(conn, resource, record.id, record.action, layout, catalog.columns)

    async def find_problems(self, rows: Sequence[int], *, lock: bool) -> Problems:
        """Return the rows that must not be reversed. With ``lock``, the others cannot change until the commit."""
        async with use_text_settings(self._conn, self._settings):
            changed = await self.rows.find_changed(rows, lock=lock)
            exists = "exists" if self._record.action == "delete" else "changed"
            codes = {row: "deleted" if is_gone else exists for row, is_gone in changed.items()}
            problems = {row: (code, _REASONS[code]) for row, code in codes.items()}
            if self._record.action != "delete":
                await self._add_referenced(rows, problems, None if lock else self._job_id)
        return problems

    async def _add_referenced(self, rows: Sequence[int], problems: Problems, job_id: UUID | None) -> None:
        """Add rows that other rows refer to. A row that only refers to itself, or to rows of the chunk, may go."""
        foreign = [key for key in self._catalog.references if not key.is_own]
        await self._add_referenced_by(foreign, rows, problems, job_id)
        await self._add_referenced_by_own(rows, problems, job_id)

    async def _add_referenced_by_own(self, rows: Sequence[int], problems: Problems, job_id: UUID | None) -> None:
        """Repeat the check without the rows that stay. If the rounds do not suffice, block all referenced rows."""
        own = [key for key in self._catalog.references if key.is_own]
        for _ in range(SELF_REFERENCE_ROUNDS_MAX if own else 0):
            if not await self._add_referenced_by(own, rows, problems, job_id):
                return
        await self._add_referenced_by(own, rows, problems, job_id, from_any_row=True)

    async def _add_referenced_by(
        self, keys: Sequence[ReferencingKey], rows: Sequence[int], problems: Problems, job_id: UUID | None,
        *, from_any_row: bool = False,
    ) -> bool:  # fmt: skip
        before = len(problems)
        for key in keys:
            good = [row for row in rows if row not in problems]
            found = await self.rows.find_referenced(good, key, job_id, from_any_row=from_any_row) if good else ()
            problems.update(dict.fromkeys(found, ("referenced", f"a row of {key.table_name} refers to it")))
        return len(problems) > before

    async def reverse_rows(self, rows: Sequence[int], owner: RecordOwner) -> tuple[list[int], Problems, list[int]]:
        """Reverse rows, and isolate those that the table refuses.

        Returns the reversed rows, the refused ones, and those that are left for the next step.
        """
        done: list[int] = []
        refused: Problems = {}
        rest, size, savepoints, started = list(rows), len(rows), 0, time.monotonic()
        for _ in range(ATTEMPTS_MAX):
            if not rest or savepoints == SAVEPOINTS_MAX or time.monotonic() - started > REVERSE_S:
                break
            taken = rest[:size]
            needed: Problems = {}
            if len(taken) < len(rows):  # the check counted no references from the other rows
                await self._add_referenced_by_own(taken, needed, None)
            piece = [row for row in taken if row not in needed]
            try:
                if piece:
                    await self._reverse_in_savepoint(piece, owner)
            except RowRefusal as refusal:
                if len(piece) > 1:
                    size = (len(piece) + 3) // 4
                    continue
                refused[piece[0]] = (refusal.code, refusal.reason)
            else:
                savepoints += 1
                done += piece
                size *= 2
            refused |= needed
            del rest[: len(taken)]
        return done, refused, rest

    async def _reverse_in_savepoint(self, rows: list[int], owner: RecordOwner) -> None:
        """Record and reverse rows. RowRefusal if the table does not accept all of them; then none is changed."""
        async with open_reversal_savepoint(self._conn, self._resource):
            async with use_text_settings(self._conn, self._settings):
                record_id = await self.rows.log_reversal(rows, owner)
            failpoint("undo.rows_recorded")
            async with use_text_settings(self._conn, self._settings, to_read=True):
                count = await self.rows.reverse(rows)
            failpoint("undo.rows_reversed")
            if count != len(rows):
                raise RowRefusal("refused", "a trigger of the table discarded the change")
            async with use_text_settings(self._conn, self._settings):
                if not await self.rows.hash_written(record_id):
                    raise RowRefusal("refused", "a trigger of the table changed the key")


class _UndoPlace(NamedTuple):
    """Where an undo continues: after a row of a record; records are visited from the newest to the oldest.

    Rows that refer to each other can block each other. So if rows were blocked, and others were reversed, the remaining
    rows are visited again.
    """

    max_id: int
    after_row: int = 0
    chunk_rows: int = FIRST_STEP_ROWS
    kept: int = 0
    blocked: int = 0
    reversed_in_round: int = 0
    is_end: bool = False

    def to_json(self) -> JsonObject:
        return {**self._asdict(), "unchanged": self.kept + self.blocked}


async def run_undo_step(conn: Connection, operation: BulkOperation) -> StepProgress:
    """Reverse the next rows. Every row is visited once, and again if rows that refer to it were reversed."""
    job_id, predicate = operation.job_id, operation.predicate
    place = _UndoPlace(
        **{"max_id": predicate["max_id"]}
        | {name: value for name, value in operation.place.items() if name in _UndoPlace._fields}
    )
    if job_id is None or place.is_end:
        return StepProgress(0, None, None)
    job = await lock_job(conn, job_id)
    if job.purged_at is not None:
        raise Conflict("The import was purged, and its undo data was deleted")
    plan = ImportParams.from_json(await read_job_params(conn, job_id)).plan
    assert plan is not None  # noqa: S101  checked before the operation was added
    record = await undo_log.read_next_record(conn, job_id, is_undo=operation.verb == REDO_VERB, max_id=place.max_id)
    if record is None:
        return await _end_round(conn, operation, job_id, place)
    if record.id < place.max_id:
        place = place._replace(max_id=record.id, after_row=0)
    rows = [row for row in record.list_live_rows() if row > place.after_row][: place.chunk_rows]
    if not rows:
        return StepProgress(0, place._replace(max_id=record.id - 1, after_row=0).to_json(), None)
    owner = RecordOwner(job_id, operation.id, operation.verb == UNDO_VERB)
    try:
        async with conn.transaction():
            return await _reverse_chunk(conn, plan.resource, record, rows, owner, place)
    except TargetUnusable as error:
        raise Conflict(str(error)) from error
    except Exception as error:
        if conn.closed or not is_row_timeout(error):
            raise
        return await _handle_timeout(conn, plan.resource, record, rows, owner, place)


async def _end_round(conn: Connection, operation: BulkOperation, job_id: UUID, place: _UndoPlace) -> StepProgress:
    if place.blocked and place.reversed_in_round:
        await undo_log.delete_exceptions(conn, job_id)
        again = _UndoPlace(operation.predicate["max_id"], chunk_rows=place.chunk_rows)
        return StepProgress(0, again.to_json(), None)
    await record_operation_activity(conn, operation, job_id, operation.items, kept=place.kept, blocked=place.blocked)
    return StepProgress(0, place._replace(is_end=True).to_json(), None)


async def _reverse_chunk(
    conn: Connection, resource: Resource, record: UndoRecord, rows: list[int], owner: RecordOwner, place: _UndoPlace
) -> StepProgress:
    started = time.monotonic()
    await conn.execute(sql("target/check_at_once"))
    chunk = _RecordedChunk(conn, owner.job_id, resource, record, await TableCatalog.read(conn, resource.table))
    problems = await chunk.find_problems(rows, lock=True)
    failpoint("undo.rows_locked")
    done, refused, rest = await chunk.reverse_rows([row for row in rows if row not in problems], owner)
    end = rest[0] - 1 if rest else rows[-1]
    problems = {row: problem for row, problem in (problems | refused).items() if row <= end}
    kept = await _add_exceptions(chunk.rows, owner, problems)
    gone = set(done)
    await undo_log.set_live_rows(conn, record.id, [row for row in record.list_live_rows() if row not in gone])
    seconds = time.monotonic() - started
    fits = place.chunk_rows * 2 if seconds < STEP_S / 2 else place.chunk_rows // (1 if seconds < STEP_S * 2 else 2)
    moved = place._replace(
        max_id=record.id,
        after_row=end,
        chunk_rows=max(1, min(fits, STEP_ROWS_MAX)),
        kept=place.kept + kept,
        blocked=place.blocked + len(problems) - kept,
        reversed_in_round=place.reversed_in_round + len(done),
    )
    return StepProgress(len(done), moved.to_json(), None)


async def _add_exceptions(rows: LoggedRows, owner: RecordOwner, problems: Problems) -> int:
    """Store the rows that are not reversed. Return the number of kept ones; the others are blocked."""
    kept = {row: problem for row, problem in problems.items() if problem[0] in _REASONS}
    blocked = {row: problem for row, problem in problems.items() if row not in kept}
    for status, some in ((KEPT, kept), (BLOCKED, blocked)):
        if some:
            await rows.add_exceptions(owner, status, some)
    return len(kept)


async def _handle_timeout(
    conn: Connection, resource: Resource, record: UndoRecord, rows: list[int], owner: RecordOwner, place: _UndoPlace
) -> StepProgress:
    """Continue with fewer rows. If a single row takes too long, it is blocked."""
    if len(rows) > 1:
        fewer = max(1, len(rows) // TIMEOUT_SHRINK_FACTOR)
        return StepProgress(0, place._replace(chunk_rows=fewer).to_json(), None)
    chunk = _RecordedChunk(conn, owner.job_id, resource, record, await TableCatalog.read(conn, resource.table))
    reason = "the table did not accept the change in time: the row is locked, or a trigger is slow"
    await _add_exceptions(chunk.rows, owner, {rows[0]: ("timeout", reason)})
    moved = place._replace(max_id=record.id, after_row=rows[0], blocked=place.blocked + 1)
    return StepProgress(0, moved.to_json(), None)


UNDO_STEPS: Mapping[str, RunStep] = {UNDO_VERB: run_undo_step, REDO_VERB: run_undo_step}
