"""Exports in the shapes of answers.

Files that were made: a job's rows, or a table's.

Rows of tables: streamed at once, or as a file that a job makes.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Query, Request, Response

from tidemill.core.errors import IdempotencyKeyReused, InvalidInput, InvalidRequest, UnknownFile
from tidemill.core.job import Job
from tidemill.core.kinds import EXPORT_KIND
from tidemill.core.kinds import EXPORT_KIND as EXPORT
from tidemill.core.principal import Principal
from tidemill.core.row_ranges import RowSelection
from tidemill.core.status import JobStatus
from tidemill.exports import export_records
from tidemill.exports import use_cases as operation
from tidemill.exports.export_records import ExportRecord
from tidemill.exports.filters import parse_filter_object, parse_query_filters
from tidemill.exports.schemas import ExportIn, ExportListQuery, ExportOut, ExportPage, JobExportQuery
from tidemill.exports.table_export import TableExportPlan, TableExportRequest
from tidemill.exports.use_cases import (
    find_repeated_table_export,
    plan_table_export,
    stream_table_export,
    submit_table_export,
)
from tidemill.jobs import job_control
from tidemill.jobs.bulk_operation_schemas import SelectionIn
from tidemill.jobs.dependencies import (
    JobName,
    VisibleJob,
    check_job_kind,
    list_visible_jobs,
    load_visible_job,
    make_submission,
    parse_item_ids_of_job,
    parse_item_selection,
    resolve_owner_filter,
)
from tidemill.jobs.job_views import build_job_out
from tidemill.jobs.schemas import ItemCountsOut, JobOut
from tidemill.rest import pagination
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, declare_route, get_client_ip
from tidemill.rest.file_download import FILE_RESPONSE_CONTENT, FILE_RESPONSES, send_stored_file
from tidemill.rest.idempotency import IdempotencyKey, parse_idempotency_key
from tidemill.rest.responses import ClosingStreamingResponse, make_stream_slots, run_until_disconnect, start_stream
from tidemill.rest.runtime import DatabaseDep, RuntimeDep
from tidemill.runtime import Runtime
from tidemill.store import job_records
from tidemill.tables.resource_registry import make_resource_registry

EXPORT_KEY_PREFIX = "exports"
JOB_RESULTS_RESOURCE = "job"


async def load_export_views(runtime: Runtime, found: Sequence[Job]) -> list[ExportOut]:
    if not found:
        return []
    made, now = (
        await runtime.db.read(export_records.find_export_records, [job.id for job in found]),
        await runtime.db.run(job_records.read_database_clock),
    )
    return [await asyncio.to_thread(_build_export_out, runtime, job, made.get(job.id), now) for job in found]


async def load_export_view(runtime: Runtime, job_id: UUID) -> ExportOut:
    (found,) = await load_export_views(runtime, [await runtime.db.read(job_records.get_job, job_id)])
    return found


def _build_export_out(runtime: Runtime, job: Job, made: ExportRecord | None, now: datetime) -> ExportOut:
    link = f"/v1/exports/{job.id}"
    asked, error = _read_export_request(job, made), made.error if made else None
    result: Mapping[str, Any] = (made.result if made else None) or {}
    is_expired = bool(result.get("expires_at")) and datetime.fromisoformat(result["expires_at"]) <= now
    is_there = bool(job.is_closed and result) and job.status is not JobStatus.CANCELLED and not is_expired
    download = {} if is_expired else {"download": f"{link}/download"}
    return ExportOut(
        job_id=job.id,
        key=job.key,
        idempotency_key=_strip_export_key_prefix(made),
        resource_type=asked.get("resource") or JOB_RESULTS_RESOURCE,
        format=asked.get("format") or "csv",
        compression=asked.get("compression") or "none",
        spreadsheet_safe=bool(asked.get("spreadsheet_safe")),
        status=job.status,
        filters=asked.get("filters") or {},
        fields=asked.get("fields") or [],
        order=asked.get("order") or [],
        record_count=result.get("rows"),
        size=result.get("size"),
        sha256=result.get("sha256"),
        file_id=result.get("file_id"),
        file_path=runtime.blobs.url(result["file_id"]) if is_there else None,
        download_url=f"{link}/download" if is_there else None,
        failure_reason=(error or {}).get("reason") or job.failure_reason,
        counts=ItemCountsOut(**asdict(job.counts)),
        user_id=job.owner_id,
        started_at=made.started_at if made else None,
        completed_at=job.closed_at,
        created_at=job.created_at,
        expires_at=result.get("expires_at"),
        links={"self": link, "job": f"/v1/jobs/{job.id}", "cancel": f"{link}/cancel"} | download,
    )


def _read_export_request(job: Job, made: ExportRecord | None) -> dict[str, Any]:
    """Of a job's results, what was asked for stands in the item."""
    asked: dict[str, Any] = job.params.get("asked") or (made.input if made else None) or {}
    statuses = asked.get("statuses")
    return asked | ({"filters": {"status": {"in": statuses}}} if statuses else {})


