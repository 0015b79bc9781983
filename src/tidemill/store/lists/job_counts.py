"""How many jobs are what: counted, but never more of them than can be looked at in a moment."""

from collections import Counter
from dataclasses import dataclass

from tidemill.domain.status import JobStatus
from tidemill.store.database import Connection, one_statement
from tidemill.store.jobs import get_many
from tidemill.store.lists.fetch import rows

BUDGET = 10_000  # jobs, the newest ones
REFINED = 500  # of those that run; whether they have begun only their sums can tell


@dataclass(frozen=True, slots=True)
class JobCounts:
    """By status; ``is_complete`` unless there are more jobs, or more that are open, than were looked at."""

    counts: dict[str, int]
    is_complete: bool


@one_statement  # and a second one, that tells again of what the first has found
async def count_jobs(conn: Connection, owner_id: int | None) -> JobCounts:
    name = "job/words_of_all" if owner_id is None else "job/words_of_owner"
    found = await rows(conn, name, {"owner_id": owner_id, "budget": BUDGET})
    seen = sum(row["n"] for row in found)
    counts = Counter({row["word"]: row["n"] for row in found})
    are_refined = True
    for row in found:
        ids = row["ids"] or []
        are_refined &= len(ids) <= REFINED
        for job in await get_many(conn, ids[:REFINED]):
            counts[row["word"]] -= 1
            counts[job.status.value] += 1
    return JobCounts({status.value: counts[status.value] for status in JobStatus}, are_refined and seen < BUDGET)
