"""Routes for bulk operations on items."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from tidemill.core.errors import InvalidInput
from tidemill.core.list_pages import FOREIGN_CURSOR_MESSAGE, check_time_zones, parse_cursor_uuid
from tidemill.jobs import job_control, queries, reprocessing
from tidemill.jobs.bulk_operation_schemas import (
    CancelItemsIn,
    CountIn,
    CountOut,
    DeadLetterSelectionIn,
    ItemChoiceIn,
    OperationOut,
    OperationPage,
    OperationQuery,
    RedriveIn,
    ReprocessIn,
    RetryForecastOut,
)
from tidemill.jobs.job_control import CancelSelection
from tidemill.jobs.job_views import build_operation_out
from tidemill.jobs.reprocessing import BulkOperation, ItemId, ReprocessSelection
from tidemill.jobs.route_dependencies import (
    RunnableJob,
    VisibleJob,
    parse_item_ids,
    parse_item_selection,
    parse_item_seqs,
    resolve_filtered_job_id,
    resolve_owner_filter,
)
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, RuntimeDep

router = APIRouter(tags=["operations"], route_class=AuthenticatedRoute)
OPERATION_WAIT_S = 2.0
RUNNING_OPERATION_RESPONSE: dict[int | str, dict[str, Any]] = {
    202: {"description": "The operation continues in the background", "model": OperationOut}
}


@router.post(
    "/jobs/{job}/reprocess",
    **build_route_options(Permission.USER, 404, 409, extra_responses=RUNNING_OPERATION_RESPONSE),
)
async def reprocess_job(
    job: RunnableJob, body: ReprocessIn, me: CurrentUser, request: Request, response: Response, runtime: RuntimeDep
) -> OperationOut:
    """Run settled items of a job again. A closed job is reopened.

    The status is 202 if the operation continues in the background.
    """
    seqs, ranges = parse_item_selection(body, job.id)
    if (body.scope == "items") != (seqs is not None):
        raise InvalidInput('Scope "items" requires item_ids or ranges; scope "job" allows neither')
    selection = ReprocessSelection(
        body.statuses,
        seqs,
        body.error_codes,
        reset_attempts=body.reset_attempts,
        excluded_seqs=_parse_excluded_seqs(body, job.id),
        key=body.key,
        ranges=ranges,
    )
    operation = await reprocessing.reprocess_items(
        runtime.db,
        job.id,
        selection,
        user_id=me.user_id,
        request_id=request.state.request_id,
        timeout_s=OPERATION_WAIT_S,
        find_kind_hooks=runtime.find_kind_hooks,
        quota=runtime.settings.default_quota,
    )
    return set_operation_headers_and_build_out(response, operation)


@router.post(
    "/jobs/{job}/selection/cancel",
    **build_route_options(Permission.USER, 404, 409, extra_responses=RUNNING_OPERATION_RESPONSE),
)
async def cancel_items(
    job: VisibleJob, body: CancelItemsIn, me: CurrentUser, request: Request, response: Response, runtime: RuntimeDep
) -> OperationOut:
    """Cancel waiting items of a job. Items that a worker has leased are not cancelled."""
    seqs, ranges = parse_item_selection(body, job.id)
    selection = CancelSelection(
        body.statuses, seqs, excluded_seqs=_parse_excluded_seqs(body, job.id), key=body.key, ranges=ranges
    )
    operation = await job_control.cancel_waiting_items(
        runtime.db,
        job.id,
        selection,
        user_id=me.user_id,
        request_id=request.state.request_id,
        timeout_s=OPERATION_WAIT_S,
        find_kind_hooks=runtime.find_kind_hooks,
    )
    return set_operation_headers_and_build_out(response, operation)


@router.post("/jobs/{job}/selection/count", **build_route_options(Permission.USER, 404))
async def count_items(job: VisibleJob, body: CountIn, runtime: RuntimeDep) -> CountOut:
    """Count the items that a reprocess, cancel or export of this selection would include. Nothing is changed."""
    seqs, ranges = parse_item_selection(body, job.id)
    items, is_complete = await queries.count_eligible_items(
        runtime.db,
        job.id,
        body.to,
        body.statuses,
        reset_attempts=body.reset_attempts,
        seqs=seqs,
        codes=body.error_codes,
        excluded_seqs=_parse_excluded_seqs(body, job.id),
        key=body.key,
        ranges=ranges,
        find_kind_hooks=runtime.find_kind_hooks,
    )
    return CountOut(items=items, is_complete=is_complete)


def _parse_excluded_seqs(body: ItemChoiceIn, job_id: UUID) -> list[int]:
    return parse_item_seqs(body.except_, "except", job_id)


@router.post(
    "/dead-letters/redrive",
    **build_route_options(Permission.USER, 404, 409, extra_responses=RUNNING_OPERATION_RESPONSE),
)
async def redrive_dead_letters(
    body: RedriveIn, me: CurrentUser, request: Request, response: Response, runtime: RuntimeDep
) -> OperationOut:
    """Retry dead letters of several jobs: all that match a filter, or the given items."""
    extra = {"reset_attempts": body.reset_attempts}
    return set_operation_headers_and_build_out(
        response, await _start_dead_letter_operation("redrive", body, me, request, runtime, extra)
    )


@router.post("/dead-letters/forecast", **build_route_options(Permission.USER, 404))
async def forecast_redrive(body: DeadLetterSelectionIn, me: CurrentUser, db: DatabaseDep) -> RetryForecastOut:
    """Count the dead letters that a redrive would retry, grouped by the probable result. Nothing is changed."""
    items = _parse_selected_items(body)
    owner_id = await resolve_owner_filter(db, me, body.user_id)
    given = body.filter
    forecast = await queries.forecast_retry(
        db,
        owner_id=owner_id,
        items=items,
        excluded_items=parse_item_ids(body.except_, "except"),
        kind=given.kind,
        codes=given.error_codes,
        job_id=await resolve_filtered_job_id(db, given.job_id, owner_id),
        category=given.category,
        group=given.group,
        from_=given.from_,
        to=given.to,
    )
    return RetryForecastOut.model_validate(forecast, from_attributes=True)


@router.post(
    "/dead-letters/dismiss",
    **build_route_options(Permission.USER, 404, 409, extra_responses=RUNNING_OPERATION_RESPONSE),
)
async def dismiss_dead_letters(
    body: DeadLetterSelectionIn, me: CurrentUser, request: Request, response: Response, runtime: RuntimeDep
) -> OperationOut:
    """Remove failed items from the list of dead letters. Their jobs and counts do not change. Idempotent."""
    return set_operation_headers_and_build_out(
        response, await _start_dead_letter_operation("dismiss", body, me, request, runtime)
    )


@router.post(
    "/dead-letters/restore",
    **build_route_options(Permission.USER, 404, 409, extra_responses=RUNNING_OPERATION_RESPONSE),
)
async def restore_dead_letters(
    body: DeadLetterSelectionIn, me: CurrentUser, request: Request, response: Response, runtime: RuntimeDep
) -> OperationOut:
    """Return dismissed items to the list of dead letters. Idempotent."""
    return set_operation_headers_and_build_out(
        response, await _start_dead_letter_operation("restore", body, me, request, runtime)
    )


async def _start_dead_letter_operation(
    verb: reprocessing.DeadLetterVerb,
    body: DeadLetterSelectionIn,
    me: CurrentUser,
    request: Request,
    runtime: RuntimeDep,
    extra: Mapping[str, Any] | None = None,
) -> BulkOperation:
    items = _parse_selected_items(body)
    db = runtime.db
    owner_id = await resolve_owner_filter(db, me, body.user_id)
    return await reprocessing.run_dead_letter_operation_for_user(
        runtime,
        me,
        verb=verb,
        owner_id=owner_id,
        items=items,
        excluded_items=parse_item_ids(body.except_, "except"),
        job_id=await resolve_filtered_job_id(db, body.filter.job_id, owner_id),
        filters=_build_dead_letter_filters(body) | dict(extra or {}),
        request_id=request.state.request_id,
        timeout_s=OPERATION_WAIT_S,
    )


def _parse_selected_items(body: DeadLetterSelectionIn) -> list[ItemId] | None:
    if body.all_matching == (body.item_ids is not None):
        raise InvalidInput('Send either "all_matching" or "item_ids"')
    return None if body.item_ids is None else parse_item_ids(body.item_ids, "item_ids")


@router.get("/operations", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_operations(query: Annotated[OperationQuery, Query()], me: CurrentUser, db: DatabaseDep) -> OperationPage:
    """List bulk operations, newest first. Each includes its user, selection and progress."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    before = _parse_operation_cursor(dependencies.decode_cursor(query.after))
    operations = await reprocessing.list_operations(db, owner_id, before=before, limit=query.page_size + 1)
    shown = operations[: query.page_size]
    more = (str(shown[-1].id),) if len(operations) > len(shown) else None
    return OperationPage(
        operations=[build_operation_out(one) for one in shown], **dependencies.build_next_page_dict(more)
    )


