"""Writing the good rows: COPY for new ones, one UPDATE for those that are there, and a second look when that fails."""

from collections import defaultdict
from collections.abc import Sequence

from tidemill.domain.importing import ImportPlan, picked
from tidemill.domain.values import Problem
from tidemill.handlers.importing.judge import Judge
from tidemill.store.target import Refusal, lines

TRIES = 6  # at a batch whose COPY is refused; after that it is cut in two


async def land(plan: ImportPlan, judge: Judge) -> dict[str, int]:
    """Write; how many rows were inserted, updated, unchanged. Rows that the table refuses are marked as bad."""
    if plan.validate_only:
        await judge.target.create_trial()
    for _ in range(TRIES - 1):
        try:
            return await _write(plan, judge)
        except Refusal as refusal:
            await _learn(judge, refusal)
    return await _write(plan, judge)


async def _write(plan: ImportPlan, judge: Judge) -> dict[str, int]:
    good = judge.good()
    new = [index for index in good if index not in judge.existing]
    there = [index for index in good if index in judge.existing]
    async with judge.target.attempt():
        await _copy(plan, judge, good if plan.validate_only else new)
        changed = await _update(plan, judge, there)
    return {"inserted": len(new), "updated": changed, "unchanged": len(there) - changed}


async def _copy(plan: ImportPlan, judge: Judge, rows: list[int]) -> None:
    judge.written = []
    for fields, group in _groups(plan, judge, rows).items():
        judge.written = _in_key_order(plan, judge, group)
        columns = [picked(judge.checked.columns[name], judge.written) for name in fields]
        await judge.target.copy(fields, lines(columns), on_trial=plan.validate_only)


async def _update(plan: ImportPlan, judge: Judge, rows: list[int]) -> int:
    """How many were different."""
    if not rows:
        return 0
    values = judge.checked.tuples(plan.given, _in_key_order(plan, judge, rows))
    change = judge.target.differing if plan.validate_only else judge.target.update
    return len(await change(plan.given, values))


def _groups(plan: ImportPlan, judge: Judge, rows: Sequence[int]) -> dict[tuple[str, ...], list[int]]:
    """Rows by the fields they have: what the table fills by itself must be left out where it is empty."""
    columns = judge.checked.columns
    filled = [name for name in plan.given if plan.resource.field(name).filled and None in columns[name]]
    if not filled:
        return {plan.given: list(rows)} if rows else {}
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in rows:
        left_out = {name for name in filled if columns[name][index] is None}
        groups[tuple(name for name in plan.given if name not in left_out)].append(index)
    return groups


def _in_key_order(plan: ImportPlan, judge: Judge, rows: list[int]) -> list[int]:
    """So that two transactions with common keys wait for each other, and never each for the other."""
    key = [name for name in plan.resource.key if name in plan.given]
    if not key:
        return rows
    if len(key) == 1:
        column = judge.checked.columns[key[0]]
        return sorted(rows, key=lambda index: column[index] or "")
    return sorted(rows, key=lambda index: [judge.checked.columns[name][index] or "" for name in key])


async def _learn(judge: Judge, refusal: Refusal) -> None:
    """What a refusal tells: which row is bad, or that others were quicker."""
    known = len(judge.checked.problems)
    if refusal.may_be_seen:
        await judge.look()
    if len(judge.checked.problems) > known:
        return
    if refusal.place is None:
        raise refusal
    judge.checked.add(judge.written[refusal.place], Problem(refusal.column, refusal.code, refusal.reason))
