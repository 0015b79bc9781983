"""Rows of an import that failed: in pages, as files, and back again when they are mended."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from tidemill.api import cursor, upload
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.import_words import from_fields, layout_of
from tidemill.api.lookup import ImportToRun, OwnImport
from tidemill.api.routes.import_document import FIXES_BESIDE, FIXES_BODY
from tidemill.api.schemas.imports import LayoutIn, RowErrorQuery, RowOut, RowPage
from tidemill.api.schemas.operations import OperationOut
from tidemill.api.state import Db, Serving
from tidemill.api.views import operation_out
from tidemill.domain.errors import InvalidInput
from tidemill.domain.job import Job
from tidemill.operations import import_errors as operation
from tidemill.operations.import_fixes import Mended, fix_rows

router = APIRouter(tags=["imports"], route_class=Guarded)
CSV_EXAMPLE = "email,name,_row,_errors\r\nada,Ada,7,email: not an e-mail address\r\n"
NDJSON_EXAMPLE = '{"email": "ada", "name": "Ada", "_row": 7, "_errors": []}\n'


def _file(media_type: str, example: str) -> dict[int | str, dict[str, Any]]:
    content = {media_type: {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": "The failed rows, in order", "content": content}}


_fixes = allow(Permission.USER, 400, 404, 409, 413, 415)
_fixes["openapi_extra"] |= {"requestBody": FIXES_BODY, "parameters": FIXES_BESIDE}


@router.get("/imports/{import_id}/errors", response_model_exclude_unset=True, **allow(Permission.USER, 404, 409))
async def list_import_errors(import_id: OwnImport, query: Annotated[RowErrorQuery, Query()], db: Db) -> RowPage:
    """Failed rows in their own order, each with all that is wrong with it; all, or those of some `error_codes`."""
    after = cursor.decode(query.after)
    page = await operation.list_errors(db, import_id, limit=query.page_size, after=after, codes=query.error_codes)
    return RowPage(rows=[RowOut.model_validate(row) for row in page.items], **cursor.next_page(page.after))


@router.get(
    "/imports/{import_id}/errors.csv",
    response_class=Response,
    **allow(Permission.USER, 404, 409, also=_file("text/csv", CSV_EXAMPLE)),
)
async def download_import_errors(import_id: OwnImport, db: Db) -> StreamingResponse:
    """Failed rows in the columns of their file, with `_row` and `_errors`: mend them, and send them to `fixes`."""
    return await _streamed(operation.csv_file(db, import_id), import_id, "text/csv; charset=utf-8", "csv")


@router.get(
    "/imports/{import_id}/errors.ndjson",
    response_class=Response,
    **allow(Permission.USER, 404, 409, also=_file("application/x-ndjson", NDJSON_EXAMPLE)),
)
async def download_import_errors_as_ndjson(import_id: OwnImport, db: Db) -> StreamingResponse:
    """The same, an object a line; `_errors` is a list of objects there."""
    return await _streamed(operation.ndjson_file(db, import_id), import_id, "application/x-ndjson", "ndjson")


@router.post("/imports/{import_id}/fixes", **_fixes)
async def fix_import(import_id: ImportToRun, me: Me, request: Request, here: Serving) -> OperationOut:
    """Mended rows, as a file with `_row`: they are corrected, and only they go round again. All of them, or none.

    Columns that the file does not have stay as they are; `_errors` and others that begin with `_` are not looked at.
    """
    place = "body" if request.headers.get("content-type", "").lower().startswith("multipart/") else "query"

    async def check(fields: dict[str, str]) -> None:
        layout_of(from_fields(LayoutIn, fields, place))

    found = await upload.receive(request, here, check=check, any_type=True)
    try:
        if not found.blob.size:
            raise InvalidInput("the file is empty")
        mended = Mended(
            blob_id=found.blob.id,
            name=found.name,
            content_type=found.content_type,
            layout=layout_of(from_fields(LayoutIn, found.fields, place)),
            by=me.user_id,
            request_id=request.state.request_id,
            max_row_bytes=here.settings.max_row_bytes,
        )
        return operation_out(await fix_rows(here.db, here.importing, import_id, mended))
    finally:
        await here.incoming.drop(found.blob.id)


async def _streamed(pieces: AsyncIterator[bytes], job: Job, media_type: str, ending: str) -> StreamingResponse:
    """What goes wrong before the first piece is an answer of its own; later, the connection breaks."""
    first = await anext(pieces, b"")

    async def all_pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    headers = {"Content-Disposition": f'attachment; filename="{job.key}-errors.{ending}"'}
    return StreamingResponse(all_pieces(), media_type=media_type, headers=headers)
