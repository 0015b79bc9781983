"""HTTP routes of datasets and distributions, with their request and response models."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from typing_extensions import TypeAliasType

from tidemill.core.errors import IdempotencyKeyReused, UnknownFile
from tidemill.core.file_format import Compression, FileFormat
from tidemill.core.job import Job
from tidemill.core.kinds import DISTRIBUTION_KIND
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.distributions.dataset import Dataset, FieldType
from tidemill.distributions.use_cases import (
    Distribution,
    DistributionSpec,
    InputView,
    list_distribution_inputs,
    make_distribution_use_cases,
    make_input_file_gone_error,
    read_distribution,
    read_distributions,
    read_file_info_of_input,
)
from tidemill.jobs import bulk_operation_routes, job_control
from tidemill.jobs.bulk_operation_schemas import OperationOut
from tidemill.jobs.reprocessing import run_dead_letter_operation
from tidemill.jobs.route_dependencies import (
    ItemSeq,
    JobName,
    get_job_if_rerun_allowed,
    list_jobs_by_query,
    make_submission_from_request,
    read_visible_job,
    require_job_of_kind,
    resolve_owner_filter,
)
from tidemill.jobs.schemas import JobFilterQuery, NonNegativeInt, PolicyIn
from tidemill.rest import dependencies, request_body
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, IdempotencyKey, RuntimeDep, parse_idempotency_key
from tidemill.rest.request_body import BodyLimit
from tidemill.rest.responses import FILE_RESPONSES, JsonBytesResponse, build_stored_file_response, encode_json
from tidemill.rest.schema_types import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    AfterCursor,
    NextPageToken,
    QueryModel,
    RequestModel,
)

DistributionFormat = TypeAliasType("DistributionFormat", Literal["csv", "ndjson", "json", "xlsx", "parquet"])
DistributionCompression = TypeAliasType("DistributionCompression", Literal["none", "gzip", "zstd"])
InputType = TypeAliasType("InputType", FieldType)
CONTENT_PAGE_SIZE_MAX = 1_000


class ReuseIn(RequestModel):
    """When to reuse existing files. The defaults are in the settings."""

    enabled: StrictBool | None = None
    days: Annotated[StrictInt, Field(ge=0, le=36_500)] | None = Field(
        None, description="Regenerate the files of inputs whose date is less than this many days ago"
    )


class DistributionIn(RequestModel):
    """A distribution to submit: one file per input."""

    dataset: str = Field(min_length=1, max_length=63)
    inputs: list[dict[str, Any]] = Field(
        min_length=1,
        description="One object per file, with the fields of the dataset. No two inputs may be equal.",
    )
    reuse: ReuseIn | None = None
    policy: PolicyIn | None = Field(
        None, description="Failure policy. The default is `fail_fast`: the first failed input fails the distribution"
    )
    format: DistributionFormat | None = Field(None, description="Default: the dataset's format")
    compression: DistributionCompression | None = Field(None, description="Default: the dataset's compression")
    priority: int = Field(0, ge=-100, le=100, description="Each step doubles the job's share of its owner's capacity")


class ReuseOut(BaseModel):
    """The reuse policy at the time of submission."""

    enabled: bool
    days: int


class DistributionOut(BaseModel):
    """A distribution and its progress. `total` is the sum of the counts from `pending` to `cancelled`."""

    job_id: UUID
    key: str = Field(description="Short name of the job. Every route that accepts the id also accepts this key")
    dataset: str
    status: JobStatus
    total: NonNegativeInt
    pending: NonNegativeInt
    processing: NonNegativeInt
    retry_wait: NonNegativeInt
    done: NonNegativeInt
    not_found: NonNegativeInt
    skipped: NonNegativeInt
    failed: NonNegativeInt
    cancelled: NonNegativeInt
    files_generated: int
    files_reused: int
    error_message: str | None = Field(
        None, description="Why the distribution failed, with the first failed input and its error"
    )
    reuse: ReuseOut
    format: str
    compression: str
    policy: dict[str, Any]
    user_id: int
    created_at: datetime | None = None
    started_at: datetime | None = Field(None, description="Time when a worker started to read the inputs")
    completed_at: datetime | None = None
    links: dict[str, str] = Field(description="URLs of related resources and actions")


class InputError(BaseModel):
    """The error of an input that has no file."""

    code: str | None = None
    reason: str | None = None


class ContentOut(BaseModel):
    """The fields of an input, and its file."""

    model_config = ConfigDict(extra="allow")

    status: ItemStatus
    attempts: int
    path: str | None = Field(
        None, description="URL of the file in the blob store. A reused file is in the folder of an earlier distribution"
    )
    download_url: str | None = Field(None, description="Path in this API. A GET request to it downloads the file")
    rows: int | None = None
    size: int | None = Field(None, description="Size of the file in bytes")
    sha256: str | None = None
    reused: bool | None = None
    error: InputError | None = None


class DistributionDetail(DistributionOut):
    """A distribution and a page of its inputs, in request order."""

    data_content: list[ContentOut]
    next_page: NextPageToken = None


class DistributionPage(BaseModel):
    """A page of distributions, newest first."""

    distributions: list[DistributionOut]
    next_page: NextPageToken = None


class ContentQuery(QueryModel):
    page_size: Annotated[int, Field(ge=1, le=CONTENT_PAGE_SIZE_MAX, description="Number of inputs per page")] = (
        CONTENT_PAGE_SIZE_MAX
    )
    after: AfterCursor = None


class InputFieldOut(BaseModel):
    """A field of an input. Values of type `date` and `yyyymmdd` have the form 20240202 or 2024-02-02."""

    name: str
    type: InputType
    required: bool


class DatasetOut(BaseModel):
    """A dataset: the fields of its inputs, and the format of its files."""

    name: str
    fields: list[InputFieldOut]
    date_field: str | None = Field(
        None,
        description="Field with the date that decides whether a file is reused; without it, files are never reused",
    )
    format: str
    compression: str


class DatasetList(BaseModel):
    """The datasets that you may use."""

    datasets: list[DatasetOut]


_DISTRIBUTION_INPUT = {"index_key": "ABC", "effective_date": 20240202, "asofindicator": "CLS"}
_DISTRIBUTION: dict[str, Any] = {
    "job_id": EXAMPLE_JOB_ID,
    "key": "J20261115_000779",
    "dataset": "prices",
    "status": "completed",
}
_DISTRIBUTION |= dict.fromkeys(EXAMPLE_COUNTS, 0) | {"total": 2, "done": 2, "files_generated": 1, "files_reused": 1}
_DISTRIBUTION |= {"reuse": {"enabled": True, "days": 7}, "format": "csv", "compression": "none"}
_DISTRIBUTION |= {
    "policy": {"mode": "fail_fast"},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
}
_DISTRIBUTION |= {
    "started_at": EXAMPLE_CREATED_AT,
    "links": {"self": f"/v1/distributions/{EXAMPLE_JOB_ID}", "redrive": f"/v1/distributions/{EXAMPLE_JOB_ID}/redrive"},
}
_DISTRIBUTION_FOLDER_URL = "s3://bucket/exports/2026/11/15/J20261115_000779"
_DISTRIBUTION_CONTENT = _DISTRIBUTION_INPUT | {
    "status": "done",
    "attempts": 1,
    "path": f"{_DISTRIBUTION_FOLDER_URL}/ABC_20240202_CLS.csv",
    "rows": 500,
}
_DISTRIBUTION_CONTENT |= {"download_url": f"/v1/distributions/{EXAMPLE_JOB_ID}/files/0"}
_DISTRIBUTION_CONTENT |= {
    "size": 20110,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "reused": False,
}
_DATASET = {
    "name": "prices",
    "fields": [
        {"name": "index_key", "type": "text", "required": True},
        {"name": "effective_date", "type": "yyyymmdd", "required": True},
        {"name": "asofindicator", "type": "text", "required": True},
    ],
    "date_field": "effective_date",
    "format": "csv",
    "compression": "none",
}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    DatasetList: {"datasets": [_DATASET]},
    DistributionIn: {
        "dataset": "prices",
        "inputs": [_DISTRIBUTION_INPUT],
        "reuse": {"enabled": True, "days": 7},
    },
    DistributionOut: _DISTRIBUTION,
    DistributionDetail: _DISTRIBUTION | {"data_content": [_DISTRIBUTION_CONTENT]},
    DistributionPage: {"distributions": [_DISTRIBUTION], "next_page": EXAMPLE_NEXT_PAGE},
}


DISTRIBUTION_LINKS = ("cancel", "redrive")


def flatten_input_view(entry: InputView) -> dict[str, Any]:
    """Merge the fields of the input with those of its file. Datasets cannot declare fields with the latter names."""
    return dict(entry["input"]) | {name: value for name, value in entry.items() if name != "input"}


def build_dataset_out(dataset: Dataset) -> DatasetOut:
    return DatasetOut(
        name=dataset.name,
        fields=[InputFieldOut(name=field.name, type=field.type, required=field.required) for field in dataset.fields],
        date_field=dataset.date_field,
        format=dataset.format.value,
        compression=dataset.compression.value,
    )


def build_distribution_view(distribution: Distribution) -> dict[str, Any]:
    """Build the API response for a distribution, with the fields of ``DistributionOut``."""
    job, request, files = distribution.job, distribution.request, distribution.files
    link = f"/v1/distributions/{job.id}"
    return {
        "job_id": job.id,
        "key": job.key,
        "dataset": request.dataset,
        "status": job.status,
        **asdict(job.counts),
        "files_generated": files.generated,
        "files_reused": files.reused,
        "error_message": "; ".join(filter(None, (job.failure_reason, files.first_failure_message))) or None,
        "reuse": asdict(request.reuse),
        "format": request.format,
        "compression": request.compression,
        "policy": job.policy,
        "user_id": job.owner_id,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "completed_at": job.closed_at,
        "links": {"self": link, "job": f"/v1/jobs/{job.id}"} | {name: f"{link}/{name}" for name in DISTRIBUTION_LINKS},
    }


def _build_distribution_out(distribution: Distribution) -> DistributionOut:
    return DistributionOut.model_validate(build_distribution_view(distribution))


async def read_visible_distribution_job(distribution_id: JobName, me: CurrentUser, db: DatabaseDep) -> Job:
    job = await read_visible_job(distribution_id, me, db)
    return require_job_of_kind(job, DISTRIBUTION_KIND, "distribution", distribution_id)


VisibleDistribution = Annotated[Job, Depends(read_visible_distribution_job)]


async def read_rerunnable_distribution_job(
    distribution_id: VisibleDistribution, me: CurrentUser, runtime: RuntimeDep
) -> Job:
    return await get_job_if_rerun_allowed(distribution_id, me, runtime)


RunnableDistribution = Annotated[Job, Depends(read_rerunnable_distribution_job)]


router = APIRouter(tags=["distributions"], route_class=AuthenticatedRoute)
DISTRIBUTION_KEY_PREFIX = "distributions"
_REPEATED_DISTRIBUTION_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The distribution that an earlier request with this Idempotency-Key created",
        "model": DistributionOut,
    }
}
_SUBMIT_DISTRIBUTION_OPTIONS = build_route_options(
    Permission.USER,
    *(400, 413, 415),
    extra_responses=_REPEATED_DISTRIBUTION_RESPONSE,
    body=BodyLimit.INLINE_INPUTS,
)
_SUBMIT_DISTRIBUTION_OPTIONS["openapi_extra"] |= {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DistributionIn"}}},
    }
}
_RUNNING_REPROCESS_RESPONSE: dict[int | str, dict[str, Any]] = {
    202: {"description": "The operation continues in the background", "model": OperationOut}
}


@router.get("/datasets", **build_route_options(Permission.USER))
async def list_datasets(me: CurrentUser, runtime: RuntimeDep) -> DatasetList:
    """List the datasets that you may use, with the fields of their inputs."""
    datasets = runtime.get(make_distribution_use_cases).list_datasets(me.role)
    return DatasetList(datasets=[build_dataset_out(dataset) for dataset in datasets])


@router.post("/distributions", status_code=202, **_SUBMIT_DISTRIBUTION_OPTIONS)
async def submit_distribution(
    request: Request, response: Response, me: CurrentUser, runtime: RuntimeDep, idempotency_key: IdempotencyKey = None
) -> DistributionOut:
    """Submit a distribution: one file per input. If any input is invalid, the whole request is rejected."""
    body = await request_body.read_json_body(
        request, DistributionIn, max_inputs=runtime.settings.max_distribution_inputs
    )
    key = parse_idempotency_key(idempotency_key)
    submission = make_submission_from_request(
        request, me, idem_key=None if key is None else f"{DISTRIBUTION_KEY_PREFIX} {key}"
    )
    try:
        job_id, is_new = await runtime.get(make_distribution_use_cases).submit(
            runtime.db, _build_distribution_spec(body), me.role, submission
        )
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused("This Idempotency-Key was already used for a different request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/distributions/{job_id}"
    response.headers["Retry-After"] = "1"
    return _build_distribution_out(await read_distribution(runtime.db, job_id))


def _build_distribution_spec(body: DistributionIn) -> DistributionSpec:
    return DistributionSpec(
        body.dataset,
        body.inputs,
        reuse_enabled=None if body.reuse is None else body.reuse.enabled,
        reuse_days=None if body.reuse is None else body.reuse.days,
        format=None if body.format is None else FileFormat(body.format),
        compression=None if body.compression is None else Compression(body.compression),
        policy={} if body.policy is None else body.policy.model_dump(exclude_none=True),
        priority=body.priority,
    )


@router.get("/distributions", response_model=DistributionPage, **build_route_options(Permission.USER, 404))
async def list_distributions(
    query: Annotated[JobFilterQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> JsonBytesResponse:
    """List your distributions, newest first."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    page = await list_jobs_by_query(db, owner_id, query, DISTRIBUTION_KIND)
    views = [build_distribution_view(distribution) for distribution in await read_distributions(db, page.items)]
    return JsonBytesResponse(encode_json({"distributions": views, **dependencies.build_next_page_dict(page.after)}))


