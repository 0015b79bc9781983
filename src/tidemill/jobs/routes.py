"""Routes for jobs and their items: lists, details, control, fixes and kickoffs."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from tidemill.core.coalescers import RequestCoalescer
from tidemill.core.errors import Conflict, UnknownKind
from tidemill.core.job import Job
from tidemill.core.status import JobStatus
from tidemill.jobs import job_control, queries, reprocessing
from tidemill.jobs.job_views import build_job_out, build_job_view, read_job_detail
from tidemill.jobs.route_dependencies import (
    ItemSeq,
    JobName,
    RunnableJob,
    VisibleJob,
    VisibleJobId,
    get_owner_scope,
    list_jobs_by_query,
    resolve_owner_filter,
    validate_job_name,
)
from tidemill.jobs.schemas import (
    ActivityOut,
    ActivityPage,
    BatchOut,
    BatchPage,
    FixCreatedOut,
    FixIn,
    ItemDetail,
    ItemPage,
    ItemQuery,
    JobCountsOut,
    JobCountsQuery,
    JobDetail,
    JobListQuery,
    JobOut,
    JobPage,
    KickoffOut,
    PageQuery,
    ProgressPointOut,
)
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, RuntimeDep
from tidemill.rest.request_body import BodyLimit
from tidemill.rest.responses import JsonBytesResponse, encode_json, run_until_disconnect
from tidemill.rest.schema_types import QueryModel as Parameters
from tidemill.runtime import Runtime

router = APIRouter(tags=["jobs"], route_class=AuthenticatedRoute)


def make_request_coalescer(_runtime: Runtime) -> RequestCoalescer[bytes]:
    return RequestCoalescer()


@router.get("/jobs", response_model=JobPage, **build_route_options(Permission.USER, 404))
async def list_jobs(query: Annotated[JobListQuery, Query()], me: CurrentUser, runtime: RuntimeDep) -> JsonBytesResponse:
    """List your jobs, newest first."""
    owner = await resolve_owner_filter(runtime.db, me, query.user_id)
    key = ("jobs", owner, query.model_dump_json())
    return JsonBytesResponse(
        await runtime.get(make_request_coalescer).get(key, lambda: _read_job_page_json(runtime, owner, query))
    )


@router.get("/jobs/counts", **build_route_options(Permission.USER, 404))
async def count_jobs(query: Annotated[JobCountsQuery, Query()], me: CurrentUser, db: DatabaseDep) -> JobCountsOut:
    """Count your jobs by status."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    return JobCountsOut.model_validate(asdict(await queries.count_jobs(db, owner_id)))


@router.get("/jobs/{job}", response_model=JobDetail, **build_route_options(Permission.USER, 404))
async def get_job(job: JobName, me: CurrentUser, runtime: RuntimeDep) -> JsonBytesResponse:
    """Get a job with its counts, rates and error codes, and how its workers adapt to the load."""
    name, owner = validate_job_name(job), get_owner_scope(me)
    return JsonBytesResponse(
        await runtime.get(make_request_coalescer).get(
            ("job", name, owner), lambda: _read_job_detail_json(runtime, name, owner)
        )
    )


async def _read_job_page_json(runtime: Runtime, owner_id: int | None, query: JobListQuery) -> bytes:
    page = await list_jobs_by_query(runtime.db, owner_id, query, query.kind or query.job_type)
    return encode_json(
        {
            "jobs": [build_job_view(runtime, job) for job in page.items],
            **dependencies.build_next_page_dict(page.after),
        }
    )


async def _read_job_detail_json(runtime: Runtime, name: str, owner_id: int | None) -> bytes:
    return encode_json(await read_job_detail(runtime, await queries.get_job_by_name(runtime.db, name, owner_id)))


