"""Distributions in the shapes of answers.

Distributions: a file for each of many inputs.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from tidemill.core.errors import IdempotencyKeyReused, UnknownFile
from tidemill.core.file_format import Compression, FileFormat
from tidemill.core.job import Job
from tidemill.core.kinds import DISTRIBUTION_KIND
from tidemill.core.kinds import DISTRIBUTION_KIND as DISTRIBUTE
from tidemill.distributions import artifact_records
from tidemill.distributions.artifact_records import DistributionFileCounts
from tidemill.distributions.dataset import Dataset
from tidemill.distributions.schemas import (
    ContentQuery,
    DatasetList,
    DatasetOut,
    DistributionDetail,
    DistributionIn,
    DistributionOut,
    DistributionPage,
    InputFieldOut,
)
from tidemill.distributions.use_cases import (
    DistributionSpec,
    InputView,
    get_artifact_info,
    get_distribution_request,
    list_distribution_inputs,
    make_artifact_gone_error,
    make_distribution_use_cases,
)
from tidemill.jobs import bulk_operation_routes, job_control
from tidemill.jobs.bulk_operation_schemas import OperationOut
from tidemill.jobs.dependencies import (
    ItemSeq,
    JobName,
    check_job_kind,
    list_visible_jobs,
    load_runnable_job,
    load_visible_job,
    make_submission,
    resolve_owner_filter,
)
from tidemill.jobs.reprocessing import redrive_dead_letters
from tidemill.jobs.schemas import JobFilterQuery
from tidemill.rest import json_body, pagination
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, declare_route
from tidemill.rest.file_download import FILE_RESPONSES, send_stored_file
from tidemill.rest.idempotency import IdempotencyKey, parse_idempotency_key
from tidemill.rest.responses import JsonBytesResponse, encode_json
from tidemill.rest.runtime import DatabaseDep, RuntimeDep
from tidemill.store import job_records
from tidemill.store.database import Database

DISTRIBUTION_LINKS = ("cancel", "redrive")


async def load_distribution_views(db: Database, found: Sequence[Job]) -> list[dict[str, object]]:
    files = await db.read(artifact_records.count_distribution_files, [job.id for job in found]) if found else {}
    return [_build_distribution_view(job, files.get(job.id, DistributionFileCounts())) for job in found]


async def load_distribution_view(db: Database, job: Job) -> dict[str, object]:
    (found,) = await load_distribution_views(db, [job])
    return found


def build_content_view(entry: InputView) -> dict[str, object]:
    """The input's own fields first: none of them has a name of ours."""
    return dict(entry["input"]) | {name: value for name, value in entry.items() if name != "input"}


def build_dataset_out(dataset: Dataset) -> DatasetOut:
    return DatasetOut(
        name=dataset.name,
        fields=[InputFieldOut(name=one.name, type=one.type, required=one.required) for one in dataset.fields],
        date_field=dataset.date_field,
        format=dataset.format.value,
        compression=dataset.compression.value,
    )


def _build_distribution_view(job: Job, files: DistributionFileCounts) -> dict[str, object]:
    request, here = get_distribution_request(job), f"/v1/distributions/{job.id}"
    return {
        "job_id": job.id,
        "key": job.key,
        "dataset": request.dataset,
        "status": job.status,
        **asdict(job.counts),
        "files_generated": files.generated,
        "files_reused": files.reused,
        "error_message": "; ".join(filter(None, (job.failure_reason, files.failure_message))) or None,
        "reuse": asdict(request.reuse),
        "format": request.format,
        "compression": request.compression,
        "policy": job.policy,
        "user_id": job.owner_id,
        "created_at": job.created_at,
        "started_at": files.started_at,
        "completed_at": job.closed_at,
        "links": {"self": here, "job": f"/v1/jobs/{job.id}"} | {name: f"{here}/{name}" for name in DISTRIBUTION_LINKS},
    }


async def load_visible_distribution(distribution_id: JobName, me: CurrentUser, db: DatabaseDep) -> Job:
    return check_job_kind(await load_visible_job(distribution_id, me, db), DISTRIBUTE, "distribution", distribution_id)


VisibleDistribution = Annotated[Job, Depends(load_visible_distribution)]


async def load_runnable_distribution(distribution_id: VisibleDistribution, me: CurrentUser, runtime: RuntimeDep) -> Job:
    return await load_runnable_job(distribution_id, me, runtime)


RunnableDistribution = Annotated[Job, Depends(load_runnable_distribution)]


router = APIRouter(tags=["distributions"], route_class=AuthenticatedRoute)
DISTRIBUTION_KEY_PREFIX = "distributions"
_REPEATED_DISTRIBUTION_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "What this key made before", "model": DistributionOut}
}
_SUBMIT_DISTRIBUTION_OPTIONS = declare_route(
    Permission.USER, 400, 413, 415, extra_responses=_REPEATED_DISTRIBUTION_RESPONSE
)
_SUBMIT_DISTRIBUTION_OPTIONS["openapi_extra"] |= {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DistributionIn"}}},
    }
}
_RUNNING_OPERATION_RESPONSE: dict[int | str, dict[str, Any]] = {
    202: {"description": "It goes on without you", "model": OperationOut}
}