@router.get(
    "/distributions/{distribution_id}", response_model=DistributionDetail, **build_route_options(Permission.USER, 404)
)
async def get_distribution(
    distribution_id: VisibleDistribution, query: Annotated[ContentQuery, Query()], db: DatabaseDep
) -> JsonBytesResponse:
    """Get the progress of a distribution and a page of its inputs, in request order, with the paths of their files."""
    page = await list_distribution_inputs(
        db, distribution_id.id, limit=query.page_size, after=dependencies.decode_cursor(query.after)
    )
    (distribution,) = await read_distributions(db, [distribution_id])
    view = build_distribution_view(distribution) | {"data_content": [flatten_input_view(entry) for entry in page.items]}
    return JsonBytesResponse(encode_json(view | dependencies.build_next_page_dict(page.after)))


@router.get(
    "/distributions/{distribution_id}/files/{seq}",
    response_class=Response,
    **build_route_options(Permission.USER, 404, 409, 416, extra_responses=FILE_RESPONSES),
)
async def download_file(
    distribution_id: VisibleDistribution, seq: ItemSeq, request: Request, runtime: RuntimeDep
) -> Response:
    """Download the file of one input, or a byte range of it. `seq` is the index of the input, starting at 0."""
    info = await read_file_info_of_input(runtime.db, runtime.blobs, distribution_id, seq)
    try:
        return await build_stored_file_response(request, runtime, info)
    except UnknownFile:
        raise make_input_file_gone_error(distribution_id, seq) from None


