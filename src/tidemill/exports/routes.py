"""HTTP routes of exports: job results as a file, and table rows as a stream or a file."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Query, Request, Response

from tidemill.core.errors import IdempotencyKeyReused, InvalidInput, InvalidRequest, UnknownFile
from tidemill.core.job import Job
from tidemill.core.kinds import EXPORT_KIND
from tidemill.core.principal import Principal
from tidemill.core.row_ranges import RowSelection
from tidemill.exports.result_export import ResultExportRequest
from tidemill.exports.schemas import (
    ExportIn,
    ExportListQuery,
    ExportOut,
    ExportPage,
    JobExportIn,
    JobExportQuery,
    ResultColumnOut,
)
from tidemill.exports.table_export_request import (
    TableExportPlan,
    TableExportRequest,
    parse_filter_object,
    parse_query_filters,
)
from tidemill.exports.table_exporter import stream_table_export
from tidemill.exports.use_cases import (
    ExportDetails,
    list_result_columns,
    make_export_gone_error,
    plan_table_export,
    read_export,
    read_export_file_info,
    read_exports,
    submit_result_export,
    submit_table_export,
)
from tidemill.jobs import job_control
from tidemill.jobs.bulk_operation_schemas import SelectionIn
from tidemill.jobs.job_views import build_job_out
from tidemill.jobs.route_dependencies import (
    JobName,
    VisibleJob,
    list_jobs_by_query,
    make_submission_from_request,
    parse_item_selection,
    parse_item_seqs,
    read_visible_job,
    require_job_of_kind,
    resolve_owner_filter,
)
from tidemill.jobs.schemas import ItemCountsOut, JobOut
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, IdempotencyKey, RuntimeDep, parse_idempotency_key
from tidemill.rest.responses import (
    FILE_RESPONSE_CONTENT,
    FILE_RESPONSES,
    ClosingStreamingResponse,
    await_first_chunk,
    build_stored_file_response,
    make_stream_slots,
    run_until_disconnect,
)
from tidemill.runtime import Runtime

EXPORT_KEY_PREFIX = "exports"
JOB_RESULTS_RESOURCE = "job"


def build_export_out(export: ExportDetails) -> ExportOut:
    """Build the API response for an export."""
    job, request, result = export.job, export.request, export.result
    link = f"/v1/exports/{job.id}"
    download = {} if export.is_expired else {"download": f"{link}/download"}
    return ExportOut(
        job_id=job.id,
        key=job.key,
        idempotency_key=_get_client_export_key(export.idempotency_key),
        resource_type=request.get("resource") or JOB_RESULTS_RESOURCE,
        format=request.get("format") or "csv",
        compression=request.get("compression") or "none",
        spreadsheet_safe=bool(request.get("spreadsheet_safe")),
        status=job.status,
        filters=request.get("filters") or {},
        fields=request.get("fields") or request.get("columns") or [],
        order=request.get("order") or [],
        record_count=result.get("rows"),
        size=result.get("size"),
        sha256=result.get("sha256"),
        file_id=result.get("file_id"),
        file_path=export.file_url,
        download_url=f"{link}/download" if export.file_url else None,
        failure_reason=export.failure_reason,
        counts=ItemCountsOut(**asdict(job.counts)),
        user_id=job.owner_id,
        started_at=export.started_at,
        completed_at=job.closed_at,
        created_at=job.created_at,
        expires_at=result.get("expires_at"),
        links={"self": link, "job": f"/v1/jobs/{job.id}", "cancel": f"{link}/cancel"} | download,
    )


def _get_client_export_key(key: str | None) -> str | None:
    """Return the key that the client sent; None for result exports, whose keys Tidemill generates."""
    prefix = f"{EXPORT_KEY_PREFIX} "
    return key.removeprefix(prefix) if key is not None and key.startswith(prefix) else None


async def read_visible_export(export: JobName, me: CurrentUser, db: DatabaseDep) -> Job:
    return require_job_of_kind(await read_visible_job(export, me, db), EXPORT_KIND, "export", export)


VisibleExport = Annotated[Job, Depends(read_visible_export)]


router = APIRouter(tags=["exports"], route_class=AuthenticatedRoute)
_REPEATED_JOB_EXPORT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The export that an identical earlier request created", "model": JobOut}
}


@router.post(
    "/jobs/{job}/export",
    status_code=202,
    **build_route_options(Permission.USER, 404, 409, extra_responses=_REPEATED_JOB_EXPORT_RESPONSE),
)
async def export_job(
    job: VisibleJob,
    query: Annotated[JobExportQuery, Query()],
    me: CurrentUser,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
    body: Annotated[JobExportIn, Body()] = JobExportIn(),  # noqa: B008  it is not changed
) -> JobOut:
    """Export the current results of a job: all items, or the items that the body selects.

    The file has the columns of the input, then those of the results, then the state of each item. The export runs as a
    job that writes a file. Repeating the request returns the same export while the results are unchanged.
    """
    for name in ("statuses", "columns"):
        if getattr(body, name) and getattr(query, name):
            raise InvalidInput(f"Set {name} in the query or in the body, not in both")
    wanted = ResultExportRequest.create(
        job.id,
        query.format,
        query.statuses or body.statuses,
        spreadsheet_safe=query.spreadsheet_safe,
        rows=_build_row_selection(body, job.id),
        columns=query.columns or body.columns,
        flatten=query.flatten,
        compression=query.compression,
    )
    export, is_new = await submit_result_export(runtime, make_submission_from_request(request, me), job, wanted)
    _set_submitted_headers(response, export.id, is_new=is_new)
    return build_job_out(runtime, export)


@router.get("/jobs/{job}/export/columns", **build_route_options(Permission.USER, 404, 409))
async def list_export_columns(job: VisibleJob, runtime: RuntimeDep) -> list[ResultColumnOut]:
    """List the columns that an export of a job has. Fields that only rows after the first 100 have are missing."""
    columns = await list_result_columns(runtime, job, ResultExportRequest.create(job.id, "csv"))
    return [ResultColumnOut(**asdict(column)) for column in columns]


def _set_submitted_headers(response: Response, export_id: UUID, *, is_new: bool) -> None:
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/exports/{export_id}"
    response.headers["Retry-After"] = "1"


def _build_row_selection(body: SelectionIn, job_id: UUID) -> RowSelection:
    seqs, ranges = parse_item_selection(body, job_id)
    codes = None if body.error_codes is None else frozenset(body.error_codes)
    excluded = frozenset(parse_item_seqs(body.except_, "except", job_id))
    return RowSelection(codes, body.key, None if seqs is None else frozenset(seqs), excluded, ranges)


@router.get("/exports/{export}", **build_route_options(Permission.USER, 404))
async def get_export(export: VisibleExport, runtime: RuntimeDep) -> ExportOut:
    """Get the status of an export and its file."""
    (details,) = await read_exports(runtime, [export])
    return build_export_out(details)


@router.post("/exports/{export}/cancel", **build_route_options(Permission.USER, 404, 409))
async def cancel_export(export: VisibleExport, me: CurrentUser, runtime: RuntimeDep) -> ExportOut:
    """Cancel an export and remove its file. A worker that is writing the file stops within about a second."""
    await job_control.cancel_job(runtime.db, export.id, by=me.user_id, find_kind_hooks=runtime.find_kind_hooks)
    return build_export_out(await read_export(runtime, export.id))


@router.get(
    "/exports/{export}/download",
    response_class=Response,
    **build_route_options(Permission.USER, 404, 409, 416, extra_responses=FILE_RESPONSES),
)
async def download_export(export: VisibleExport, request: Request, runtime: RuntimeDep) -> Response:
    """Download the file of a completed export, or a byte range of it."""
    info = await read_export_file_info(runtime.db, export)
    try:
        return await build_stored_file_response(request, runtime, info)
    except UnknownFile:
        raise make_export_gone_error(export) from None


STREAM_ONLY_PARAMETERS = ("format", "compression", "fields", "order", "spreadsheet_safe")
_FILTER_PARAMETER: dict[str, Any] = {
    "name": "filter",
    "in": "query",
    "required": False,
    "style": "deepObject",
    "explode": True,
    "description": "`filter[role][in]=admin,editor`, or `filter[role]=admin`; operators: eq, ne, lt, lte, gt, gte, in, "
    "like, is_null, between",
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
    "example": {"role": "admin"},
}
_LIST_EXPORTS_DESCRIPTION = (
    "With `resource`: a stream of the rows; `format=json` returns an array of objects. "
    "Without `resource`: a page of exports"
)
_ROW_STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": _LIST_EXPORTS_DESCRIPTION, "content": dict(FILE_RESPONSE_CONTENT)}
}
_LIST_EXPORTS_OPTIONS = build_route_options(Permission.USER, 404, 409, extra_responses=_ROW_STREAM_RESPONSE)
_LIST_EXPORTS_OPTIONS["openapi_extra"] |= {"parameters": [_FILTER_PARAMETER]}
_REPEATED_EXPORT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The export that an earlier request with this Idempotency-Key created", "model": ExportOut}
}


@router.get("/exports", response_model=ExportPage, response_model_exclude_unset=True, **_LIST_EXPORTS_OPTIONS)
async def list_exports(
    query: Annotated[ExportListQuery, Query()], me: CurrentUser, request: Request, runtime: RuntimeDep
) -> ExportPage | Response:
    """Stream the rows of a resource. Without `resource`, list your exports, newest first.

    If reading fails during a stream, the server closes the connection before the end of the body.
    """
    if query.resource is not None:
        return await _build_row_stream_response(query, me, request, runtime)
    _reject_parameters(query, [*STREAM_ONLY_PARAMETERS], 'Parameter "{}" requires "resource"')
    owner_id = await resolve_owner_filter(runtime.db, me, query.user_id)
    page = await list_jobs_by_query(runtime.db, owner_id, query, EXPORT_KIND)
    exports = [build_export_out(export) for export in await read_exports(runtime, page.items)]
    return ExportPage(exports=exports, **dependencies.build_next_page_dict(page.after))


@router.post(
    "/exports",
    status_code=202,
    **build_route_options(Permission.USER, 400, 404, extra_responses=_REPEATED_EXPORT_RESPONSE),
)
async def submit_export_job(
    body: ExportIn,
    me: CurrentUser,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
    idempotency_key: IdempotencyKey = None,
) -> ExportOut:
    """Export the rows of a resource to a file. You can download the file, or import it, until it expires."""
    key = parse_idempotency_key(idempotency_key)
    # Numbers stay texts, with all their digits: a number type would reject an extreme exponent.
    document = json.loads(await request.body(), parse_float=str, parse_int=str)
    wanted = _build_table_export_request(body, document.get("filters", {}))
    spec = make_submission_from_request(
        request, me, priority=body.priority, idem_key=None if key is None else f"{EXPORT_KEY_PREFIX} {key}"
    )
    try:
        job_id, is_new = await submit_table_export(runtime, spec, wanted, me.role)
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused("This Idempotency-Key was already used for a different request") from None
    _set_submitted_headers(response, job_id, is_new=is_new)
    return build_export_out(await read_export(runtime, job_id))


async def _build_row_stream_response(
    query: ExportListQuery, me: Principal, request: Request, runtime: Runtime
) -> Response:
    listing = set(type(query).model_fields) - {"resource", *STREAM_ONLY_PARAMETERS}
    _reject_parameters(query, sorted(listing), 'Parameter "{}" cannot be combined with "resource"')
    wanted = TableExportRequest(
        resource=query.resource or "",
        fields=tuple(query.fields),
        filters=tuple(parse_query_filters(request.query_params.multi_items())),
        order=tuple(query.order),
        format=query.format,
        compression=query.compression,
        spreadsheet_safe=query.spreadsheet_safe,
    )
    plan = await plan_table_export(runtime, wanted, me.role)
    headers = {"Content-Disposition": f'attachment; filename="{plan.build_file_name()}"'}
    chunks = await run_until_disconnect(request, await_first_chunk(_stream_table_in_slot(runtime, plan, me.user_id)))
    return ClosingStreamingResponse(chunks, headers, plan.file_spec.content_type)


async def _stream_table_in_slot(runtime: Runtime, plan: TableExportPlan, user_id: int) -> AsyncGenerator[bytes]:
    with runtime.get(make_stream_slots).acquire(user_id):
        async with aclosing(stream_table_export(runtime.db, plan)) as chunks:
            async for chunk in chunks:
                yield chunk


def _build_table_export_request(body: ExportIn, filters: dict[str, Any]) -> TableExportRequest:
    """Build the request of a body. ``filters`` has decimals instead of floats, which lose digits."""
    return TableExportRequest(
        resource=body.resource,
        fields=tuple(body.fields),
        filters=tuple(parse_filter_object(filters)),
        order=tuple(body.order),
        format=body.format,
        compression=body.compression,
        spreadsheet_safe=body.spreadsheet_safe,
    )


def _reject_parameters(query: ExportListQuery, names: list[str], message: str) -> None:
    """Raise InvalidRequest if the query has unknown parameters, or parameters in ``names``."""
    others = list(query.model_extra or {})
    filters = [name for name in others if name.startswith("filter[")]
    unknown = [f'Unknown parameter "{name[:100]}"' for name in others if name not in filters]
    if "resource" not in query.model_fields_set and filters:
        unknown.append(message.format(filters[0][:100]))
    problems = unknown + [message.format(name) for name in names if name in query.model_fields_set]
    if problems:
        raise InvalidRequest(problems)
