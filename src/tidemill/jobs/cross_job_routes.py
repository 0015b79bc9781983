"""Pending items, dead letters and throughput of all jobs."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AliasChoices, BaseModel, Field

from tidemill.core.status import ItemStatus, JobStatus
from tidemill.jobs import job_control, queries
from tidemill.jobs.dependencies import get_owner_scope, parse_item_ids, resolve_job_filter, resolve_owner_filter
from tidemill.jobs.queries import make_pending_count_cache
from tidemill.jobs.schemas import ItemError, ItemOut
from tidemill.rest import schema_types
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.problems import HttpError
from tidemill.rest.runtime_dependencies import DatabaseDep, RuntimeDep
from tidemill.rest.schema_types import (
    FROM_ALIASES,
    ITEM_IDS_MAX,
    STATUSES_ALIASES,
    AfterCursor,
    ErrorCodeFilter,
    ItemIdText,
    ItemStatusFilter,
    JobFilter,
    KindFilter,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
    Timestamp,
    UserFilter,
)
from tidemill.runtime import Runtime

USER_ID_ALIASES = AliasChoices("owner_id", "user_id")


class PendingOut(ItemOut):
    """An item that is waiting or being processed."""

    job_id: UUID
    job_key: str
    job_status: JobStatus
    kind: str
    user_id: int = Field(validation_alias=USER_ID_ALIASES)
    why: str = Field(description="Why the item is waiting")


class PendingPage(BaseModel):
    """A page of open items, longest unchanged first."""

    items: list[PendingOut]
    pending_count: int | None = Field(
        None,
        description="Number of items with these statuses and this kind, at most 30 s old; absent with other filters",
    )
    next_page: NextPageToken = None


class PendingQuery(QueryModel):
    statuses: ItemStatusFilter = Field([ItemStatus.PENDING, ItemStatus.PROCESSING], validation_alias=STATUSES_ALIASES)
    user_id: UserFilter = "me"
    job_type: KindFilter = None
    job_id: JobFilter = None
    from_: Timestamp | None = Field(
        None, validation_alias=FROM_ALIASES, description="Last changed at or after this time"
    )
    to: Timestamp | None = Field(None, description="Last changed before this time")
    page_size: PageSize = 100
    after: AfterCursor = None


class DeadLetterOut(BaseModel):
    """A dead letter: a failed item."""

    id: str
    job_id: UUID
    job_key: str
    kind: str
    user_id: int = Field(validation_alias=USER_ID_ALIASES)
    seq: int
    status: ItemStatus
    attempts: int
    updated_at: datetime
    error: ItemError | None
    duration_ms: int | None
    rev: int | None = Field(description="Number of its newest fix, if it was fixed")
    input_summary: object = None


class DeadLetterPage(BaseModel):
    """A page of dead letters, newest first."""

    items: list[DeadLetterOut]
    next_page: NextPageToken = None


class DeadLetterQuery(QueryModel):
    user_id: UserFilter = "me"
    kind: KindFilter = None
    error_codes: ErrorCodeFilter | None = None
    job_id: JobFilter = None
    from_: Timestamp | None = Field(None, validation_alias=FROM_ALIASES, description="Failed at or after this time")
    to: Timestamp | None = Field(None, description="Failed before this time")
    page_size: PageSize = 100
    after: AfterCursor = None


class CauseQuery(QueryModel):
    user_id: UserFilter = "me"
    kind: KindFilter = None
    job_id: JobFilter = None


class DeadLetterCauseOut(BaseModel):
    """Dead letters with one error code."""

    code: str
    count: int
    jobs: int = Field(description="Number of jobs with such dead letters")
    newest: datetime | None = Field(description="When one of these jobs last changed")


class RunNowIn(RequestModel):
    """Items to retry now instead of after their delay."""

    item_ids: list[ItemIdText] = Field(max_length=ITEM_IDS_MAX)


class RunNowOut(BaseModel):
    """The requested items by result. The numbers add up to the number of requested items."""

    due: int = Field(description="Items that waited for a retry and are now due")
    in_hand: int = Field(description="Items that a worker has already leased")
    others: int = Field(description="Items that were already due or are settled")


class OpenItemCountsOut(BaseModel):
    """The number of open items by status."""

    pending: int
    processing: int
    retry_wait: int


class FlowPointOut(BaseModel):
    """Items settled in one interval; `at` is its end."""

    at: datetime
    settled: int
    failed: int = Field(description="Failed items, included in `settled`")


class FlowOut(BaseModel):
    """Open items and recent throughput of all jobs, or of the newest 1,000 jobs."""

    open: OpenItemCountsOut
    step_s: int = Field(description="Length of an interval in seconds")
    points: list[FlowPointOut] = Field(description="Intervals of the last 15 minutes")


class FlowQuery(QueryModel):
    user_id: UserFilter = "me"


router = APIRouter(tags=["across jobs"], route_class=AuthenticatedRoute)


@router.get("/pending", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_pending(query: Annotated[PendingQuery, Query()], me: CurrentUser, runtime: RuntimeDep) -> PendingPage:
    """List waiting and running items of all jobs, longest unchanged first, with the reason why each waits."""
    if (
        not runtime.settings.pending_dashboard and query.job_id is None
    ):  # listing the items of one job is always allowed
        raise HttpError(404, "The pending dashboard is disabled (TIDEMILL_PENDING_DASHBOARD)")
    owner_id = await resolve_owner_filter(runtime.db, me, query.user_id)
    page = await queries.list_pending(
        runtime.db,
        owner_id=owner_id,
        statuses=query.statuses,
        kind=query.job_type,
        job_id=await resolve_job_filter(runtime.db, query.job_id, owner_id),
        from_=query.from_,
        to=query.to,
        limit=query.page_size,
        after=schema_types.decode_cursor(query.after),
    )
    items = [PendingOut.model_validate(row) for row in page.items]
    count = await _load_pending_count_field(runtime, query, owner_id)
    return PendingPage(items=items, **count, **schema_types.build_next_page_dict(page.after))


async def _load_pending_count_field(runtime: Runtime, query: PendingQuery, owner_id: int | None) -> dict[str, int]:
    """Return the number of listed items; empty if the filters would require counting items."""
    if query.job_id is not None or query.from_ is not None or query.to is not None:
        return {}
    counted = await runtime.get(make_pending_count_cache).get(owner_id, statuses=query.statuses, kind=query.job_type)
    return {"pending_count": counted.count}


@router.get("/dead-letters", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_dead_letters(
    query: Annotated[DeadLetterQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> DeadLetterPage:
    """List dead letters of all jobs, newest first."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    page = await queries.list_dead_letters(
        db,
        owner_id=owner_id,
        kind=query.kind,
        codes=query.error_codes,
        job_id=await resolve_job_filter(db, query.job_id, owner_id),
        from_=query.from_,
        to=query.to,
        limit=query.page_size,
        after=schema_types.decode_cursor(query.after),
    )
    items = [DeadLetterOut.model_validate(row) for row in page.items]
    return DeadLetterPage(items=items, **schema_types.build_next_page_dict(page.after))


