"""Sending items round again."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tidemill.domain.errors import Conflict, InvalidInput
from tidemill.domain.status import TERMINAL, ItemStatus, JobStatus
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
        if not choice.max_attempts:
            raise Conflict(f"no worker has ever had a handler for {kind!r}: nobody knows how often it may be tried")
    taken = 0
    after: int | None = -1
    while after is not None:
        n, after = await db.run(store.reprocess, job_id, choice, after_seq=after)
        taken += n
    return taken


async def redrive(db: Database, job_ids: Sequence[UUID], *, codes: Sequence[str] | None = None) -> int:
    """Dead letters of several jobs, and what a fail_fast job had cancelled, go round again."""
    taken = 0
    for job_id in sorted(job_ids):
        failed_as_a_whole = (await db.run(jobs.get, job_id)).status is JobStatus.FAILED
        cancelled = [ItemStatus.CANCELLED] if failed_as_a_whole and codes is None else []
        taken += await reprocess(db, job_id, Choice(statuses=[ItemStatus.FAILED, *cancelled], codes=codes))
    return taken


def check(statuses: Sequence[ItemStatus]) -> None:
    wrong = [status.value for status in statuses if status not in TERMINAL]
    if wrong:
        raise InvalidInput(f"items that are {', '.join(wrong)} are not settled: they cannot be reprocessed")
