"""A job's rows as a file."""

from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from tidemill.api.guard import Me, Permission, address_of, allow
from tidemill.api.lookup import JobName, OwnJob, own_job
from tidemill.api.schemas.jobs import ExportQuery, JobOut
from tidemill.api.state import Db, Serving
from tidemill.api.views import job_out
from tidemill.domain.errors import UnknownJob
from tidemill.domain.export import CONTENT_TYPES, KIND
from tidemill.domain.job import Job
from tidemill.operations import export as operation
from tidemill.store import jobs

router = APIRouter(tags=["exports"])
PIECE = 1 << 18
_made: dict[int | str, dict[str, Any]] = {200: {"description": "The same file was asked for before", "model": JobOut}}
_FILE = {"schema": {"type": "string", "format": "binary"}}
_file: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {name.partition(";")[0]: _FILE for name in CONTENT_TYPES.values()}}
}


@router.post("/jobs/{job}/export", status_code=202, **allow(Permission.USER, 404, 409, also=_made))
async def export_job(
    job: OwnJob, query: Annotated[ExportQuery, Query()], me: Me, request: Request, response: Response, here: Serving
) -> JobOut:
    """Make a file of the results as they are now: a job of its own. The same request gets the same file."""
    export_id, is_new = await operation.export_results(
        here.db,
        here.settings,
        job,
        format=query.format,
        statuses=query.statuses,
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


async def own_export(export: JobName, me: Me, db: Db) -> Job:
    found = await own_job(export, me, db)
    if found.kind != KIND:
        raise UnknownJob(f"there is no export {export!r}")
    return found


OwnExport = Annotated[Job, Depends(own_export)]


@router.get("/exports/{export}", **allow(Permission.USER, 404))
async def get_export(export: OwnExport) -> JobOut:
    """How far an export is."""
    return job_out(export)


@router.get("/exports/{export}/download", response_class=Response, **allow(Permission.USER, 404, 409, also=_file))
async def download_export(export: OwnExport, here: Serving) -> StreamingResponse:
    """The file of a finished export."""
    found = await operation.export_file(here.db, here.blobs, export)
    headers = {
        "Content-Length": str(found.size),
        "Content-Disposition": f'attachment; filename="{found.name}"',
        "ETag": f'"{found.sha256}"',
    }
    return StreamingResponse(_pieces(found.file), media_type=found.content_type, headers=headers)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        yield from iter(lambda: file.read(PIECE), b"")
