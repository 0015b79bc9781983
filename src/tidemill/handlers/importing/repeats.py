"""Rows of the file that share a key: ingest has seen which come first; here their keys are compared for certain."""

from collections.abc import Sequence

from tidemill.domain.importing import Checked, Checker, ImportPlan
from tidemill.domain.item import Item
from tidemill.domain.values import Problem
from tidemill.domain.values.same import same_texts
from tidemill.handlers.importing.judge import told
from tidemill.store import imports
from tidemill.store.database import Connection


async def find_repeats(
    conn: Connection, plan: ImportPlan, checker: Checker, checked: Checked, items: Sequence[Item]
) -> dict[int, Problem]:
    """Rows to pass over because another row of their key is the one; with ``error`` they fail instead."""
    found = await imports.repeats(conn, items[0].job_id, [item.seq for item in items])
    if not found:
        return {}
    places = {item.seq: index for index, item in enumerate(items)}
    others = checker.check([repeat.other_input for repeat in found])
    skipped: dict[int, Problem] = {}
    for at, repeat in enumerate(found):
        index, fields = places[repeat.seq], plan.watched[repeat.place]
        mine, theirs = checked.tuples(fields, [index])[0], others.tuples(fields, [at])[0]
        if not _are_same(plan, fields, mine, theirs):
            continue
        if None in mine and (index in checked.flaws.rows or at in others.flaws.rows):
            continue  # that may be a value which could not be read
        reason = f"row {repeat.other + 1} has the same"
        problem = Problem(", ".join(fields), "duplicate", reason, told(plan.resource, fields, mine))
        if fields == plan.resource.key and plan.duplicates != "error":
            skipped[index] = problem
        else:
            checked.add(index, problem)
    return skipped


def _are_same(
    plan: ImportPlan, fields: Sequence[str], mine: Sequence[str | None], theirs: Sequence[str | None]
) -> bool:
    pairs = zip(fields, mine, theirs, strict=True)
    for name, ours, other in pairs:
        first, second = same_texts(plan.resource.field(name), [ours, other])
        if first != second or (first is None and not plan.resource.tells(tuple(fields), [name])):
            return False
    return True
