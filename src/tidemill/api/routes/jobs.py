"""Jobs as a whole: looking at them, and what is wanted of them."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from tidemill.api import cursor
from tidemill.api.answer import Answer, encode
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.lookup import JobName, JobToRun, OwnJob, OwnJobId, full_name, list_own, own_scope, scope_of
from tidemill.api.schemas.batches import BatchOut, BatchPage
from tidemill.api.schemas.jobs import (
    ActivityOut,
    ActivityPage,
    CountsQuery,
    JobCounts,
    JobDetail,
    JobOut,
    JobPage,
    JobQuery,
    PageQuery,
    Point,
)
from tidemill.api.state import Db, Serving
from tidemill.api.views import job_detail, job_out, job_view
from tidemill.domain.job import Job
from tidemill.operations import control, inspect
from tidemill.store import jobs, samples
from tidemill.store.database import Database

router = APIRouter(tags=["jobs"], route_class=Guarded)


@router.get("/jobs", response_model=JobPage, **allow(Permission.USER, 404))
async def list_jobs(query: Annotated[JobQuery, Query()], me: Me, here: Serving) -> Answer:
    """Your jobs, the newest first."""
    owner = await own_scope(here.db, me, query.user_id)
    key = ("jobs", owner, query.model_dump_json())
    return Answer(await here.shared.look(key, lambda: _page(here.db, owner, query)))


@router.get("/jobs/counts", **allow(Permission.USER, 404))
async def count_jobs(query: Annotated[CountsQuery, Query()], me: Me, db: Db) -> JobCounts:
    """How many of your jobs are what, by status."""
    owner_id = await own_scope(db, me, query.user_id)
    return JobCounts.model_validate(asdict(await inspect.count_jobs(db, owner_id)))


@router.get("/jobs/{job}", response_model=JobDetail, **allow(Permission.USER, 404))
async def get_job(job: JobName, me: Me, here: Serving) -> Answer:
    """Its counts, which always add up; how quick it is, what failed and why, what the workers have settled on."""
    name, owner = full_name(job), scope_of(me)
    return Answer(await here.shared.look(("job", name, owner), lambda: _detail(here.db, name, owner)))


async def _page(db: Database, owner_id: int | None, query: JobQuery) -> bytes:
    page = await list_own(db, owner_id, query, query.kind or query.job_type)
    return encode({"jobs": [job_view(job) for job in page.items], **cursor.next_page(page.after)})


async def _detail(db: Database, name: str, owner_id: int | None) -> bytes:
    return encode(await job_detail(db, await db.run(jobs.get_named, name, owner_id)))


@router.get("/jobs/{job}/batches", response_model_exclude_unset=True, **allow(Permission.USER, 404))
async def list_batches(job: OwnJobId, query: Annotated[PageQuery, Query()], db: Db) -> BatchPage:
    """The batches of a job, the newest first."""
    page = await inspect.list_batches(db, job, limit=query.page_size, after=cursor.decode(query.after))
    return BatchPage(batches=[BatchOut.model_validate(row) for row in page.items], **cursor.next_page(page.after))


@router.get("/jobs/{job}/activity", response_model_exclude_unset=True, **allow(Permission.USER, 404))
async def list_activity(job: OwnJobId, query: Annotated[PageQuery, Query()], db: Db) -> ActivityPage:
    """What people did to a job, the newest first."""
    page = await inspect.list_activity(db, job, limit=query.page_size, after=cursor.decode(query.after))
    found = [ActivityOut.model_validate(row) for row in page.items]
    return ActivityPage(activity=found, **cursor.next_page(page.after))


@router.get("/jobs/{job}/chart", **allow(Permission.USER, 404))
async def get_chart(job: OwnJobId, db: Db) -> list[Point]:
    """How many items were settled at which time, in a hundred points or so."""
    return [Point(**asdict(point)) for point in await db.run(samples.chart, job)]


@router.post("/jobs/{job}/pause", **allow(Permission.USER, 404, 409))
async def pause_job(job: OwnJob, me: Me, db: Db) -> JobOut:
    """Batches in hand finish; nothing new is begun."""
    await control.pause(db, job.id, by=me.user_id)
    return await _now(db, job)


@router.post("/jobs/{job}/resume", **allow(Permission.USER, 404, 409))
async def resume_job(job: JobToRun, me: Me, db: Db) -> JobOut:
    """A paused job goes on."""
    await control.resume(db, job.id, by=me.user_id)
    return await _now(db, job)


@router.post("/jobs/{job}/cancel", **allow(Permission.USER, 404, 409))
async def cancel_job(job: OwnJob, me: Me, db: Db) -> JobOut:
    """Batches in hand finish and keep their results; the rest is cancelled."""
    await control.cancel(db, job.id, by=me.user_id)
    return await _now(db, job)


@router.delete("/jobs/{job}", status_code=204, **allow(Permission.USER, 404))
async def delete_job(job: OwnJob, me: Me, db: Db) -> None:
    """Cancel it and remove its rows, results and file. Late results are refused."""
    await control.delete(db, job.id, by=me.user_id)


async def _now(db: Database, job: Job) -> JobOut:
    return job_out(await db.run(jobs.get, job.id))
