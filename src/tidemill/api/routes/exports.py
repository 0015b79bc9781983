"""Files that were made: a job's rows, or a table's."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Query, Request, Response

from tidemill.api.export_views import export_now, exports_out
from tidemill.api.files import send_file
from tidemill.api.guard import Guarded, Me, Permission, address_of, allow
from tidemill.api.lookup import OwnExport, OwnJob, chosen_of, seqs_of
from tidemill.api.schemas.exports import ExportOut
from tidemill.api.schemas.jobs import ExportQuery, JobOut
from tidemill.api.schemas.operations import SelectionIn
from tidemill.api.state import Serving
from tidemill.api.views import job_out
from tidemill.domain.errors import InvalidInput, UnknownFile
from tidemill.domain.export import Rows
from tidemill.domain.form import COMPRESSED_TYPES, CONTENT_TYPES
from tidemill.operations import control
from tidemill.operations import export as operation
from tidemill.store import jobs

router = APIRouter(tags=["exports"], route_class=Guarded)
_made: dict[int | str, dict[str, Any]] = {200: {"description": "The same file was asked for before", "model": JobOut}}
EVERYTHING = SelectionIn()
_FILE = {"schema": {"type": "string", "format": "binary"}}
_NAMES = [name.partition(";")[0] for name in (*CONTENT_TYPES.values(), *COMPRESSED_TYPES.values())]
FILES = {name: _FILE for name in _NAMES if name != "application/json"}  # which is a page, to whoever reads the document
FILE_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file; of format json it is application/json", "content": FILES},
    206: {"description": "The range that was asked for", "content": FILES},
    304: {"description": "The caller has it: If-None-Match is its ETag"},
    307: {"description": "The file is at the object store, for a while", "content": {}},
}


@router.post("/jobs/{job}/export", status_code=202, **allow(Permission.USER, 404, 409, also=_made))
async def export_job(
    job: OwnJob,
    query: Annotated[ExportQuery, Query()],
    me: Me,
    request: Request,
    response: Response,
    here: Serving,
    asked: Annotated[SelectionIn, Body()] = EVERYTHING,
) -> JobOut:
    """Make a file of the results as they are now, of all rows or of those that a body chooses: a job of its own.

    The same request gets the same file.
    """
    if asked.statuses and query.statuses:
        raise InvalidInput("say statuses once: in the address or in the body")
    export_id, is_new = await operation.export_results(
        here.db,
        here.settings,
        job,
        format=query.format,
        statuses=query.statuses or asked.statuses,
        rows=_rows(asked, job.id),
        spreadsheet_safe=query.spreadsheet_safe,
        owner_id=me.user_id,
        request_id=request.state.request_id,
        traceparent=request.state.traceparent,
        ip_address=address_of(request),
    )
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/exports/{export_id}"
    response.headers["Retry-After"] = "1"
    return job_out(await here.db.run(jobs.get, export_id))


def _rows(asked: SelectionIn, job_id: UUID) -> Rows:
    seqs, ranges = chosen_of(asked, job_id)
    codes = None if asked.error_codes is None else frozenset(asked.error_codes)
    but = frozenset(seqs_of(asked.except_, "except", job_id))
    return Rows(codes, asked.key, None if seqs is None else frozenset(seqs), but, ranges)


@router.get("/exports/{export}", **allow(Permission.USER, 404))
async def get_export(export: OwnExport, here: Serving) -> ExportOut:
    """How far an export is, and what it made."""
    return (await exports_out(here, [export]))[0]


@router.post("/exports/{export}/cancel", **allow(Permission.USER, 404, 409))
async def cancel_export(export: OwnExport, me: Me, here: Serving) -> ExportOut:
    """Nothing of the file is kept; what is being written stops within a second or so."""
    await control.cancel(here.db, export.id, by=me.user_id)
    return await export_now(here, export.id)


@router.get(
    "/exports/{export}/download", response_class=Response, **allow(Permission.USER, 404, 409, 416, also=FILE_ANSWERS)
)
async def download_export(export: OwnExport, request: Request, here: Serving) -> Response:
    """The file of a finished export: all of it, or a range."""
    facts = await operation.export_facts(here.db, export)
    try:
        return await send_file(request, here, facts)
    except UnknownFile:
        raise operation.file_gone(export) from None
