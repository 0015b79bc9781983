"""Sending items round again."""

from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.errors import InvalidInput
from tidemill.domain.status import REPROCESSABLE, ItemStatus
from tidemill.store import reprocess as store
from tidemill.store.database import Database
from tidemill.store.reprocess import Choice

AT_ONCE = 50_000


async def reprocess(db: Database, job_id: UUID, choice: Choice) -> int:
    """Open a job again for chosen items; how many. In several transactions when they are many."""
    check(choice.statuses)
    taken = 0
    while True:
        n = await db.run(store.reprocess, job_id, choice, most=AT_ONCE)
        taken += n
        if n < AT_ONCE:
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
