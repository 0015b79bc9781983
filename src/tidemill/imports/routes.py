"""HTTP routes of imports: submit, preview, list and control them, and download and fix their failed rows."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from tidemill.core.errors import IdempotencyKeyReused
from tidemill.core.file_format import FORMAT_CONTENT_TYPES, FileFormat
from tidemill.core.job import Job
from tidemill.core.kinds import IMPORT_KIND
from tidemill.imports import failed_rows, repairs
from tidemill.imports.dry_run_promotion import promote_dry_run
from tidemill.imports.failed_row_schemas import RepairIn, RepairPreviewOut, RowErrorQuery, RowOut, RowPage
from tidemill.imports.fixed_rows import fix_rows_from_file
from tidemill.imports.import_preview import preview_import_and_delete_file
from tidemill.imports.import_submission import SubmittedImport
from tidemill.imports.import_views import (
    IMPORT_KEY_PREFIX,
    RerunnableImport,
    VisibleImport,
    read_import_detail,
    read_import_view,
    read_import_views,
)
from tidemill.imports.preview_schemas import PreviewIn, PreviewOut
from tidemill.imports.repair_rules import parse_repair_rule
from tidemill.imports.repairs import RepairRequest
from tidemill.imports.request_parsing import receive_fixes, receive_import
from tidemill.imports.schemas import (
    FIXES_BODY,
    FIXES_QUERY_PARAMETERS,
    IMPORT_BODY,
    IMPORT_QUERY_PARAMETERS,
    PREVIEW_BODY,
    PREVIEW_QUERY_PARAMETERS,
    ImportDetail,
    ImportIn,
    ImportOut,
    ImportPage,
)
from tidemill.imports.use_cases import make_import_use_cases
from tidemill.jobs import bulk_operation_routes, job_control
from tidemill.jobs.bulk_operation_schemas import OperationOut, ReprocessIn
from tidemill.jobs.job_views import build_operation_out
from tidemill.jobs.route_dependencies import list_jobs_by_query, make_submission_from_request, resolve_owner_filter
from tidemill.jobs.schemas import JobFilterQuery
from tidemill.jobs.staged_files import make_staged_files
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, IdempotencyKey, RuntimeDep, parse_idempotency_key
from tidemill.rest.request_body import BodyLimit
from tidemill.runtime import Runtime

router = APIRouter(tags=["imports"], route_class=AuthenticatedRoute)

_REPEATED_IMPORT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The import that an earlier request with this key created", "model": ImportOut}
}
_SUBMIT_IMPORT_OPTIONS = build_route_options(
    Permission.USER,
    *(400, 404, 413, 415),
    extra_responses=_REPEATED_IMPORT_RESPONSE,
    body=BodyLimit.UPLOAD,
    json_body=BodyLimit.SMALL,
)
_SUBMIT_IMPORT_OPTIONS["openapi_extra"] |= {"requestBody": IMPORT_BODY, "parameters": IMPORT_QUERY_PARAMETERS}
_PREVIEW_IMPORT_OPTIONS = build_route_options(
    Permission.USER, 400, 404, 413, 415, 502, body=BodyLimit.UPLOAD, json_body=BodyLimit.SMALL
)
_PREVIEW_IMPORT_OPTIONS["openapi_extra"] |= {"requestBody": PREVIEW_BODY, "parameters": PREVIEW_QUERY_PARAMETERS}


@router.post("/imports", status_code=202, **_SUBMIT_IMPORT_OPTIONS)
async def submit_import(
    request: Request, response: Response, me: CurrentUser, runtime: RuntimeDep, idempotency_key: IdempotencyKey = None
) -> ImportOut:
    """Import a file into a table.

    Send the file as the body with the options in the query, or send it as multipart/form-data. To import a file that
    is stored elsewhere, send JSON with a `source`. If columns are invalid, the service rejects the request before it
    reads a row. Invalid rows become errors of the job.
    """
    spec = replace(make_submission_from_request(request, me), idem_key=_build_import_idempotency_key(idempotency_key))
    try:
        received = await receive_import(request, runtime, me, ImportIn, spec)
        submitted = await runtime.get(make_import_use_cases).submit(received.submission, received.source)
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused("The Idempotency-Key was already used for a different request") from None
    return await set_headers_and_read_import(response, runtime, submitted)


@router.post("/imports/preview", **_PREVIEW_IMPORT_OPTIONS)
async def preview_import(request: Request, me: CurrentUser, runtime: RuntimeDep) -> PreviewOut:
    """Return the layout and column mapping of a file, and the errors in its first rows. The service stores nothing.

    If you, or a user who shares the mapping, imported a file with the same or similar columns, that mapping completes
    the options. `remembered` has the completed options and the differences.
    """
    received = await receive_import(request, runtime, me, PreviewIn, make_submission_from_request(request, me))
    submission = replace(received.submission, uses_memory=received.body.memory)
    preview = await preview_import_and_delete_file(
        runtime, runtime.get(make_staged_files), submission, received.source, rows=received.body.rows
    )
    return PreviewOut.model_validate(preview)


async def set_headers_and_read_import(response: Response, runtime: Runtime, submitted: SubmittedImport) -> ImportOut:
    response.status_code = 202 if submitted.is_new else 200
    response.headers["Location"] = f"/v1/imports/{submitted.job_id}"
    response.headers["Retry-After"] = "1"
    return await read_import_view(runtime.db, submitted.job_id)


def _build_import_idempotency_key(header: str | None) -> str | None:
    key = parse_idempotency_key(header)
    return None if key is None else f"{IMPORT_KEY_PREFIX} {key}"


_RUNNING_OPERATION_RESPONSE: dict[int | str, dict[str, Any]] = {
    202: {"description": "The operation continues in the background", "model": OperationOut}
}
_PROMOTED_BEFORE_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The import that an earlier promotion created", "model": ImportOut}
}


@router.get("/imports", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_imports(query: Annotated[JobFilterQuery, Query()], me: CurrentUser, db: DatabaseDep) -> ImportPage:
    """List your imports, newest first."""
    page = await list_jobs_by_query(db, await resolve_owner_filter(db, me, query.user_id), query, IMPORT_KIND)
    return ImportPage(imports=await read_import_views(db, page.items), **dependencies.build_next_page_dict(page.after))


@router.get("/imports/{import_id}", **build_route_options(Permission.USER, 404))
async def get_import(import_id: VisibleImport, db: DatabaseDep) -> ImportDetail:
    """Return an import: its counts, effects on the table, error counts, file layout and column mapping."""
    return await read_import_detail(db, import_id)


@router.post(
    "/imports/{import_id}/promote",
    status_code=202,
    **build_route_options(Permission.USER, 404, 409, extra_responses=_PROMOTED_BEFORE_RESPONSE),
)
async def promote_import(
    import_id: VisibleImport, me: CurrentUser, request: Request, response: Response, runtime: RuntimeDep
) -> ImportOut:
    """Promote a closed dry run: import its file with the fixed rows. A repeated request returns the same import."""
    submission = make_submission_from_request(request, me)
    promoted = await promote_dry_run(runtime, import_id, by=me.user_id, role=me.role, submission=submission)
    return await set_headers_and_read_import(response, runtime, promoted)


@router.post("/imports/{import_id}/pause", **build_route_options(Permission.USER, 404, 409))
async def pause_import(import_id: VisibleImport, me: CurrentUser, db: DatabaseDep) -> ImportOut:
    """Pause an import. Batches in progress finish, and no further batch starts."""
    await job_control.pause_job(db, import_id.id, by=me.user_id)
    return await read_import_view(db, import_id.id)


@router.post("/imports/{import_id}/resume", **build_route_options(Permission.USER, 404, 409))
async def resume_import(import_id: RerunnableImport, me: CurrentUser, db: DatabaseDep) -> ImportOut:
    """Resume a paused import."""
    await job_control.resume_job(db, import_id.id, by=me.user_id)
    return await read_import_view(db, import_id.id)


@router.post("/imports/{import_id}/cancel", **build_route_options(Permission.USER, 404, 409))
async def cancel_import(import_id: VisibleImport, me: CurrentUser, runtime: RuntimeDep) -> ImportOut:
    """Cancel an import. Batches in progress finish, and their rows stay in the table."""
    await job_control.cancel_job(runtime.db, import_id.id, by=me.user_id, find_kind_hooks=runtime.find_kind_hooks)
    return await read_import_view(runtime.db, import_id.id)


@router.post(
    "/imports/{import_id}/reprocess",
    **build_route_options(Permission.USER, 404, 409, extra_responses=_RUNNING_OPERATION_RESPONSE),
)
async def reprocess_import(
    import_id: RerunnableImport,
    body: ReprocessIn,
    me: CurrentUser,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
) -> OperationOut:
    """Run settled rows again, for example after the table, or a table that the rows refer to, has changed."""
    return await bulk_operation_routes.reprocess_job(import_id, body, me, request, response, runtime)


ERRORS_CSV_EXAMPLE = (
    "email,name,_row,_errors,_error_codes\r\nada,Ada,7,email: must be an e-mail address,email.pattern\r\n"
)
ERRORS_NDJSON_EXAMPLE = '{"email": "ada", "name": "Ada", "_row": 7, "_errors": [], "_error_codes": []}\n'
ENCODING_NOTE_HEADER = "X-Tidemill-Note"


def _document_failed_rows_response(media_type: str, example: str) -> dict[int | str, dict[str, Any]]:
    content = {media_type: {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": "The failed rows, in file order", "content": content}}


_ERRORS_XLSX_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The failed rows, in file order",
        "content": {FORMAT_CONTENT_TYPES[FileFormat.XLSX]: {"schema": {"type": "string", "format": "binary"}}},
    }
}
_FIX_IMPORT_OPTIONS = build_route_options(Permission.USER, 400, 404, 409, 413, 415, body=BodyLimit.UPLOAD)
_FIX_IMPORT_OPTIONS["openapi_extra"] |= {"requestBody": FIXES_BODY, "parameters": FIXES_QUERY_PARAMETERS}


@router.get(
    "/imports/{import_id}/errors", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404, 409)
)
async def list_import_errors(
    import_id: VisibleImport, query: Annotated[RowErrorQuery, Query()], db: DatabaseDep
) -> RowPage:
    """List the failed rows in file order, each with all of its errors.

    `error_codes` selects the rows that have one of these codes.
    """
    after = dependencies.decode_cursor(query.after)
    page = await failed_rows.list_rows_with_errors(
        db,
        import_id,
        limit=query.page_size,
        after=after,
        codes=query.error_codes,
        with_dismissed=query.include_dismissed,
    )
    return RowPage(
        rows=[RowOut.model_validate(row) for row in page.items], **dependencies.build_next_page_dict(page.after)
    )


@router.get(
    "/imports/{import_id}/errors.csv",
    response_class=Response,
    **build_route_options(
        Permission.USER, 404, 409, extra_responses=_document_failed_rows_response("text/csv", ERRORS_CSV_EXAMPLE)
    ),
)
async def download_import_errors(import_id: VisibleImport, db: DatabaseDep) -> StreamingResponse:
    """Download the failed rows as CSV, in the layout of the imported file. Fix them and send them to `fixes`.

    The file has the additional columns `_row`, `_errors` and `_error_codes`. If the encoding of the imported file
    cannot represent a character in these rows, the file is UTF-8 with a byte order mark, and the response has the
    header `X-Tidemill-Note`.
    """
    return await _build_error_file_response(db, import_id, "csv")


@router.get(
    "/imports/{import_id}/errors.ndjson",
    response_class=Response,
    **build_route_options(
        Permission.USER,
        404,
        409,
        extra_responses=_document_failed_rows_response("application/x-ndjson", ERRORS_NDJSON_EXAMPLE),
    ),
)
async def download_import_errors_as_ndjson(import_id: VisibleImport, db: DatabaseDep) -> StreamingResponse:
    """Download the failed rows as NDJSON. `_errors` is a list of objects."""
    return await _build_error_file_response(db, import_id, "ndjson")


@router.get(
    "/imports/{import_id}/errors.xlsx",
    response_class=Response,
    **build_route_options(Permission.USER, 404, 409, extra_responses=_ERRORS_XLSX_RESPONSE),
)
async def download_import_errors_as_workbook(import_id: VisibleImport, db: DatabaseDep) -> StreamingResponse:
    """Download the failed rows as a workbook with `_row`, `_errors` and `_error_codes`. Send it to `fixes`."""
    return await _build_error_file_response(db, import_id, "xlsx")


@router.post("/imports/{import_id}/fixes", **_FIX_IMPORT_OPTIONS)
async def fix_import(
    import_id: RerunnableImport, me: CurrentUser, request: Request, runtime: RuntimeDep
) -> OperationOut:
    """Send fixed rows as a file with the column `_row`. Only these rows are retried.

    If one row cannot be fixed, no row is changed. Columns that the file does not have keep their values. Other columns
    that begin with `_` are ignored.
    """
    fixes = await receive_fixes(request, runtime, me)
    return build_operation_out(await fix_rows_from_file(runtime, import_id, fixes))


@router.post("/imports/{import_id}/repairs/preview", **build_route_options(Permission.USER, 404, 409))
async def preview_import_repair(import_id: RerunnableImport, body: RepairIn, runtime: RuntimeDep) -> RepairPreviewOut:
    """Show what a rule would do with the rows that have an error: how many it changes, and how many are valid then.

    Nothing is changed. Up to 1,000 rows are checked, also against the table.
    """
    preview = await repairs.preview_repair(runtime, import_id, _parse_repair(body))
    return RepairPreviewOut.model_validate(preview, from_attributes=True)


@router.post(
    "/imports/{import_id}/repairs",
    **build_route_options(Permission.USER, 404, 409, extra_responses=_RUNNING_OPERATION_RESPONSE),
)
async def repair_import(
    import_id: RerunnableImport,
    body: RepairIn,
    me: CurrentUser,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
) -> OperationOut:
    """Fix all rows that have an error with one rule, and retry them. The rule `drop` dismisses them instead.

    Rows that the rule does not change stay as they are. A row that fails again has its new error. The status is 202
    if the operation continues in the background.
    """
    operation = await repairs.start_repair(
        runtime,
        import_id,
        _parse_repair(body),
        by=me.user_id,
        request_id=request.state.request_id,
        timeout_s=bulk_operation_routes.OPERATION_WAIT_S,
    )
    return bulk_operation_routes.set_operation_headers_and_build_out(response, operation)


def _parse_repair(body: RepairIn) -> RepairRequest:
    return RepairRequest(body.cause, parse_repair_rule(body.rule.model_dump(exclude_unset=True)), body.column)


async def _build_error_file_response(db: DatabaseDep, job: Job, format_: str) -> StreamingResponse:
    """Stream a file. An error before the first chunk becomes an error response; a later error closes the connection."""
    file = await failed_rows.open_error_file(db, job, format_)
    first = await anext(file.chunks, b"")

    async def all_chunks() -> AsyncIterator[bytes]:
        yield first
        async for chunk in file.chunks:
            yield chunk

    headers = {"Content-Disposition": f'attachment; filename="{job.key}-errors{file.suffix}"'}
    if file.note is not None:
        headers[ENCODING_NOTE_HEADER] = file.note
    return StreamingResponse(all_chunks(), media_type=file.content_type, headers=headers)