@router.get("/datasets", **declare_route(Permission.USER))
async def list_datasets(me: CurrentUser, runtime: RuntimeDep) -> DatasetList:
    """What files you may ask for, and with which inputs."""
    return DatasetList(
        datasets=[build_dataset_out(one) for one in runtime.get(make_distribution_use_cases).list_datasets(me.role)]
    )


@router.post("/distributions", status_code=202, **_SUBMIT_DISTRIBUTION_OPTIONS)
async def submit_distribution(
    request: Request, response: Response, me: CurrentUser, runtime: RuntimeDep, idempotency_key: IdempotencyKey = None
) -> DistributionOut:
    """Ask for a file for each input. Inputs that do not fit are refused, all of them, and nothing is made."""
    asked = await json_body.read_json_body(request, DistributionIn, max_inputs=runtime.settings.max_distribution_inputs)
    key = parse_idempotency_key(idempotency_key)
    spec = replace(
        make_submission(request, me),
        idem_key=None if key is None else f"{DISTRIBUTION_KEY_PREFIX} {key}",
        fingerprint_params=asked.model_dump(exclude={"inputs", "policy", "priority"}),
        policy={} if asked.policy is None else asked.policy.model_dump(exclude_none=True),
        priority=asked.priority,
        batch_size=runtime.settings.claim_max,
    )
    try:
        job_id, is_new = await runtime.get(make_distribution_use_cases).submit(
            runtime.db, spec, _build_distribution_request(asked), me.role
        )
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused("this Idempotency-Key was used for another request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/distributions/{job_id}"
    response.headers["Retry-After"] = "1"
    return DistributionOut.model_validate(
        await load_distribution_view(runtime.db, await runtime.db.read(job_records.get_job, job_id))
    )


@router.get("/distributions", response_model=DistributionPage, **declare_route(Permission.USER, 404))
async def list_distributions(
    query: Annotated[JobFilterQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> JsonBytesResponse:
    """Your distributions, the newest first."""
    page = await list_visible_jobs(db, await resolve_owner_filter(db, me, query.user_id), query, DISTRIBUTION_KIND)
    told = {"distributions": await load_distribution_views(db, page.items), **pagination.build_next_page(page.after)}
    return JsonBytesResponse(encode_json(told))


@router.get(
    "/distributions/{distribution_id}", response_model=DistributionDetail, **declare_route(Permission.USER, 404)
)
async def get_distribution(
    distribution_id: VisibleDistribution, query: Annotated[ContentQuery, Query()], db: DatabaseDep
) -> JsonBytesResponse:
    """How far it is, and where the files of its inputs are: a page of them, in the order they came in."""
    page = await list_distribution_inputs(
        db, distribution_id.id, limit=query.page_size, after=pagination.decode_cursor(query.after)
    )
    told = {"data_content": [build_content_view(one) for one in page.items], **pagination.build_next_page(page.after)}
    return JsonBytesResponse(encode_json(await load_distribution_view(db, distribution_id) | told))


@router.get(
    "/distributions/{distribution_id}/files/{seq}",
    response_class=Response,
    **declare_route(Permission.USER, 404, 409, 416, extra_responses=FILE_RESPONSES),
)
async def download_file(
    distribution_id: VisibleDistribution, seq: ItemSeq, request: Request, runtime: RuntimeDep
) -> Response:
    """The file of one input, made or used again: all of it, or a range. `seq` is its place among the inputs, from 0."""
    facts = await get_artifact_info(runtime.db, runtime.blobs, distribution_id, seq)
    try:
        return await send_stored_file(request, runtime, facts)
    except UnknownFile:
        raise make_artifact_gone_error(distribution_id, seq) from None


@router.post("/distributions/{distribution_id}/cancel", **declare_route(Permission.USER, 404, 409))
async def cancel_distribution(
    distribution_id: VisibleDistribution, me: CurrentUser, db: DatabaseDep
) -> DistributionOut:
    """What is in hand finishes, and files that are made stay; the rest is cancelled."""
    await job_control.cancel_job(db, distribution_id.id, by=me.user_id)
    found = await db.read(job_records.get_job, distribution_id.id)
    return DistributionOut.model_validate(await load_distribution_view(db, found))


@router.post(
    "/distributions/{distribution_id}/redrive",
    **declare_route(Permission.USER, 404, 409, extra_responses=_RUNNING_OPERATION_RESPONSE),
)
async def redrive_distribution(
    distribution_id: RunnableDistribution, me: CurrentUser, request: Request, response: Response, db: DatabaseDep
) -> OperationOut:
    """Send inputs that failed round again, and those that were cancelled because of them; it is open again then."""
    found = await redrive_dead_letters(
        db,
        owner_id=None,
        filters={"jobs": [str(distribution_id.id)]},
        user_id=me.user_id,
        request_id=request.state.request_id,
        timeout_s=bulk_operation_routes.OPERATION_WAIT_S,
    )
    return bulk_operation_routes.build_operation_response(response, found)


def _build_distribution_request(body: DistributionIn) -> DistributionSpec:
    return DistributionSpec(
        body.dataset,
        body.inputs,
        None if body.reuse is None else body.reuse.enabled,
        None if body.reuse is None else body.reuse.days,
        None if body.format is None else FileFormat(body.format),
        None if body.compression is None else Compression(body.compression),
    )