@router.get("/jobs/{job}/batches", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_batches(job: VisibleJobId, query: Annotated[PageQuery, Query()], db: DatabaseDep) -> BatchPage:
    """List the batches of a job, newest first."""
    page = await queries.list_batches(db, job, limit=query.page_size, after=dependencies.decode_cursor(query.after))
    return BatchPage(
        batches=[BatchOut.model_validate(row) for row in page.items],
        **dependencies.build_next_page_dict(page.after),
    )


@router.get("/jobs/{job}/activity", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_activity(job: VisibleJobId, query: Annotated[PageQuery, Query()], db: DatabaseDep) -> ActivityPage:
    """List user actions on a job, newest first."""
    page = await queries.list_activity(db, job, limit=query.page_size, after=dependencies.decode_cursor(query.after))
    activity = [ActivityOut.model_validate(row) for row in page.items]
    return ActivityPage(activity=activity, **dependencies.build_next_page_dict(page.after))


@router.get("/jobs/{job}/chart", **build_route_options(Permission.USER, 404))
async def get_chart(job: VisibleJobId, db: DatabaseDep) -> list[ProgressPointOut]:
    """Get the number of settled items over time, in about 100 points."""
    return [ProgressPointOut(**asdict(point)) for point in await queries.get_progress_chart(db, job)]


@router.post("/jobs/{job}/pause", **build_route_options(Permission.USER, 404, 409))
async def pause_job(job: VisibleJob, me: CurrentUser, runtime: RuntimeDep) -> JobOut:
    """Pause a job. Running batches finish; no further batch starts."""
    await job_control.pause_job(runtime.db, job.id, by=me.user_id)
    return await _read_job_out(runtime, job)


@router.post("/jobs/{job}/resume", **build_route_options(Permission.USER, 404, 409))
async def resume_job(job: RunnableJob, me: CurrentUser, runtime: RuntimeDep) -> JobOut:
    """Resume a paused job."""
    await job_control.resume_job(runtime.db, job.id, by=me.user_id)
    return await _read_job_out(runtime, job)


@router.post("/jobs/{job}/cancel", **build_route_options(Permission.USER, 404, 409))
async def cancel_job(job: VisibleJob, me: CurrentUser, runtime: RuntimeDep) -> JobOut:
    """Cancel the waiting items of a job. Running batches finish and keep their results."""
    await job_control.cancel_job(runtime.db, job.id, by=me.user_id, find_kind_hooks=runtime.find_kind_hooks)
    return await _read_job_out(runtime, job)


@router.delete("/jobs/{job}", status_code=204, **build_route_options(Permission.USER, 404))
async def delete_job(job: VisibleJob, me: CurrentUser, db: DatabaseDep) -> None:
    """Cancel a job and delete its rows, results and file. Results that workers send later are discarded."""
    await job_control.delete_job(db, job.id, by=me.user_id)


async def _read_job_out(runtime: Runtime, job: Job) -> JobOut:
    return build_job_out(runtime, await queries.get_job(runtime.db, job.id))


item_router = APIRouter(tags=["items"], route_class=AuthenticatedRoute)


@item_router.get("/jobs/{job}/items", response_model=ItemPage, **build_route_options(Permission.USER, 404))
async def list_items(
    job: JobName, query: Annotated[ItemQuery, Query()], me: CurrentUser, runtime: RuntimeDep
) -> JsonBytesResponse:
    """List items of a job, sorted by seq.

    If the filter selects only open items, or only items that are not found, skipped, failed or cancelled, the list is
    sorted by last change, oldest first. With `seq` or `key`, it is always sorted by seq.

    A page sorted by seq may be short or even empty and still have a next page, because each request scans a limited
    number of items.
    """
    name, owner = validate_job_name(job), get_owner_scope(me)
    key = ("items", name, owner, query.model_dump_json())
    return JsonBytesResponse(
        await runtime.get(make_request_coalescer).get(key, lambda: _read_item_page_json(runtime, name, owner, query))
    )


async def _read_item_page_json(runtime: Runtime, name: str, owner_id: int | None, query: ItemQuery) -> bytes:
    db = runtime.db
    grid = await queries.get_item_list_scope(db, name, owner_id)
    page = await queries.list_items(
        db,
        grid,
        query.statuses,
        limit=query.page_size,
        after=dependencies.decode_cursor(query.after),
        seq=query.seq,
        codes=query.error_codes,
        key=query.key,
    )
    inputs = await queries.read_inputs_shown_in_grid(db, grid, page.items) if query.inputs else {}
    items = [item | {"input": inputs[item["seq"]]} if item["seq"] in inputs else item for item in page.items]
    return encode_json(
        {
            "columns": grid.columns.names,
            "columns_of": grid.columns.value_key,
            "items": items,
            **dependencies.build_next_page_dict(page.after),
        }
    )


@item_router.get(
    "/jobs/{job}/items/{seq}", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404)
)
async def get_item(job: VisibleJobId, seq: ItemSeq, db: DatabaseDep) -> ItemDetail:
    """Get an item with its input, fixes, result, error and attempts."""
    return ItemDetail.model_validate(await queries.get_item(db, job, seq))


@item_router.patch(
    "/jobs/{job}/items/{seq}", **build_route_options(Permission.USER, 404, 409, 413, body=BodyLimit.ITEM)
)
async def fix_item(job: RunnableJob, seq: ItemSeq, body: FixIn, me: CurrentUser, runtime: RuntimeDep) -> FixCreatedOut:
    """Fix the input of an item that failed or was not found. Reprocess the item to use the new input."""
    return FixCreatedOut(rev=await reprocessing.check_and_record_item_fix(runtime, me, job, seq, body.input))


KICKOFF_MAX_MS = 60_000
KICKOFF_STATUSES = (JobStatus.PENDING, JobStatus.INGESTING, JobStatus.RUNNING)


class KickoffQuery(Parameters):
    duration_ms: int = Field(5_000, ge=100, le=KICKOFF_MAX_MS, description="Maximum duration of the time slice")


@router.post("/jobs/{job}/kickoff", **build_route_options(Permission.USER, 404, 409))
async def kickoff_job(
    job: RunnableJob, query: Annotated[KickoffQuery, Query()], me: CurrentUser, request: Request, runtime: RuntimeDep
) -> KickoffOut:
    """Run one time slice of the job in this request. You can repeat the request.

    The slice ends early when no item is due, and when other users wait for a process. If the client disconnects, the
    results of finished items are kept, and workers can run the others.
    """
    if runtime.on_demand_pool is None:
        raise Conflict("This service has no handlers. Start it with `tidemill serve MODULE:NAME`.")
    if job.status not in KICKOFF_STATUSES:
        raise Conflict(f"Job {job.key} is {job.status} and has no items to run")
    try:
        kickoff = runtime.on_demand_pool.kickoff(job.id, job.kind, query.duration_ms / 1000, user_id=me.user_id)
        result = await run_until_disconnect(request, kickoff)
    except UnknownKind as error:
        raise Conflict(str(error)) from error
    return KickoffOut.model_validate(result, from_attributes=True)
