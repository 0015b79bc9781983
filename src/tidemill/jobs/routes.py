"""Routes for jobs and their items: submission, lists, details, control, fixes and kickoffs."""

import re
from dataclasses import asdict, replace
from typing import Annotated, Any

import pydantic
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from tidemill.core.coalescers import RequestCoalescer
from tidemill.core.errors import Conflict, IdempotencyKeyReused, InvalidInput, InvalidRequest, UnknownKind
from tidemill.core.job import Job
from tidemill.core.principal import Principal
from tidemill.core.status import JobStatus
from tidemill.jobs import job_control, queries, reprocessing, submission, upload
from tidemill.jobs.job_views import build_job_out, build_job_view, read_job_detail
from tidemill.jobs.route_dependencies import (
    ItemSeq,
    JobName,
    RunnableJob,
    VisibleJob,
    VisibleJobId,
    get_owner_scope,
    list_jobs_by_query,
    make_file_reference,
    make_submission_from_request,
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
    JobIn,
    JobListQuery,
    JobOut,
    JobPage,
    KickoffOut,
    PageQuery,
    ProgressPointOut,
)
from tidemill.jobs.submission import Submission
from tidemill.rest import dependencies, request_body
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, IdempotencyKey, RuntimeDep, parse_idempotency_key
from tidemill.rest.problems import PROBLEM_ERRORS_MAX, HttpError, build_field_problem
from tidemill.rest.request_body import BodyLimit, has_json_content_type
from tidemill.rest.responses import JsonBytesResponse, encode_json, run_until_disconnect
from tidemill.rest.schema_types import BINARY_CONTENT, BINARY_SCHEMA
from tidemill.rest.schema_types import QueryModel as Parameters
from tidemill.runtime import Runtime

_JOB_PROPERTIES: dict[str, dict[str, Any]] = {
    "kind": {"type": "string", "maxLength": 200},
    "params": {"type": "string", "description": "A JSON object"},
    "policy": {"type": "string", "description": "A JSON object; see PolicyIn"},
    "priority": {"type": "integer", "minimum": -100, "maximum": 100},
    "format": {"$ref": "#/components/schemas/SourceFormat"},
    "filename": {
        "type": "string",
        "description": "Name of the file. Its suffix sets the format unless the request sets `format`",
    },
}
_JOB_FORM_SCHEMA = {
    "type": "object",
    "properties": _JOB_PROPERTIES
    | {"file": {"anyOf": [BINARY_SCHEMA, {"type": "array", "items": BINARY_SCHEMA, "description": "Images"}]}},
    "required": ["kind", "file"],
}
_INPUTS_EXAMPLE = {"kind": "price.lookup", "inputs": [{"sku": "A-1"}, {"sku": "A-2"}]}
_SOURCE_EXAMPLE = {"kind": "price.lookup", "source": {"name": "inbox", "path": "2026/11/prices.csv"}}
_URL_EXAMPLE = {"kind": "price.lookup", "source": {"url": "https://files.example.com/prices.csv.gz"}}
_FILE_EXAMPLE = {"kind": "price.lookup", "source": {"file_id": "3f1c6a0e9b2d4c583f1c6a0e9b2d4c58"}}

JOB_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"$ref": "#/components/schemas/JobIn"},
            "examples": {
                "inputs": {"summary": "Inputs, each of which becomes an item", "value": _INPUTS_EXAMPLE},
                "source": {"summary": "A file of a configured folder or bucket", "value": _SOURCE_EXAMPLE},
                "url": {"summary": "A file that a worker downloads", "value": _URL_EXAMPLE},
                "file": {"summary": "The file of an earlier job or export", "value": _FILE_EXAMPLE},
            },
        },
        "multipart/form-data": {
            "schema": _JOB_FORM_SCHEMA,
            "example": {"kind": "price.lookup", "file": "sku\nA-1\nA-2\n"},
        },
        "text/csv": {"schema": BINARY_SCHEMA, "example": "sku\nA-1\nA-2\n"},
        "text/tab-separated-values": BINARY_CONTENT,
        "application/x-ndjson": {"schema": BINARY_SCHEMA, "example": '{"sku": "A-1"}\n{"sku": "A-2"}\n'},
        "application/zip": BINARY_CONTENT,
        "image/*": BINARY_CONTENT,
    },
}

# Only for a body that is a file: JSON bodies and forms contain these parameters.
JOB_QUERY_PARAMETERS = [
    {"name": name, "in": "query", "required": False, "schema": schema, "description": "Only if the body is a file"}
    for name, schema in _JOB_PROPERTIES.items()
]


submit_router = APIRouter(tags=["jobs"], route_class=AuthenticatedRoute)
JOB_KEY_PREFIX = "jobs"
UPLOAD_JOB_FIELDS = {"kind", "params", "policy", "priority"}
UPLOAD_FILE_FIELDS = {"format", "filename"}
_PARAM_PROBLEM_REGEX = re.compile(r"(?P<path>params(?:\.\w+|\[\d+\])*): (?P<reason>.*)", re.DOTALL)

_REPEATED_JOB_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The job of an earlier request with the same Idempotency-Key", "model": JobOut}
}
_SUBMIT_JOB_OPTIONS = build_route_options(
    Permission.USER,
    *(400, 409, 413, 415),
    extra_responses=_REPEATED_JOB_RESPONSE,
    body=BodyLimit.UPLOAD,
    json_body=BodyLimit.INLINE_INPUTS,
)
_SUBMIT_JOB_OPTIONS["openapi_extra"] |= {"requestBody": JOB_BODY, "parameters": JOB_QUERY_PARAMETERS}


