"""One job as a whole."""

from typing import Any

from fastapi import APIRouter

from tidemill.api.guard import Permission, allow
from tidemill.api.lookup import OwnJob
from tidemill.api.schemas import JobOut
from tidemill.api.state import Db
from tidemill.api.views import job_out
from tidemill.domain.job import Job
from tidemill.operations import control
from tidemill.store import jobs

router = APIRouter(tags=["jobs"])


@router.get("/jobs/{job}", **allow(Permission.USER, 404))
async def get_job(job: OwnJob) -> JobOut:
    return job_out(job)


@router.post("/jobs/{job}/pause", **allow(Permission.USER, 404, 409))
async def pause(job: OwnJob, db: Db) -> JobOut:
    """Batches in hand finish; nothing new is begun."""
    await control.pause(db, job.id)
    return await _now(db, job)


@router.post("/jobs/{job}/resume", **allow(Permission.USER, 404, 409))
async def resume(job: OwnJob, db: Db) -> JobOut:
    await control.resume(db, job.id)
    return await _now(db, job)


@router.post("/jobs/{job}/cancel", **allow(Permission.USER, 404, 409))
async def cancel(job: OwnJob, db: Db) -> JobOut:
    """Batches in hand finish and keep their results; the rest is cancelled."""
    await control.cancel(db, job.id)
    return await _now(db, job)


@router.delete("/jobs/{job}", status_code=204, **allow(Permission.USER, 404))
async def delete(job: OwnJob, db: Db) -> None:
    """Cancel it and remove its rows, results and file. Late results are refused."""
    await control.delete(db, job.id)


async def _now(db: Any, job: Job) -> JobOut:
    return job_out(await db.run(jobs.get, job.id))
