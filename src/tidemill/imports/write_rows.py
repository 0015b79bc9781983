"""Writes the good rows of a batch: COPY for new rows, one UPDATE for existing rows, and new checks after a failure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.table_checks import ROW_NOT_KEPT_REASON, TableChecker
from tidemill.imports.target_table import (
    AmbiguousRejection,
    ConcurrentRowChange,
    TableRejection,
    TargetTable,
)
from tidemill.imports.undo_log import UndoRecorder
from tidemill.imports.validation.row_checker import pick_row_values

RECHECKS_MAX = 4  # checks after a failure; other sessions may write to the table meanwhile
SAVEPOINTS_MAX = 48  # savepoints of a batch; more than 64 subtransactions slow every other session
CHUNK_ROWS_MIN = 4

WriteCounts = Counter[str]


async def write_good_rows(plan: ImportPlan, checker: TableChecker) -> WriteCounts:
    """Write the good rows; count the inserted, updated and unchanged ones. Rows that the table rejects become bad."""
    await checker.target.set_constraints_immediate()
    if plan.validate_only:
        await checker.target.create_dry_run_tables()
    for _ in range(RECHECKS_MAX):
        try:
            return await _write_atomically(plan, checker, checker.list_rows_to_write())
        except ConcurrentRowChange as moved:
            await checker.recheck_after_change(moved)
        except TableRejection:
            known = len(checker.checked.errors.bad_rows)
            await checker.check_rows()  # finds bad rows that have another cause, too
            if len(checker.checked.errors.bad_rows) == known:
                break
    await checker.target.check_columns_unchanged(plan.mapped_fields)
    return await _ChunkedWriter(plan, checker).write()


class _ChunkedWriter:
    """Writes rows in chunks, to find the rows that only the table itself can reject.

    A chunk is tested in a savepoint that is rolled back, and chunks grow while the table accepts them. Tested rows are
    written again, with the next chunk, until they are enough for a savepoint that is kept. So the number of savepoints
    does not depend on the number of bad rows.
    """

    def __init__(self, plan: ImportPlan, checker: TableChecker) -> None:
        self._plan = plan
        self._checker = checker
        self._remaining = _sort_by_key(plan, checker, checker.list_rows_to_write())
        self._tested: list[int] = []  # accepted by the table and rolled back
        self._chunk_size = len(self._remaining)
        self._savepoint_min_rows = max(1, len(self._remaining) // SAVEPOINTS_MAX)
        self._counts: WriteCounts = Counter(inserted=0, updated=0, unchanged=0)
        self._rechecks = 0

    async def write(self) -> WriteCounts:
        """Write the good rows and count them by effect. ConcurrentRowChange if other sessions keep changing them."""
        while self._remaining or self._tested:
            piece = self._remaining[: self._chunk_size]
            try:
                await self._write_chunk(piece)
            except TableRejection as refusal:
                if refusal.is_key_conflict and self._rechecks < RECHECKS_MAX:
                    await self._recheck_and_drop_bad_rows()
                else:
                    self._mark_bad_row_or_halve_chunk(piece, refusal)
            except ConcurrentRowChange as moved:
                await self._recheck_after_change(moved)
        return self._counts

    async def _write_chunk(self, piece: list[int]) -> None:
        rows = self._tested + piece
        last = len(piece) == len(self._remaining)
        if last or len(rows) >= self._savepoint_min_rows:
            self._counts.update(await _write_atomically(self._plan, self._checker, rows))
            self._checker.written_rows.update(rows)
            self._tested = []
        else:
            await _write_atomically(self._plan, self._checker, rows, rollback=True)
            self._tested = rows
        del self._remaining[: len(piece)]
        self._chunk_size *= 2

    def _mark_bad_row_or_halve_chunk(self, piece: list[int], refusal: TableRejection) -> None:
        """Mark the row that the server names, or the only row of the chunk; else halve the chunk."""
        checker = self._checker
        bad = None if refusal.row_index is None else checker.last_copied_rows[refusal.row_index]
        if bad is None and len(piece) > 1:
            self._chunk_size = len(piece) // 2
            return
        if bad is None:
            bad = piece[0] if piece else self._tested[-1]
        checker.checked.add_error(bad, checker.build_row_error(refusal))
        if bad in self._tested:
            self._tested.remove(bad)
        else:
            position = self._remaining.index(bad)
            del self._remaining[position]
            if refusal.row_index is not None:
                self._chunk_size = max(CHUNK_ROWS_MIN, 2 * position)

    async def _recheck_after_change(self, moved: ConcurrentRowChange) -> None:
        self._rechecks += 1
        if self._rechecks > RECHECKS_MAX:
            raise moved
        await self._checker.recheck_after_change(moved)
        self._drop_bad_rows_from_queue()

    async def _recheck_and_drop_bad_rows(self) -> None:
        """Check again, as other sessions may have changed keys. Only checks without a new result are counted."""
        before = self._count_bad_and_find_existing_rows()
        await self._checker.check_rows()
        self._drop_bad_rows_from_queue()
        self._rechecks += self._count_bad_and_find_existing_rows() == before

    def _count_bad_and_find_existing_rows(self) -> tuple[int, set[int]]:
        """The number of bad rows, and the remaining rows that exist in the table."""
        return len(self._checker.checked.errors.bad_rows), self._checker.existing_rows.intersection(
            self._tested + self._remaining
        )

    def _drop_bad_rows_from_queue(self) -> None:
        good = set(self._checker.list_rows_to_write())
        self._tested = [index for index in self._tested if index in good]
        self._remaining = [index for index in self._remaining if index in good]


async def _write_atomically(
    plan: ImportPlan, checker: TableChecker, rows: Sequence[int], *, rollback: bool = False
) -> WriteCounts:
    """Write all of these rows or none; with ``rollback``, test them and write none."""
    new = [index for index in rows if index not in checker.existing_rows]
    existing = [index for index in rows if index in checker.existing_rows]
    async with checker.target.open_write_savepoint(rollback=rollback):
        discarded = await _copy_new_rows(plan, checker, new)
        changed = await _update_existing_rows(plan, checker, existing)
    if not rollback:
        checker.reject_rows_not_kept(discarded)
    return Counter(inserted=len(new) - len(discarded), updated=changed, unchanged=len(existing) - changed)


async def _copy_new_rows(plan: ImportPlan, checker: TableChecker, rows: Sequence[int]) -> list[int]:
    """Copy rows into the table, and return those that it discarded without an error. Without a key, none are found."""
    inserted = 0
    for fields, group in _group_by_copied_fields(plan, checker, rows).items():
        checker.last_copied_rows = _sort_by_key(plan, checker, group)
        columns = [pick_row_values(checker.checked.columns[name], checker.last_copied_rows) for name in fields]
        if checker.undo_recorder is None:
            data = encode_copy_rows(columns) if columns else b"\n" * len(group)
            inserted += await checker.target.copy_rows(fields, data, dry_run=plan.validate_only)
        else:
            recorder = checker.undo_recorder
            inserted += await _copy_and_record_rows(plan, checker.target, recorder, fields, columns, len(group))
    checker.last_copied_rows = []
    absent = [] if inserted == len(rows) else await checker.find_rows_missing_in_table(rows)
    if len(absent) > len(rows) - inserted:
        raise AmbiguousRejection(ROW_NOT_KEPT_REASON)
    return absent


async def _copy_and_record_rows(
    plan: ImportPlan,
    target: TargetTable,
    recorder: UndoRecorder,
    fields: Sequence[str],
    columns: list[Sequence[str | None]],
    count: int,
) -> int:
    """Copy rows and record their keys. AmbiguousRejection if the table discarded one of several rows."""
    by_column = dict(zip((plan.resource.get_field(name).column for name in fields), columns, strict=True))
    generated = {
        name: await recorder.generate_key_column(name, count) for name in recorder.key if name not in by_column
    }
    data = encode_copy_rows([*columns, *generated.values()])
    inserted = await target.copy_rows(fields, data, dry_run=False, key_columns=list(generated))
    if inserted != count:  # a discarded row may have the key of another row
        raise AmbiguousRejection(ROW_NOT_KEPT_REASON)
    by_column |= generated
    await recorder.record_inserted([by_column[name] for name in recorder.key])
    return inserted


async def _update_existing_rows(plan: ImportPlan, checker: TableChecker, rows: list[int]) -> int:
    """Update rows and return the number of rows that changed. ConcurrentRowChange if a row changed since the check."""
    count = 0
    # A row without a key field was found by the default of that field, so the update needs the field as well.
    lacking = {
        name: absent for name, absent in checker.checked.rows_without_field.items() if name not in plan.resource.key
    }
    for fields, group in _group_by_present_fields(plan, rows, lacking).items():
        ordered = _sort_by_key(plan, checker, group)
        values = checker.checked.get_values_of_rows(fields, ordered)
        changed = await checker.target.update_rows(
            fields, values, dry_run=plan.validate_only, recorder=checker.undo_recorder
        )
        rest = [at for at in range(len(ordered)) if at not in changed]
        same = await checker.target.find_unchanged_rows(fields, [values[at] for at in rest]) if rest else set()
        if len(same) < len(rest):
            raise ConcurrentRowChange([ordered[at] for number, at in enumerate(rest) if number not in same])
        count += len(changed)
    return count


def _group_by_copied_fields(
    plan: ImportPlan, checker: TableChecker, rows: Sequence[int]
) -> dict[tuple[str, ...], list[int]]:
    """Group rows by the fields to copy. A field that the table fills is omitted for rows where it is empty."""
    columns, lacking = checker.checked.columns, {}
    for name in plan.mapped_fields:
        field = plan.resource.get_field(name)
        if field.filled and None in columns[name]:
            candidates = checker.checked.rows_without_field.get(name, set()) if plan.keeps_null(field) else rows
            lacking[name] = {index for index in candidates if columns[name][index] is None}
    return _group_by_present_fields(plan, rows, lacking)


def _group_by_present_fields(
    plan: ImportPlan, rows: Sequence[int], lacking: Mapping[str, Collection[int]]
) -> dict[tuple[str, ...], list[int]]:
    """Group rows by the fields they have; ``lacking`` has the rows without a field."""
    if not lacking:
        return {plan.mapped_fields: list(rows)} if rows else {}
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in rows:
        groups[tuple(name for name in plan.mapped_fields if index not in lacking.get(name, ()))].append(index)
    return groups


def _sort_by_key(plan: ImportPlan, checker: TableChecker, rows: Sequence[int]) -> list[int]:
    """Sort rows by key, so that two transactions with common keys lock them in one order and cannot deadlock."""
    key = [name for name in plan.resource.key if name in plan.mapped_fields]
    if not key:
        return list(rows)
    if len(key) == 1:
        column = checker.checked.columns[key[0]]
        return sorted(rows, key=lambda index: column[index] or "")
    return sorted(rows, key=lambda index: [checker.checked.columns[name][index] or "" for name in key])


def encode_copy_rows(columns: Iterable[Sequence[str | None]]) -> bytes:
    """Encode columns of text as COPY data."""
    escaped = [_escape_column(column) for column in columns]
    return ("\n".join(map("\t".join, zip(*escaped, strict=True))) + "\n").encode()


def _escape_column(column: Sequence[str | None]) -> Sequence[str]:
    if None in column:
        return ["\\N" if text is None else _escape_text(text) for text in column]
    joined = "".join(column)  # type: ignore[arg-type]
    if "\\" in joined or "\t" in joined or "\n" in joined or "\r" in joined:
        return [_escape_text(text or "") for text in column]
    return column  # type: ignore[return-value]


def _escape_text(text: str) -> str:
    text = text.replace("\\", "\\\\") if "\\" in text else text
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
