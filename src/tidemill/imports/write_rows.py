"""Writing the good rows: COPY for new ones, one UPDATE for those that are there, and a second look when that fails."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.table_checks import ROW_NOT_KEPT_REASON, TableChecker
from tidemill.imports.target_table import AmbiguousRejection, ConcurrentRowChange, TableRejection, encode_copy_rows
from tidemill.imports.validation.row_checker import pick_row_values

RECHECKS_MAX = 4  # again, at a table that others write to meanwhile
SAVEPOINTS_MAX = 48  # parts that a batch is written in at most: more than 64 subtransactions slow every other session
CHUNK_ROWS_MIN = 4

WriteCounts = Counter[str]


async def write_good_rows(plan: ImportPlan, judge: TableChecker) -> WriteCounts:
    """Write; how many rows were inserted, updated, unchanged. Rows that the table refuses are marked as bad."""
    await judge.target.set_constraints_immediate()
    if plan.validate_only:
        await judge.target.create_dry_run_tables()
    for _ in range(RECHECKS_MAX):
        try:
            return await _write_atomically(plan, judge, judge.list_good_rows())
        except ConcurrentRowChange as moved:
            await judge.recheck_after_change(moved)
        except TableRejection:
            known = len(judge.checked.errors.bad_rows)
            await judge.check_rows()  # whatever it was: what a look can tell of other rows does not depend on it
            if len(judge.checked.errors.bad_rows) == known:
                break
    await judge.target.check_columns_unchanged(plan.mapped_fields)
    return await _ChunkedWriter(plan, judge).write()


class _ChunkedWriter:
    """Good rows apart from those that nobody but the table itself could tell to be bad.

    Pieces are tried and grow while they are taken; what was taken is written again, with more, until it is worth a
    savepoint that stays: few of those are kept, however many rows are bad.
    """

    def __init__(self, plan: ImportPlan, judge: TableChecker) -> None:
        self._plan = plan
        self._checker = judge
        self._remaining = _sort_by_key(plan, judge, judge.list_good_rows())
        self._tested: list[int] = []  # on trial
        self._chunk_size = len(self._remaining)
        self._savepoint_min_rows = max(1, len(self._remaining) // SAVEPOINTS_MAX)
        self._counts: WriteCounts = Counter(inserted=0, updated=0, unchanged=0)
        self._rechecks = 0

    async def write(self) -> WriteCounts:
        while self._remaining or self._tested:
            piece = self._remaining[: self._chunk_size]
            try:
                await self._write_chunk(piece)
            except TableRejection as refusal:
                if refusal.is_key_conflict and self._rechecks < RECHECKS_MAX:
                    await self._recheck_table()
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
            await _write_atomically(self._plan, self._checker, rows, undo=True)
            self._tested = rows
        del self._remaining[: len(piece)]
        self._chunk_size *= 2

    def _mark_bad_row_or_halve_chunk(self, piece: list[int], refusal: TableRejection) -> None:
        """Which row is bad: the server says so, or it is the last of ever smaller pieces."""
        judge = self._checker
        bad = None if refusal.row_index is None else judge.last_copied_rows[refusal.row_index]
        if bad is None and len(piece) > 1:
            self._chunk_size = len(piece) // 2
            return
        if bad is None:
            bad = piece[0] if piece else self._tested[-1]
        judge.checked.add_error(bad, judge.build_row_error(refusal))
        if bad in self._tested:
            self._tested.remove(bad)
        else:
            place = self._remaining.index(bad)
            del self._remaining[place]
            if refusal.row_index is not None:
                self._chunk_size = max(CHUNK_ROWS_MIN, 2 * place)

    async def _recheck_after_change(self, moved: ConcurrentRowChange) -> None:
        self._rechecks += 1
        if self._rechecks > RECHECKS_MAX:
            raise moved
        await self._checker.recheck_after_change(moved)
        self._drop_bad_rows()

    async def _recheck_table(self) -> None:
        """A key may have come or gone since we looked. A look that tells nothing new is one of few."""
        before = self._get_check_state()
        await self._checker.check_rows()
        self._drop_bad_rows()
        self._rechecks += self._get_check_state() == before

    def _get_check_state(self) -> tuple[int, set[int]]:
        """How many rows are bad, and which of those to be written are there."""
        return len(self._checker.checked.errors.bad_rows), self._checker.existing_rows.intersection(
            self._tested + self._remaining
        )

    def _drop_bad_rows(self) -> None:
        good = set(self._checker.list_good_rows())
        self._tested = [index for index in self._tested if index in good]
        self._remaining = [index for index in self._remaining if index in good]


async def _write_atomically(
    plan: ImportPlan, judge: TableChecker, rows: Sequence[int], *, undo: bool = False
) -> WriteCounts:
    """All of these rows, or none; ``on_trial``, none in any case."""
    new = [index for index in rows if index not in judge.existing_rows]
    there = [index for index in rows if index in judge.existing_rows]
    async with judge.target.open_write_savepoint(rollback=undo):
        passed_over = await _copy_new_rows(plan, judge, new)
        changed = await _update_existing_rows(plan, judge, there)
    if not undo:
        judge.reject_rows(passed_over)
    return Counter(inserted=len(new) - len(passed_over), updated=changed, unchanged=len(there) - changed)


async def _copy_new_rows(plan: ImportPlan, judge: TableChecker, rows: Sequence[int]) -> list[int]:
    """Which rows the table has not kept, though it refused none: where there is a key to look for them by."""
    taken = 0
    for fields, group in _group_by_given_fields(plan, judge, rows).items():
        judge.last_copied_rows = _sort_by_key(plan, judge, group)
        columns = [pick_row_values(judge.checked.columns[name], judge.last_copied_rows) for name in fields]
        data = encode_copy_rows(columns) if columns else b"\n" * len(group)
        taken += await judge.target.copy_rows(fields, data, dry_run=plan.validate_only)
    judge.last_copied_rows = []
    absent = [] if taken == len(rows) else await judge.find_absent_rows(rows)
    if len(absent) > len(rows) - taken:
        raise AmbiguousRejection(ROW_NOT_KEPT_REASON)
    return absent


async def _update_existing_rows(plan: ImportPlan, judge: TableChecker, rows: list[int]) -> int:
    """How many were different."""
    count = 0
    # A key that a row leaves out has the value that it was found by, its default: without it nothing would be updated.
    lacking = {
        name: absent for name, absent in judge.checked.rows_without_field.items() if name not in plan.resource.key
    }
    for fields, group in _group_by_fields(plan, rows, lacking).items():
        ordered = _sort_by_key(plan, judge, group)
        values = judge.checked.get_tuples(fields, ordered)
        changed = await judge.target.update_rows(fields, values, dry_run=plan.validate_only)
        left = [place for place in range(len(ordered)) if place not in changed]
        same = await judge.target.find_unchanged_rows(fields, [values[place] for place in left]) if left else set()
        if len(same) < len(left):
            raise ConcurrentRowChange([ordered[place] for at, place in enumerate(left) if at not in same])
        count += len(changed)
    return count


def _group_by_given_fields(
    plan: ImportPlan, judge: TableChecker, rows: Sequence[int]
) -> dict[tuple[str, ...], list[int]]:
    """Rows by the fields they have: what the table fills by itself must be left out where it is empty."""
    columns, lacking = judge.checked.columns, {}
    for name in plan.mapped_fields:
        field = plan.resource.get_field(name)
        if field.filled and None in columns[name]:
            asked = judge.checked.rows_without_field.get(name, set()) if plan.keeps_null(field) else rows
            lacking[name] = {index for index in asked if columns[name][index] is None}
    return _group_by_fields(plan, rows, lacking)


def _group_by_fields(
    plan: ImportPlan, rows: Sequence[int], lacking: Mapping[str, Collection[int]]
) -> dict[tuple[str, ...], list[int]]:
    """Rows by the fields that are left when each is without those it lacks."""
    if not lacking:
        return {plan.mapped_fields: list(rows)} if rows else {}
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in rows:
        groups[tuple(name for name in plan.mapped_fields if index not in lacking.get(name, ()))].append(index)
    return groups


def _sort_by_key(plan: ImportPlan, judge: TableChecker, rows: Sequence[int]) -> list[int]:
    """So that two transactions with common keys wait for each other, and never each for the other."""
    key = [name for name in plan.resource.key if name in plan.mapped_fields]
    if not key:
        return list(rows)
    if len(key) == 1:
        column = judge.checked.columns[key[0]]
        return sorted(rows, key=lambda index: column[index] or "")
    return sorted(rows, key=lambda index: [judge.checked.columns[name][index] or "" for name in key])