@router.get("/dead-letters/causes", **build_route_options(Permission.USER, 404))
async def list_dead_letter_causes(
    query: Annotated[CauseQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> list[DeadLetterCauseOut]:
    """List the error codes of dead letters with their counts."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    job_id = await resolve_job_filter(db, query.job_id, owner_id)
    causes = await queries.list_dead_letter_causes(db, owner_id, kind=query.kind, job_id=job_id)
    return [DeadLetterCauseOut.model_validate(row) for row in causes]


@router.post("/pending/run-now", **build_route_options(Permission.USER, 404))
async def run_items_now(body: RunNowIn, me: CurrentUser, db: DatabaseDep) -> RunNowOut:
    """Make items that wait for a retry due now. Other reasons to wait still apply."""
    items = parse_item_ids(body.item_ids, "item_ids")
    return RunNowOut.model_validate(
        await job_control.make_items_due_now(db, items, get_owner_scope(me), by=me.user_id), from_attributes=True
    )


@router.get("/flow", **build_route_options(Permission.USER, 404))
async def get_flow(query: Annotated[FlowQuery, Query()], me: CurrentUser, db: DatabaseDep) -> FlowOut:
    """Get the number of open items, and of recently settled and failed items, of all your jobs."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    return FlowOut.model_validate(await queries.get_throughput(db, owner_id))
