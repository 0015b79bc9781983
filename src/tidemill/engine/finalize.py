"""Closing jobs of which nothing is open, and failing those whose policy tripped."""

from uuid import UUID

from tidemill.store import job_lifecycle
from tidemill.store.database import Database
from tidemill.store.job_events import bind_job_fields, report_job_closed
from tidemill.telemetry.events import emit


async def finalize_after_batch(db: Database, job_id: UUID, *, failed: int) -> None:
    """The quick way, by the worker that just finished a batch; maintenance does the same for all, later."""
    if failed:
        await enforce_failure_policy(db, job_id)
    if await db.run(job_lifecycle.has_no_open_work, job_id):
        await close_drained_job(db, job_id)


async def close_drained_job(db: Database, job_id: UUID) -> bool:
    job = await db.run(job_lifecycle.close_job, job_id)
    if job is not None:
        report_job_closed(job)
    return job is not None


async def enforce_failure_policy(db: Database, job_id: UUID) -> None:
    reason = await db.run(job_lifecycle.enforce_failure_policy, job_id)
    if reason is not None:
        async with bind_job_fields(db, job_id):
            emit("job.failed", job=job_id, reason=reason)
