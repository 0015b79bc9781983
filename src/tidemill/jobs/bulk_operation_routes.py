"""Bulk actions on items, and how far they are."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from tidemill.core.errors import InvalidInput, UnknownEntity, UnknownJob
from tidemill.core.list_pages import check_text, check_timestamps, parse_uuid
from tidemill.core.principal import Principal
from tidemill.core.status import TERMINAL_ITEM_STATUSES
from tidemill.jobs import job_control as cancelling
from tidemill.jobs import reprocessing as operation
from tidemill.jobs.bulk_operation_schemas import (
    CancelItemsIn,
    CountIn,
    CountOut,
    ItemChoiceIn,
    OperationOut,
    OperationPage,
    OperationQuery,
    RedriveIn,
    ReprocessIn,
)
from tidemill.jobs.dependencies import (
    RunnableJob,
    VisibleJob,
    authorize_rerun,
    list_revoked_targets,
    parse_item_ids,
    parse_item_ids_of_job,
    parse_item_selection,
    resolve_job_filter,
    resolve_owner_filter,
)
from tidemill.jobs.job_views import build_operation_out
from tidemill.rest import pagination
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, declare_route
from tidemill.rest.runtime import DatabaseDep, RuntimeDep
from tidemill.runtime import Runtime
from tidemill.store import item_selection as counting
from tidemill.store import job_records, operation_records
from tidemill.store.item_selection import CountSelection
from tidemill.store.operation_records import BulkOperation
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.store.waiting_items import CANCELLABLE_STATUSES, CancelSelection

router = APIRouter(tags=["operations"], route_class=AuthenticatedRoute)
OPERATION_WAIT_S = 2.0
RUNNING_OPERATION_RESPONSE: dict[int | str, dict[str, Any]] = {
    202: {"description": "It goes on without you", "model": OperationOut}
}


@router.post(
    "/jobs/{job}/reprocess", **declare_route(Permission.USER, 404, 409, extra_responses=RUNNING_OPERATION_RESPONSE)
)
async def reprocess_job(
    job: RunnableJob, body: ReprocessIn, me: CurrentUser, request: Request, response: Response, db: DatabaseDep
) -> OperationOut:
    """Send settled items round again, opening the job if it is closed. 202 when they are so many that it goes on."""
    seqs, ranges = parse_item_selection(body, job.id)
    if (body.scope == "items") != (seqs is not None):
        raise InvalidInput("scope `items` comes with item_ids or ranges, scope `job` without")
    choice = ReprocessSelection(
        body.statuses,
        seqs,
        body.error_codes,
        reset_attempts=body.reset_attempts,
        excluded_seqs=_parse_excluded_seqs(body, job.id),
        key=body.key,
        ranges=ranges,
    )
    who = {"user_id": me.user_id, "request_id": request.state.request_id}
    return build_operation_response(
        response, await operation.reprocess_items(db, job.id, choice, timeout_s=OPERATION_WAIT_S, **who)
    )


@router.post(
    "/jobs/{job}/selection/cancel",
    **declare_route(Permission.USER, 404, 409, extra_responses=RUNNING_OPERATION_RESPONSE),
)
async def cancel_items(
    job: VisibleJob, body: CancelItemsIn, me: CurrentUser, request: Request, response: Response, db: DatabaseDep
) -> OperationOut:
    """Cancel items that wait, and leave the others. What a worker has in hand is left to it."""
    seqs, ranges = parse_item_selection(body, job.id)
    waiting = CancelSelection(
        body.statuses, seqs, excluded_seqs=_parse_excluded_seqs(body, job.id), key=body.key, ranges=ranges
    )
    who = {"user_id": me.user_id, "request_id": request.state.request_id}
    return build_operation_response(
        response, await cancelling.cancel_waiting_items(db, job.id, waiting, timeout_s=OPERATION_WAIT_S, **who)
    )


@router.post("/jobs/{job}/selection/count", **declare_route(Permission.USER, 404))
async def count_items(job: VisibleJob, body: CountIn, db: DatabaseDep) -> CountOut:
    """How many items a reprocess, a cancel or an export of these would take. Nothing is changed."""
    check_text("a filter", body.key, *(body.error_codes or ()))
    among = {"reprocess": TERMINAL_ITEM_STATUSES, "cancel": CANCELLABLE_STATUSES, "export": ()}[body.to]
    statuses = [status for status in body.statuses if not among or status in among]
    if body.statuses and not statuses:
        return CountOut(items=0, is_complete=True)
    seqs, ranges = parse_item_selection(body, job.id)
    wanted = CountSelection(
        statuses or sorted(among),
        seqs,
        body.error_codes,
        excluded_seqs=_parse_excluded_seqs(body, job.id),
        key=body.key,
        reprocessable_only=body.to == "reprocess",
        ranges=ranges,
    )
    items, is_complete = await db.run(counting.count_items, job.id, wanted)
    return CountOut(items=items, is_complete=is_complete)


def _parse_excluded_seqs(body: ItemChoiceIn, job_id: UUID) -> list[int]:
    return parse_item_ids_of_job(body.except_, "except", job_id)


@router.post(
    "/dead-letters/redrive", **declare_route(Permission.USER, 404, 409, extra_responses=RUNNING_OPERATION_RESPONSE)
)
async def redrive_dead_letters(
    body: RedriveIn, me: CurrentUser, request: Request, response: Response, runtime: RuntimeDep
) -> OperationOut:
    """Send failed items of any jobs round again: all that match but some, or those that are named."""
    if body.all_matching == (body.item_ids is not None):
        raise InvalidInput("say either all_matching or item_ids")
    db = runtime.db
    owner_id = await resolve_owner_filter(db, me, body.user_id)
    items = None if body.item_ids is None else parse_item_ids(body.item_ids, "item_ids")
    only = await resolve_job_filter(db, body.filter.job_id, owner_id)
    await _authorize_named_jobs(runtime, me, {job for job, _ in items or ()} | ({only} - {None}), owner_id)
    denied = [] if me.is_admin else await list_revoked_targets(runtime, me)
    found = await operation.redrive_dead_letters(
        db,
        owner_id=owner_id,
        items=items,
        excluded_items=parse_item_ids(body.except_, "except"),
        filters=_build_redrive_filters(body, only) | ({"denied": denied} if denied else {}),
        user_id=me.user_id,
        request_id=request.state.request_id,
        timeout_s=OPERATION_WAIT_S,
    )
    return build_operation_response(response, found)


@router.get("/operations", response_model_exclude_unset=True, **declare_route(Permission.USER, 404))
async def list_operations(query: Annotated[OperationQuery, Query()], me: CurrentUser, db: DatabaseDep) -> OperationPage:
    """Every bulk action with its actor, predicate and progress; the newest first."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    before = _parse_operation_cursor(pagination.decode_cursor(query.after))
    found = await db.run(operation_records.list_operations, user_id=owner_id, before=before, limit=query.page_size + 1)
    shown = found[: query.page_size]
    more = (str(shown[-1].id),) if len(found) > len(shown) else None
    return OperationPage(operations=[build_operation_out(one) for one in shown], **pagination.build_next_page(more))