def _strip_export_key_prefix(made: ExportRecord | None) -> str | None:
    """The key as it was given: ours say first which route they are of."""
    key = made.idem_key if made else None
    return (
        key.removeprefix(f"{EXPORT_KEY_PREFIX} ")
        if key is not None and key.startswith(f"{EXPORT_KEY_PREFIX} ")
        else None
    )


async def load_visible_export(export: JobName, me: CurrentUser, db: DatabaseDep) -> Job:
    return check_job_kind(await load_visible_job(export, me, db), EXPORT, "export", export)


VisibleExport = Annotated[Job, Depends(load_visible_export)]


router = APIRouter(tags=["exports"], route_class=AuthenticatedRoute)
_REPEATED_JOB_EXPORT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The same file was asked for before", "model": JobOut}
}
ALL_ITEMS = SelectionIn()


@router.post(
    "/jobs/{job}/export",
    status_code=202,
    **declare_route(Permission.USER, 404, 409, extra_responses=_REPEATED_JOB_EXPORT_RESPONSE),
)
async def export_job(
    job: VisibleJob,
    query: Annotated[JobExportQuery, Query()],
    me: CurrentUser,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
    body: Annotated[SelectionIn, Body()] = ALL_ITEMS,
) -> JobOut:
    """Make a file of the results as they are now, of all rows or of those that a body chooses: a job of its own.

    The same request gets the same file.
    """
    if body.statuses and query.statuses:
        raise InvalidInput("say statuses once: in the address or in the body")
    export_id, is_new = await operation.submit_result_export(
        runtime.db,
        runtime.settings,
        job,
        format=query.format,
        statuses=query.statuses or body.statuses,
        rows=_build_row_selection(body, job.id),
        spreadsheet_safe=query.spreadsheet_safe,
        owner_id=me.user_id,
        request_id=request.state.request_id,
        traceparent=request.state.traceparent,
        ip_address=get_client_ip(request),
    )
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/exports/{export_id}"
    response.headers["Retry-After"] = "1"
    return build_job_out(runtime, await runtime.db.read(job_records.get_job, export_id))


def _build_row_selection(body: SelectionIn, job_id: UUID) -> RowSelection:
    seqs, ranges = parse_item_selection(body, job_id)
    codes = None if body.error_codes is None else frozenset(body.error_codes)
    but = frozenset(parse_item_ids_of_job(body.except_, "except", job_id))
    return RowSelection(codes, body.key, None if seqs is None else frozenset(seqs), but, ranges)


@router.get("/exports/{export}", **declare_route(Permission.USER, 404))
async def get_export(export: VisibleExport, runtime: RuntimeDep) -> ExportOut:
    """How far an export is, and what it made."""
    return (await load_export_views(runtime, [export]))[0]


@router.post("/exports/{export}/cancel", **declare_route(Permission.USER, 404, 409))
async def cancel_export(export: VisibleExport, me: CurrentUser, runtime: RuntimeDep) -> ExportOut:
    """Nothing of the file is kept; what is being written stops within a second or so."""
    await job_control.cancel_job(runtime.db, export.id, by=me.user_id)
    return await load_export_view(runtime, export.id)


@router.get(
    "/exports/{export}/download",
    response_class=Response,
    **declare_route(Permission.USER, 404, 409, 416, extra_responses=FILE_RESPONSES),
)
async def download_export(export: VisibleExport, request: Request, runtime: RuntimeDep) -> Response:
    """The file of a finished export: all of it, or a range."""
    facts = await operation.get_export_download(runtime.db, export)
    try:
        return await send_stored_file(request, runtime, facts)
    except UnknownFile:
        raise operation.make_export_gone_error(export) from None


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
    "With a resource, its rows, as they come (of format json, a list of objects); without, a page of exports"
)
_ROW_STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": _LIST_EXPORTS_DESCRIPTION, "content": dict(FILE_RESPONSE_CONTENT)}
}
_LIST_EXPORTS_OPTIONS = declare_route(Permission.USER, 404, 409, extra_responses=_ROW_STREAM_RESPONSE)
_LIST_EXPORTS_OPTIONS["openapi_extra"] |= {"parameters": [_FILTER_PARAMETER]}
_REPEATED_EXPORT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "What this key made before", "model": ExportOut}
}


