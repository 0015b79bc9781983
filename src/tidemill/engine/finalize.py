"""Closing jobs of which nothing is open, and failing those whose policy tripped."""

from uuid import UUID

from tidemill.store import jobs
from tidemill.store.database import Database
from tidemill.telemetry.events import emit


async def after_batch(db: Database, job_id: UUID, *, failed: int) -> None:
    """The quick way, by the worker that just finished a batch; maintenance does the same for all, later."""
    if failed:
        await police(db, job_id)
    if await db.run(jobs.looks_drained, job_id):
        await finalize(db, job_id)


async def finalize(db: Database, job_id: UUID) -> bool:
    closed_as = await db.run(jobs.finalize, job_id)
    if closed_as is not None:
        emit("job.closed", job=job_id, closed_as=closed_as)
    return closed_as is not None


async def police(db: Database, job_id: UUID) -> None:
    reason = await db.run(jobs.police, job_id)
    if reason is not None:
        emit("job.failed", job=job_id, reason=reason)
