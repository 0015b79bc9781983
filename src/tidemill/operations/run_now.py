"""Making items that wait for a retry due at once, in whatever jobs they are."""

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from tidemill.store import jobs
from tidemill.store import run_now as store
from tidemill.store.database import Database
from tidemill.store.run_now import Hastened


async def run_now(db: Database, items: Sequence[tuple[UUID, int]], owner_id: int | None, *, by: int) -> Hastened:
    """Items of jobs that are all there, and the owner's: else nothing is done. A transaction for each job."""
    grouped: dict[UUID, list[int]] = defaultdict(list)
    for job_id, seq in items:
        grouped[job_id].append(seq)
    for job_id in grouped:
        await db.run(jobs.find, str(job_id), owner_id)
    done = [await db.run(store.run_now, job_id, grouped[job_id], by=by) for job_id in sorted(grouped)]
    return sum(done, Hastened())
