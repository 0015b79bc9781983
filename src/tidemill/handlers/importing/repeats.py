"""Rows of the file that share a key: ingest has seen which come first; here their keys are compared for certain."""

from collections.abc import Sequence

from tidemill.domain.importing import Checked, Checker, ImportPlan
from tidemill.domain.item import Item
from tidemill.domain.values import Problem
from tidemill.domain.values.problem import shown
from tidemill.store import imports
from tidemill.store.database import Connection


async def find_repeats(
    conn: Connection, plan: ImportPlan, checker: Checker, checked: Checked, items: Sequence[Item]
) -> dict[int, Problem]:
    """Rows to pass over because another row of their key is the one; with ``error`` they fail instead."""
    found = await imports.repeats(conn, items[0].job_id, items[0].seq, items[-1].seq)
    if not found:
        return {}
    places = {item.seq: index for index, item in enumerate(items)}
    found = [repeat for repeat in found if repeat.seq in places]
    others = checker.check([repeat.other_input for repeat in found])
    skipped: dict[int, Problem] = {}
    for at, repeat in enumerate(found):
        index, fields = places[repeat.seq], plan.watched[repeat.place]
        mine, theirs = checked.tuples(fields, [index])[0], others.tuples(fields, [at])[0]
        if mine != theirs:
            continue
        problem = Problem(
            ", ".join(fields), "duplicate", f"row {repeat.other + 1} has the same", shown(" ".join(map(str, mine)))
        )
        if fields == plan.resource.key and plan.duplicates != "error":
            skipped[index] = problem
        else:
            checked.add(index, problem)
    return skipped