@submit_router.post("/jobs", status_code=202, **_SUBMIT_JOB_OPTIONS)
async def submit_job(
    request: Request,
    response: Response,
    me: CurrentUser,
    runtime: RuntimeDep,
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """Create a job. Send its inputs as JSON, or send a file.

    Send a file as multipart, or as the body with `kind` in the query. Send images as several parts or as one zip. Each
    image becomes an item. When the response arrives, the job is durable.
    """
    base = make_submission_from_request(
        request, me, idem_key=_build_idempotency_key(idempotency_key), batch_size=runtime.settings.claim_max
    )
    try:
        job, is_new = await _submit_with_located_errors(request, runtime, base, me)
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused("The Idempotency-Key was already used for a different request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    response.headers["Retry-After"] = "1"
    return build_job_out(runtime, job)


async def _submit_with_located_errors(
    request: Request, runtime: Runtime, base: Submission, me: Principal
) -> tuple[Job, bool]:
    """Submit the job; report an invalid parameter with its location in the request."""
    make = _submit_json if has_json_content_type(request.headers) else _submit_upload
    try:
        return await make(request, runtime, base, me)
    except UnknownKind as error:
        raise request_body.make_validation_error([((*_get_parameter_location(request), "kind"), str(error))]) from None
    except InvalidRequest as error:
        matches = [_PARAM_PROBLEM_REGEX.fullmatch(problem) for problem in error.problems]
        if not all(matches):
            raise
        problems = [
            ((*_get_parameter_location(request), *re.findall(r"\w+", match["path"])), match["reason"])
            for match in matches
            if match
        ]
        details = request_body.make_validation_error(problems).errors()[:PROBLEM_ERRORS_MAX]
        raise HttpError(422, str(error), field_problems=[build_field_problem(detail) for detail in details]) from None


def _get_parameter_location(request: Request) -> tuple[str]:
    """Return where the parameters of a request are: in its body or in its query."""
    media_type = request.headers.get("content-type", "").lower()
    return ("body",) if has_json_content_type(request.headers) or media_type.startswith("multipart/") else ("query",)


async def _submit_json(request: Request, runtime: Runtime, base: Submission, me: Principal) -> tuple[Job, bool]:
    if request.query_params:
        raise InvalidInput("Query parameters are not allowed with a JSON body. Send them in the body.")
    body = await request_body.read_json_body(request, JobIn, max_inputs=runtime.settings.max_inline_inputs)
    if (body.inputs is None) == (body.source is None):
        raise InvalidInput('Send either "inputs" or "source"')
    reference = None if body.source is None else make_file_reference(body.source, me)
    spec = await submission.prepare_submission(runtime, replace(base, **_build_submission_fields(body)), me.role)
    if body.source is not None and reference is not None:
        return await submission.submit_referenced_file(runtime, spec, reference, body.source.format)
    return await submission.submit_inputs(runtime, spec, body.inputs or [])


async def _submit_upload(request: Request, runtime: Runtime, base: Submission, me: Principal) -> tuple[Job, bool]:
    (location,) = _get_parameter_location(request)

    checked_fields: dict[str, str] | None = None
    spec = base

    async def check_fields(fields: dict[str, str]) -> None:
        """Prepare the submission before the file is read, and again only if more form fields follow the file."""
        nonlocal checked_fields, spec
        if fields != checked_fields:
            body = _parse_upload_fields(fields, location)
            spec = await submission.prepare_submission(
                runtime, replace(base, **_build_submission_fields(body)), me.role
            )
            checked_fields = dict(fields)
            if spec.existing is None:
                await submission.check_quota_before_upload(runtime.db, spec)

    file = await upload.receive_upload(request, runtime, check=check_fields)
    async with upload.discard_upload_on_error(runtime, file):
        await check_fields(file.fields)
    return await submission.submit_upload(runtime, spec, file.blob, file.name, file.format)


def _parse_upload_fields(fields: dict[str, str], location: str) -> JobIn:
    """Parse the form fields or query parameters of an upload; ``params`` and ``policy`` are JSON."""
    unknown = sorted(set(fields) - UPLOAD_JOB_FIELDS - UPLOAD_FILE_FIELDS)
    if unknown:
        raise request_body.make_validation_error([((location, name), "unknown field") for name in unknown])
    values: dict[str, Any] = {name: value for name, value in fields.items() if name in UPLOAD_JOB_FIELDS}
    for name in ("params", "policy"):
        if name in values:
            values[name] = _parse_json_field((location, name), values[name])
    try:
        return JobIn.model_validate(values)
    except pydantic.ValidationError as error:
        raise request_body.to_request_validation_error(error, location) from error


def _parse_json_field(location: tuple[str, str], text: str) -> Any:
    try:
        return pydantic.TypeAdapter(dict[str, Any]).validate_json(text)
    except pydantic.ValidationError as error:
        raise request_body.make_validation_error(
            [(location, f"must be a JSON object: {error.errors()[0]['msg']}")]
        ) from error


def _build_submission_fields(body: JobIn) -> dict[str, Any]:
    policy = body.policy.model_dump(exclude_none=True)
    return {"kind": body.kind, "params": body.params, "policy": policy, "priority": body.priority}


def _build_idempotency_key(header: str | None) -> str | None:
    key = parse_idempotency_key(header)
    return None if key is None else f"{JOB_KEY_PREFIX} {key}"


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
    sorted by last change, oldest first. With `seq`, `key` or `sort=seq`, it is always sorted by seq.

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
        sort=query.sort,
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
async def fix_item_input(
    job: RunnableJob, seq: ItemSeq, body: FixIn, me: CurrentUser, runtime: RuntimeDep
) -> FixCreatedOut:
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
