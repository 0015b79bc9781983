"""Across jobs: what waits, and what failed."""

from typing import Annotated

from fastapi import APIRouter, Query

from tidemill.api import cursor
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.lookup import job_named, own_scope, places_of, scope_of
from tidemill.api.problems import Refusal
from tidemill.api.schemas.across import (
    Cause,
    CauseQuery,
    DeadLetterOut,
    DeadLetterPage,
    DeadLetterQuery,
    Flow,
    FlowQuery,
    PendingOut,
    PendingPage,
    PendingQuery,
    RunNowIn,
    RunNowOut,
)
from tidemill.api.state import Db, Service, Serving
from tidemill.operations import inspect
from tidemill.operations.run_now import run_now
from tidemill.store import flow

router = APIRouter(tags=["across jobs"], route_class=Guarded)


@router.get("/pending", response_model_exclude_unset=True, **allow(Permission.USER, 404))
async def list_pending(query: Annotated[PendingQuery, Query()], me: Me, here: Serving) -> PendingPage:
    """Items that wait or are in hand, in any job, those that have done so for longest first; and why."""
    if not here.settings.pending_dashboard and query.job_id is None:  # what waits in one job is always told
        raise Refusal(404, "the pending dashboard is switched off here")
    owner_id = await own_scope(here.db, me, query.user_id)
    page = await inspect.list_pending(
        here.db,
        owner_id=owner_id,
        statuses=query.statuses,
        kind=query.job_type,
        job_id=await job_named(here.db, query.job_id, owner_id),
        from_=query.from_,
        to=query.to,
        limit=query.page_size,
        after=cursor.decode(query.after),
    )
    found = [PendingOut.model_validate(row) for row in page.items]
    told = await _pending_count(here, query, owner_id) | cursor.next_page(page.after)
    return PendingPage(items=found, **told)


async def _pending_count(here: Service, query: PendingQuery, owner_id: int | None) -> dict[str, int]:
    """Of what is listed, where it is known without a look at items."""
    if query.job_id is not None or query.from_ is not None or query.to is not None:
        return {}
    counted = await here.pending_counts.get(owner_id, statuses=query.statuses, kind=query.job_type)
    return {"pending_count": counted.count}


@router.get("/dead-letters", response_model_exclude_unset=True, **allow(Permission.USER, 404))
async def list_dead_letters(query: Annotated[DeadLetterQuery, Query()], me: Me, db: Db) -> DeadLetterPage:
    """Items that failed for good, in any job, the newest first."""
    owner_id = await own_scope(db, me, query.user_id)
    page = await inspect.list_dead_letters(
        db,
        owner_id=owner_id,
        kind=query.kind,
        codes=query.error_codes,
        job_id=await job_named(db, query.job_id, owner_id),
        from_=query.from_,
        to=query.to,
        limit=query.page_size,
        after=cursor.decode(query.after),
    )
    found = [DeadLetterOut.model_validate(row) for row in page.items]
    return DeadLetterPage(items=found, **cursor.next_page(page.after))


@router.get("/dead-letters/causes", **allow(Permission.USER, 404))
async def list_dead_letter_causes(query: Annotated[CauseQuery, Query()], me: Me, db: Db) -> list[Cause]:
    """Dead letters by error code."""
    owner_id = await own_scope(db, me, query.user_id)
    job_id = await job_named(db, query.job_id, owner_id)
    found = await inspect.dead_letter_causes(db, owner_id, kind=query.kind, job_id=job_id)
    return [Cause.model_validate(row) for row in found]


@router.post("/pending/run-now", **allow(Permission.USER, 404))
async def run_items_now(asked: RunNowIn, me: Me, db: Db) -> RunNowOut:
    """Items of any jobs that wait for a retry are due at once; whatever else they wait for, they still do."""
    items = places_of(asked.item_ids, "item_ids")
    return RunNowOut.model_validate(await run_now(db, items, scope_of(me), by=me.user_id), from_attributes=True)


@router.get("/flow", **allow(Permission.USER, 404))
async def get_flow(query: Annotated[FlowQuery, Query()], me: Me, db: Db) -> Flow:
    """How many items are open, and how many were settled and failed lately, over all your jobs."""
    return Flow.model_validate(await db.run(flow.look, await own_scope(db, me, query.user_id)))