@router.get("/operations/{operation_id}", **build_route_options(Permission.USER, 404))
async def get_operation(operation_id: UUID, me: CurrentUser, db: DatabaseDep) -> OperationOut:
    """Get a bulk operation and its progress."""
    return build_operation_out(await reprocessing.get_operation(db, me, operation_id))


@router.post("/operations/{operation_id}/cancel", **build_route_options(Permission.USER, 404, 409))
async def cancel_operation(operation_id: UUID, me: CurrentUser, db: DatabaseDep) -> OperationOut:
    """Cancel a running bulk operation. Items that it has already changed stay changed. Idempotent."""
    return build_operation_out(await reprocessing.cancel_operation(db, me, operation_id))


def _build_dead_letter_filters(body: DeadLetterSelectionIn) -> dict[str, Any]:
    given = body.filter
    check_time_zones(given.from_, given.to)
    filters = {
        "kind": given.kind,
        "codes": given.error_codes,
        "since": _format_timestamp(given.from_),
        "until": _format_timestamp(given.to),
    }
    return filters | {
        name: value for name, value in (("category", given.category), ("group", given.group)) if value is not None
    }


def _format_timestamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def set_operation_headers_and_build_out(response: Response, operation: BulkOperation) -> OperationOut:
    if operation.state == "running":
        response.status_code = 202
        response.headers["Retry-After"] = "1"
    response.headers["Location"] = f"/v1/operations/{operation.id}"
    return build_operation_out(operation)


def _parse_operation_cursor(cursor: tuple[Any, ...] | None) -> UUID | None:
    try:
        return None if cursor is None else _parse_operation_id_of_cursor(cursor)
    except (TypeError, ValueError):
        raise InvalidInput(FOREIGN_CURSOR_MESSAGE) from None


def _parse_operation_id_of_cursor(cursor: tuple[Any, ...]) -> UUID:
    (text,) = cursor
    return parse_cursor_uuid(text)
