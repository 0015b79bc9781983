"""Closing jobs of which nothing is open, and failing those whose policy tripped."""

from uuid import UUID

from tidemill.store import jobs
from tidemill.store.about import about
from tidemill.store.database import Database
from tidemill.telemetry.events import emit
from tidemill.telemetry.summary import job_closed


async def after_batch(db: Database, job_id: UUID, *, failed: int) -> None:
    """The quick way, by the worker that just finished a batch; maintenance does the same for all, later."""
    if failed:
        await police(db, job_id)
    if await db.run(jobs.looks_drained, job_id):
        await finalize(db, job_id)


async def finalize(db: Database, job_id: UUID) -> bool:
    job = await db.run(jobs.close, job_id)
    if job is not None:
        job_closed(job)
    return job is not None


async def police(db: Database, job_id: UUID) -> None:
    reason = await db.run(jobs.police, job_id)
    if reason is not None:
        async with about(db, job_id):
            emit("job.failed", job=job_id, reason=reason)
