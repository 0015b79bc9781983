"""Sending items round again."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tidemill.domain.errors import InvalidInput
from tidemill.domain.status import REPROCESSABLE, ItemStatus
from tidemill.store import jobs, workers
from tidemill.store import reprocess as store
from tidemill.store.database import Database
from tidemill.store.reprocess import Choice


async def reprocess(db: Database, job_id: UUID, choice: Choice) -> int:
    """Open a job again for chosen items; how many. In several transactions when they are many."""
    check(choice.statuses)
    if not choice.reset_attempts:
        kind = (await db.run(jobs.get, job_id)).kind
        choice = replace(choice, max_attempts=await db.run(workers.max_attempts, kind))
    taken = 0
    after: int | None = -1
    while after is not None:
        n, after = await db.run(store.reprocess, job_id, choice, after_seq=after)
        taken += n
    return taken


async def redrive(db: Database, job_ids: Sequence[UUID], *, codes: Sequence[str] | None = None) -> int:
    """Dead letters of several jobs, and what a fail_fast job had cancelled, go round again."""
    statuses = (ItemStatus.FAILED, ItemStatus.CANCELLED) if codes is None else (ItemStatus.FAILED,)
    choice = Choice(statuses=statuses, codes=codes)
    return sum([await reprocess(db, job_id, choice) for job_id in sorted(job_ids)])


def check(statuses: Sequence[ItemStatus]) -> None:
    wrong = [status.value for status in statuses if status not in REPROCESSABLE]
    if wrong:
        raise InvalidInput(f"items that are {', '.join(wrong)} are not settled: they cannot be reprocessed")
