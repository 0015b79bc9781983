"""Imports as a whole: looking at them, and what is wanted of them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from tidemill.api import cursor
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.import_views import import_detail, import_now, imports_out
from tidemill.api.lookup import ImportToRun, OwnImport, list_own, own_scope, writable
from tidemill.api.routes import operations
from tidemill.api.routes.submit_import import accepted, submission_of
from tidemill.api.schemas.imports import ImportDetail, ImportOut, ImportPage
from tidemill.api.schemas.jobs import ListQuery
from tidemill.api.schemas.operations import OperationOut, ReprocessIn
from tidemill.api.state import Db, Serving
from tidemill.domain.importing import KIND
from tidemill.operations import control
from tidemill.operations.import_promote import plan_of, promote

router = APIRouter(tags=["imports"], route_class=Guarded)
_going_on: dict[int | str, dict[str, Any]] = {202: {"description": "It goes on without you", "model": OperationOut}}
_before: dict[int | str, dict[str, Any]] = {200: {"description": "It was promoted before", "model": ImportOut}}


@router.get("/imports", response_model_exclude_unset=True, **allow(Permission.USER, 404))
async def list_imports(query: Annotated[ListQuery, Query()], me: Me, db: Db) -> ImportPage:
    """Your imports, the newest first."""
    page = await list_own(db, await own_scope(db, me, query.user_id), query, KIND)
    return ImportPage(imports=await imports_out(db, page.items), **cursor.next_page(page.after))


@router.get("/imports/{import_id}", **allow(Permission.USER, 404))
async def get_import(import_id: OwnImport, db: Db) -> ImportDetail:
    """Its counts, which always add up; what it did to the table, what failed and why, how its file was read."""
    return await import_detail(db, import_id)


@router.post("/imports/{import_id}/promote", status_code=202, **allow(Permission.USER, 404, 409, also=_before))
async def promote_import(
    import_id: OwnImport, me: Me, request: Request, response: Response, here: Serving
) -> ImportOut:
    """Make a closed trial real: the same file and plan, with the corrections made to it. Asked again, the same job."""
    await writable(here, me, plan_of(import_id).resource.name)
    job_id, is_new = await promote(here.db, here.incoming, import_id, submission_of(request, me), by=me.user_id)
    return await accepted(response, here, job_id, is_new=is_new)


@router.post("/imports/{import_id}/pause", **allow(Permission.USER, 404, 409))
async def pause_import(import_id: OwnImport, me: Me, db: Db) -> ImportOut:
    """Batches in hand finish; nothing new is begun."""
    await control.pause(db, import_id.id, by=me.user_id)
    return await import_now(db, import_id.id)


@router.post("/imports/{import_id}/resume", **allow(Permission.USER, 404, 409))
async def resume_import(import_id: ImportToRun, me: Me, db: Db) -> ImportOut:
    """A paused import goes on."""
    await control.resume(db, import_id.id, by=me.user_id)
    return await import_now(db, import_id.id)


@router.post("/imports/{import_id}/cancel", **allow(Permission.USER, 404, 409))
async def cancel_import(import_id: OwnImport, me: Me, db: Db) -> ImportOut:
    """Batches in hand finish, and what they wrote stays; the rest is cancelled."""
    await control.cancel(db, import_id.id, by=me.user_id)
    return await import_now(db, import_id.id)


@router.post("/imports/{import_id}/reprocess", **allow(Permission.USER, 404, 409, also=_going_on))
async def reprocess_import(
    import_id: ImportToRun, asked: ReprocessIn, me: Me, request: Request, response: Response, db: Db
) -> OperationOut:
    """Send settled rows round again: after the table has changed, or what they refer to is there."""
    return await operations.reprocess_job(import_id, asked, me, request, response, db)
