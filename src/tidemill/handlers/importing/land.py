"""Writing the good rows: COPY for new ones, one UPDATE for those that are there, and a second look when that fails."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from tidemill.domain.importing import ImportPlan, picked
from tidemill.handlers.importing.judge import PASSED_OVER, Judge
from tidemill.store.target_refusals import Moved, Refusal, Unclear
from tidemill.store.target_rows import lines

LOOKS = 4  # again, at a table that others write to meanwhile
LANDINGS = 48  # parts that a batch is written in at most: more than 64 subtransactions slow every other session
PIECE_MIN = 4

Effects = Counter[str]


async def land(plan: ImportPlan, judge: Judge) -> Effects:
    """Write; how many rows were inserted, updated, unchanged. Rows that the table refuses are marked as bad."""
    await judge.target.check_at_once()
    if plan.validate_only:
        await judge.target.create_trials()
    for _ in range(LOOKS):
        try:
            return await _write(plan, judge, judge.good())
        except Moved as moved:
            await judge.look_after(moved)
        except Refusal:
            known = len(judge.checked.flaws.rows)
            await judge.look()  # whatever it was: what a look can tell of other rows does not depend on it
            if len(judge.checked.flaws.rows) == known:
                break
    await judge.target.refuse_other_shape(plan.given)
    return await _Pieces(plan, judge).write()


class _Pieces:
    """Good rows apart from those that nobody but the table itself could tell to be bad.

    Pieces are tried and grow while they are taken; what was taken is written again, with more, until it is worth a
    savepoint that stays: few of those are kept, however many rows are bad.
    """

    def __init__(self, plan: ImportPlan, judge: Judge) -> None:
        self._plan = plan
        self._judge = judge
        self._left = _in_key_order(plan, judge, judge.good())
        self._taken: list[int] = []  # on trial
        self._size = len(self._left)
        self._worth = max(1, len(self._left) // LANDINGS)
        self._effects: Effects = Counter(inserted=0, updated=0, unchanged=0)
        self._looks = 0

    async def write(self) -> Effects:
        while self._left or self._taken:
            piece = self._left[: self._size]
            try:
                await self._try(piece)
            except Refusal as refusal:
                if refusal.may_be_seen and self._looks < LOOKS:
                    await self._look_for_others()
                else:
                    self._learn(piece, refusal)
            except Moved as moved:
                await self._look_again(moved)
        return self._effects

    async def _try(self, piece: list[int]) -> None:
        rows = self._taken + piece
        last = len(piece) == len(self._left)
        if last or len(rows) >= self._worth:
            self._effects.update(await _write(self._plan, self._judge, rows))
            self._judge.landed.update(rows)
            self._taken = []
        else:
            await _write(self._plan, self._judge, rows, on_trial=True)
            self._taken = rows
        del self._left[: len(piece)]
        self._size *= 2

    def _learn(self, piece: list[int], refusal: Refusal) -> None:
        """Which row is bad: the server says so, or it is the last of ever smaller pieces."""
        judge = self._judge
        bad = None if refusal.place is None else judge.written[refusal.place]
        if bad is None and len(piece) > 1:
            self._size = len(piece) // 2
            return
        if bad is None:
            bad = piece[0] if piece else self._taken[-1]
        judge.checked.add(bad, judge.problem_of(refusal))
        if bad in self._taken:
            self._taken.remove(bad)
        else:
            place = self._left.index(bad)
            del self._left[place]
            if refusal.place is not None:
                self._size = max(PIECE_MIN, 2 * place)

    async def _look_again(self, moved: Moved) -> None:
        self._looks += 1
        if self._looks > LOOKS:
            raise moved
        await self._judge.look_after(moved)
        self._leave_bad_ones()

    async def _look_for_others(self) -> None:
        """A key may have come or gone since we looked. A look that tells nothing new is one of few."""
        before = self._known()
        await self._judge.look()
        self._leave_bad_ones()
        self._looks += self._known() == before

    def _known(self) -> tuple[int, set[int]]:
        """How many rows are bad, and which of those to be written are there."""
        return len(self._judge.checked.flaws.rows), self._judge.existing.intersection(self._taken + self._left)

    def _leave_bad_ones(self) -> None:
        good = set(self._judge.good())
        self._taken = [index for index in self._taken if index in good]
        self._left = [index for index in self._left if index in good]


async def _write(plan: ImportPlan, judge: Judge, rows: Sequence[int], *, on_trial: bool = False) -> Effects:
    """All of these rows, or none; ``on_trial``, none in any case."""
    new = [index for index in rows if index not in judge.existing]
    there = [index for index in rows if index in judge.existing]
    async with judge.target.attempt(undo=on_trial):
        passed_over = await _copy(plan, judge, new)
        changed = await _update(plan, judge, there)
    if not on_trial:
        judge.refuse(passed_over)
    return Counter(inserted=len(new) - len(passed_over), updated=changed, unchanged=len(there) - changed)


async def _copy(plan: ImportPlan, judge: Judge, rows: Sequence[int]) -> list[int]:
    """Which rows the table has not kept, though it refused none: where there is a key to look for them by."""
    taken = 0
    for fields, group in _groups(plan, judge, rows).items():
        judge.written = _in_key_order(plan, judge, group)
        columns = [picked(judge.checked.columns[name], judge.written) for name in fields]
        data = lines(columns) if columns else b"\n" * len(group)
        taken += await judge.target.copy(fields, data, on_trial=plan.validate_only)
    judge.written = []
    absent = [] if taken == len(rows) else await judge.absent(rows)
    if len(absent) > len(rows) - taken:
        raise Unclear(PASSED_OVER)
    return absent


async def _update(plan: ImportPlan, judge: Judge, rows: list[int]) -> int:
    """How many were different."""
    count = 0
    # A key that a row leaves out has the value that it was found by, its default: without it nothing would be updated.
    lacking = {name: absent for name, absent in judge.checked.absent.items() if name not in plan.resource.key}
    for fields, group in _by_fields(plan, rows, lacking).items():
        ordered = _in_key_order(plan, judge, group)
        values = judge.checked.tuples(fields, ordered)
        changed = await judge.target.update(fields, values, on_trial=plan.validate_only)
        left = [place for place in range(len(ordered)) if place not in changed]
        same = await judge.target.same(fields, [values[place] for place in left]) if left else set()
        if len(same) < len(left):
            raise Moved([ordered[place] for at, place in enumerate(left) if at not in same])
        count += len(changed)
    return count


def _groups(plan: ImportPlan, judge: Judge, rows: Sequence[int]) -> dict[tuple[str, ...], list[int]]:
    """Rows by the fields they have: what the table fills by itself must be left out where it is empty."""
    columns, lacking = judge.checked.columns, {}
    for name in plan.given:
        field = plan.resource.field(name)
        if field.filled and None in columns[name]:
            asked = judge.checked.absent.get(name, set()) if plan.keeps_nothing(field) else rows
            lacking[name] = {index for index in asked if columns[name][index] is None}
    return _by_fields(plan, rows, lacking)


def _by_fields(
    plan: ImportPlan, rows: Sequence[int], lacking: Mapping[str, Collection[int]]
) -> dict[tuple[str, ...], list[int]]:
    """Rows by the fields that are left when each is without those it lacks."""
    if not lacking:
        return {plan.given: list(rows)} if rows else {}
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in rows:
        groups[tuple(name for name in plan.given if index not in lacking.get(name, ()))].append(index)
    return groups


def _in_key_order(plan: ImportPlan, judge: Judge, rows: Sequence[int]) -> list[int]:
    """So that two transactions with common keys wait for each other, and never each for the other."""
    key = [name for name in plan.resource.key if name in plan.given]
    if not key:
        return list(rows)
    if len(key) == 1:
        column = judge.checked.columns[key[0]]
        return sorted(rows, key=lambda index: column[index] or "")
    return sorted(rows, key=lambda index: [judge.checked.columns[name][index] or "" for name in key])