@router.get("/exports", response_model=ExportPage, response_model_exclude_unset=True, **_LIST_EXPORTS_OPTIONS)
async def list_exports(
    query: Annotated[ExportListQuery, Query()], me: CurrentUser, request: Request, runtime: RuntimeDep
) -> ExportPage | Response:
    """Stream the rows of a resource; without `resource`, your exports, the newest first.

    A stream that ends without its end is not whole: the connection breaks when the source does.
    """
    if query.resource is not None:
        return await _stream_rows(query, me, request, runtime)
    _reject_parameters(query, [*STREAM_ONLY_PARAMETERS], "without a resource, exports are listed: {} is not for that")
    page = await list_visible_jobs(
        runtime.db, await resolve_owner_filter(runtime.db, me, query.user_id), query, EXPORT_KIND
    )
    return ExportPage(exports=await load_export_views(runtime, page.items), **pagination.build_next_page(page.after))


@router.post(
    "/exports", status_code=202, **declare_route(Permission.USER, 400, 404, extra_responses=_REPEATED_EXPORT_RESPONSE)
)
async def submit_export_job(
    body: ExportIn,
    me: CurrentUser,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
    idempotency_key: IdempotencyKey = None,
) -> ExportOut:
    """Have a file made of the rows of a resource. It is kept for a while, to be downloaded or imported again."""
    key = parse_idempotency_key(idempotency_key)
    wanted = _build_table_export(body, json.loads(await request.body(), parse_float=Decimal).get("filters", {}))
    spec = make_submission(
        request, me, priority=body.priority, idem_key=None if key is None else f"{EXPORT_KEY_PREFIX} {key}"
    )
    try:
        made = await find_repeated_table_export(runtime.db, spec, wanted)
        job_id, is_new = (
            (made, False)
            if made
            else await submit_table_export(runtime.db, spec, await _plan_authorized_export(runtime, me, wanted), wanted)
        )
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused("this Idempotency-Key was used for another request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/exports/{job_id}"
    response.headers["Retry-After"] = "1"
    return await load_export_view(runtime, job_id)


async def _stream_rows(query: ExportListQuery, me: Principal, request: Request, runtime: Runtime) -> Response:
    listing = set(type(query).model_fields) - {"resource", *STREAM_ONLY_PARAMETERS}
    _reject_parameters(query, sorted(listing), "the rows of a resource are streamed: {} is for the list of exports")
    wanted = TableExportRequest(
        resource=query.resource or "",
        fields=tuple(query.fields),
        filters=tuple(parse_query_filters(request.query_params.multi_items())),
        order=tuple(query.order),
        format=query.format,
        compression=query.compression,
        spreadsheet_safe=query.spreadsheet_safe,
    )
    plan = await _plan_authorized_export(runtime, me, wanted)
    headers = {"Content-Disposition": f'attachment; filename="{plan.build_file_name()}"'}
    pieces = await run_until_disconnect(request, start_stream(_generate_chunks(runtime, plan)))
    return ClosingStreamingResponse(pieces, headers, plan.form.content_type)


async def _generate_chunks(runtime: Runtime, plan: TableExportPlan) -> AsyncGenerator[bytes]:
    with runtime.get(make_stream_slots).acquire():
        async with aclosing(stream_table_export(runtime.db, plan)) as pieces:
            async for piece in pieces:
                yield piece


def _build_table_export(body: ExportIn, filters: dict[str, Any]) -> TableExportRequest:
    """``filters`` as they were written: fractions have all their digits."""
    return TableExportRequest(
        resource=body.resource,
        fields=tuple(body.fields),
        filters=tuple(parse_filter_object(filters)),
        order=tuple(body.order),
        format=body.format,
        compression=body.compression,
        spreadsheet_safe=body.spreadsheet_safe,
    )


async def _plan_authorized_export(runtime: Runtime, me: Principal, wanted: TableExportRequest) -> TableExportPlan:
    return await plan_table_export(
        runtime.db,
        await runtime.get(make_resource_registry).find_readable(runtime.db, me.role, wanted.resource),
        wanted,
    )


def _reject_parameters(query: ExportListQuery, names: list[str], message: str) -> None:
    """What is there and has no meaning here. Filters belong to streams."""
    others = list(query.model_extra or {})
    filters = [name for name in others if name.startswith("filter[")]
    unknown = [f"there is no parameter {name[:100]!r}" for name in others if name not in filters]
    if "resource" not in query.model_fields_set and filters:
        unknown.append(message.format(filters[0][:100]))
    problems = unknown + [message.format(name) for name in names if name in query.model_fields_set]
    if problems:
        raise InvalidRequest(problems)
