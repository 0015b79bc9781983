"""Bulk actions on items, and how far they are."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from tidemill.api import cursor
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.lookup import (
    JobToRun,
    OwnJob,
    check_rights,
    chosen_of,
    job_named,
    lost_rights,
    own_scope,
    places_of,
    seqs_of,
)
from tidemill.api.schemas.operations import (
    CancelItemsIn,
    ChosenIn,
    CountIn,
    CountOut,
    OperationOut,
    OperationPage,
    OperationQuery,
    RedriveIn,
    ReprocessIn,
)
from tidemill.api.state import Db, Service, Serving
from tidemill.api.views import operation_out
from tidemill.domain.errors import InvalidInput, Unknown, UnknownJob
from tidemill.domain.identity import Principal
from tidemill.domain.page import check_moments, check_text, identity
from tidemill.domain.status import TERMINAL
from tidemill.operations import cancel_rows as cancelling
from tidemill.operations import reprocess as operation
from tidemill.store import bulk, jobs
from tidemill.store.bulk import Operation
from tidemill.store.cancel_rows import WAITING, Waiting
from tidemill.store.lists import count_items as counting
from tidemill.store.lists.count_items import Selected
from tidemill.store.reprocess import Choice

router = APIRouter(tags=["operations"], route_class=Guarded)
WITHIN_S = 2.0
_going_on: dict[int | str, dict[str, Any]] = {202: {"description": "It goes on without you", "model": OperationOut}}


@router.post("/jobs/{job}/reprocess", **allow(Permission.USER, 404, 409, also=_going_on))
async def reprocess_job(
    job: JobToRun, asked: ReprocessIn, me: Me, request: Request, response: Response, db: Db
) -> OperationOut:
    """Send settled items round again, opening the job if it is closed. 202 when they are so many that it goes on."""
    seqs, ranges = chosen_of(asked, job.id)
    if (asked.scope == "items") != (seqs is not None):
        raise InvalidInput("scope `items` comes with item_ids or ranges, scope `job` without")
    choice = Choice(
        asked.statuses,
        seqs,
        asked.error_codes,
        asked.reset_attempts,
        but=_but(asked, job.id),
        key=asked.key,
        ranges=ranges,
    )
    who = {"user_id": me.user_id, "request_id": request.state.request_id}
    return answer(response, await operation.reprocess(db, job.id, choice, within=WITHIN_S, **who))


@router.post("/jobs/{job}/selection/cancel", **allow(Permission.USER, 404, 409, also=_going_on))
async def cancel_items(
    job: OwnJob, asked: CancelItemsIn, me: Me, request: Request, response: Response, db: Db
) -> OperationOut:
    """Cancel items that wait, and leave the others. What a worker has in hand is left to it."""
    seqs, ranges = chosen_of(asked, job.id)
    waiting = Waiting(asked.statuses, seqs, frozenset(_but(asked, job.id)), asked.key, ranges)
    who = {"user_id": me.user_id, "request_id": request.state.request_id}
    return answer(response, await cancelling.cancel_rows(db, job.id, waiting, within=WITHIN_S, **who))


@router.post("/jobs/{job}/selection/count", **allow(Permission.USER, 404))
async def count_items(job: OwnJob, asked: CountIn, db: Db) -> CountOut:
    """How many items a reprocess, a cancel or an export of these would take. Nothing is changed."""
    check_text("a filter", asked.key, *(asked.error_codes or ()))
    among = {"reprocess": TERMINAL, "cancel": WAITING, "export": ()}[asked.to]
    statuses = [status for status in asked.statuses if not among or status in among]
    if asked.statuses and not statuses:
        return CountOut(items=0, is_complete=True)
    seqs, ranges = chosen_of(asked, job.id)
    wanted = Selected(
        statuses or sorted(among),
        asked.error_codes,
        seqs,
        _but(asked, job.id),
        asked.key,
        again=asked.to == "reprocess",
        ranges=ranges,
    )
    items, is_complete = await db.run(counting.count_items, job.id, wanted)
    return CountOut(items=items, is_complete=is_complete)


def _but(asked: ChosenIn, job_id: UUID) -> list[int]:
    return seqs_of(asked.except_, "except", job_id)


@router.post("/dead-letters/redrive", **allow(Permission.USER, 404, 409, also=_going_on))
async def redrive_dead_letters(
    asked: RedriveIn, me: Me, request: Request, response: Response, here: Serving
) -> OperationOut:
    """Send failed items of any jobs round again: all that match but some, or those that are named."""
    if asked.all_matching == (asked.item_ids is not None):
        raise InvalidInput("say either all_matching or item_ids")
    db = here.db
    owner_id = await own_scope(db, me, asked.user_id)
    items = None if asked.item_ids is None else places_of(asked.item_ids, "item_ids")
    only = await job_named(db, asked.filter.job_id, owner_id)
    await _check_rights(here, me, {job for job, _ in items or ()} | ({only} - {None}), owner_id)
    denied = [] if me.is_admin else await lost_rights(here, me)
    found = await operation.redrive(
        db,
        owner_id=owner_id,
        items=items,
        but=places_of(asked.except_, "except"),
        filters=_filters(asked, only) | ({"denied": denied} if denied else {}),
        user_id=me.user_id,
        request_id=request.state.request_id,
        within=WITHIN_S,
    )
    return answer(response, found)


@router.get("/operations", response_model_exclude_unset=True, **allow(Permission.USER, 404))
async def list_operations(query: Annotated[OperationQuery, Query()], me: Me, db: Db) -> OperationPage:
    """Every bulk action with its actor, predicate and progress; the newest first."""
    owner_id = await own_scope(db, me, query.user_id)
    before = _before(cursor.decode(query.after))
    found = await db.run(bulk.list_operations, user_id=owner_id, before=before, limit=query.page_size + 1)
    shown = found[: query.page_size]
    more = (str(shown[-1].id),) if len(found) > len(shown) else None
    return OperationPage(operations=[operation_out(one) for one in shown], **cursor.next_page(more))


@router.get("/operations/{operation_id}", **allow(Permission.USER, 404))
async def get_operation(operation_id: UUID, me: Me, db: Db) -> OperationOut:
    """How far a bulk action is."""
    found = await db.run(bulk.find, operation_id)
    if not me.may_see(found.user_id):
        raise Unknown(f"there is no operation {operation_id}")
    return operation_out(found)


async def _check_rights(here: Service, me: Principal, named: Iterable[UUID | None], owner_id: int | None) -> None:
    """Of the jobs that are named; what nobody has, or somebody else, is passed over in silence by the redrive."""
    for job_id in () if me.is_admin else named:
        with suppress(UnknownJob):
            await check_rights(here, me, await here.db.run(jobs.get_named, str(job_id), owner_id))


def _filters(asked: RedriveIn, only: UUID | None) -> dict[str, Any]:
    found = asked.filter
    check_moments(found.from_, found.to)
    jobs = None if only is None else [str(only)]
    times = {"since": _text(found.from_), "until": _text(found.to)}
    return {
        "jobs": jobs,
        "kind": found.kind,
        "codes": found.error_codes,
        "reset_attempts": asked.reset_attempts,
    } | times


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def answer(response: Response, found: Operation) -> OperationOut:
    if found.state == "running":
        response.status_code = 202
        response.headers["Retry-After"] = "1"
    response.headers["Location"] = f"/v1/operations/{found.id}"
    return operation_out(found)


def _before(place: tuple[Any, ...] | None) -> UUID | None:
    try:
        return None if place is None else _only(place)
    except (TypeError, ValueError):
        raise InvalidInput("`after` is not a token of this list") from None


def _only(place: tuple[Any, ...]) -> UUID:
    (text,) = place
    return identity(text)