@router.get("/operations/{operation_id}", **declare_route(Permission.USER, 404))
async def get_operation(operation_id: UUID, me: CurrentUser, db: DatabaseDep) -> OperationOut:
    """How far a bulk action is."""
    found = await db.run(operation_records.get_operation, operation_id)
    if not me.may_see(found.user_id):
        raise UnknownEntity(f"there is no operation {operation_id}")
    return build_operation_out(found)


async def _authorize_named_jobs(
    runtime: Runtime, me: Principal, job_ids: Iterable[UUID | None], owner_id: int | None
) -> None:
    """Of the jobs that are named; what nobody has, or somebody else, is passed over in silence by the redrive."""
    for job_id in () if me.is_admin else job_ids:
        with suppress(UnknownJob):
            await authorize_rerun(
                runtime, me, await runtime.db.read(job_records.get_job_by_name, str(job_id), owner_id)
            )


def _build_redrive_filters(body: RedriveIn, job_id: UUID | None) -> dict[str, Any]:
    found = body.filter
    check_timestamps(found.from_, found.to)
    job_records = None if job_id is None else [str(job_id)]
    times = {"since": _format_timestamp(found.from_), "until": _format_timestamp(found.to)}
    return {
        "jobs": job_records,
        "kind": found.kind,
        "codes": found.error_codes,
        "reset_attempts": body.reset_attempts,
    } | times


def _format_timestamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def build_operation_response(response: Response, found: BulkOperation) -> OperationOut:
    if found.state == "running":
        response.status_code = 202
        response.headers["Retry-After"] = "1"
    response.headers["Location"] = f"/v1/operations/{found.id}"
    return build_operation_out(found)


def _parse_operation_cursor(place: tuple[Any, ...] | None) -> UUID | None:
    try:
        return None if place is None else _parse_single_id(place)
    except (TypeError, ValueError):
        raise InvalidInput("`after` is not a token of this list") from None


def _parse_single_id(place: tuple[Any, ...]) -> UUID:
    (text,) = place
    return parse_uuid(text)
