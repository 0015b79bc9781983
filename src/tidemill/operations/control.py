"""Pause, resume, cancel, delete."""

import time
from uuid import UUID

from tidemill.domain.identity import LOCAL_USER
from tidemill.store import delete as store_delete
from tidemill.store import jobs, maintain
from tidemill.store.about import about
from tidemill.store.database import Database
from tidemill.telemetry.events import emit
from tidemill.telemetry.summary import job_closed

PATIENCE_S = 2.0


async def pause(db: Database, job_id: UUID, *, by: int = LOCAL_USER) -> None:
    await db.run(jobs.pause, job_id, by=by)
    async with about(db, job_id):
        emit("job.paused", job=job_id)


async def resume(db: Database, job_id: UUID, *, by: int = LOCAL_USER) -> None:
    await db.run(jobs.resume, job_id, by=by)
    async with about(db, job_id):
        emit("job.resumed", job=job_id)


async def cancel(db: Database, job_id: UUID, *, by: int = LOCAL_USER) -> None:
    """Leased batches finish and keep their results; what waits is cancelled at once, the last of many by others."""
    await db.run(jobs.cancel, job_id, by=by)
    async with about(db, job_id):
        emit("job.cancelled", job=job_id)
    deadline = time.monotonic() + PATIENCE_S
    while await db.run(maintain.cancel_condemned, job_id) and time.monotonic() < deadline:
        pass
    closed = await db.run(jobs.close, job_id)
    if closed is not None:
        job_closed(closed)


async def delete(db: Database, job_id: UUID, *, by: int = LOCAL_USER) -> None:
    """Late flushes find nothing and are refused; rows and stored file go later, by maintenance and the janitor."""
    async with about(db, job_id):
        await db.run(store_delete.delete, job_id)
        emit("job.deleted", job=job_id, by=by)