@router.post("/distributions/{distribution_id}/cancel", **build_route_options(Permission.USER, 404, 409))
async def cancel_distribution(
    distribution_id: VisibleDistribution, me: CurrentUser, runtime: RuntimeDep
) -> DistributionOut:
    """Cancel a distribution. Inputs in progress finish, and existing files stay."""
    await job_control.cancel_job(runtime.db, distribution_id.id, by=me.user_id, find_kind_hooks=runtime.find_kind_hooks)
    return _build_distribution_out(await read_distribution(runtime.db, distribution_id.id))


@router.post(
    "/distributions/{distribution_id}/redrive",
    **build_route_options(Permission.USER, 404, 409, extra_responses=_RUNNING_REPROCESS_RESPONSE),
)
async def redrive_distribution(
    distribution_id: RunnableDistribution,
    me: CurrentUser,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
) -> OperationOut:
    """Retry failed inputs, and inputs that were cancelled because another input failed. The distribution reopens."""
    operation = await run_dead_letter_operation(
        runtime.db,
        owner_id=None,
        filters={"jobs": [str(distribution_id.id)]},
        user_id=me.user_id,
        request_id=request.state.request_id,
        timeout_s=bulk_operation_routes.OPERATION_WAIT_S,
        quota=runtime.settings.default_quota,
    )
    return bulk_operation_routes.set_operation_headers_and_build_out(response, operation)
