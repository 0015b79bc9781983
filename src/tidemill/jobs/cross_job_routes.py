"""Pending items, dead letters and throughput, across all jobs."""

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
    """An item that waits or is in hand."""

    job_id: UUID
    job_key: str
    job_status: JobStatus
    kind: str
    user_id: int = Field(validation_alias=USER_ID_ALIASES)
    why: str = Field(description="Why it waits")


class PendingPage(BaseModel):
    """Those that have been as they are for longest first."""

    items: list[PendingOut]
    pending_count: int | None = Field(
        None,
        description="How many there are of these statuses and kind, half a minute ago at most; not with other filters",
    )
    next_page: NextPageToken = None


class PendingQuery(QueryModel):
    statuses: ItemStatusFilter = Field([ItemStatus.PENDING, ItemStatus.PROCESSING], validation_alias=STATUSES_ALIASES)
    user_id: UserFilter = "me"
    job_type: KindFilter = None
    job_id: JobFilter = None
    from_: Timestamp | None = Field(None, validation_alias=FROM_ALIASES, description="Unchanged since then or later")
    to: Timestamp | None = Field(None, description="Unchanged since before then")
    page_size: PageSize = 100
    after: AfterCursor = None


class DeadLetterOut(BaseModel):
    """An item that failed for good."""

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
    rev: int | None = Field(description="Its newest correction, if somebody corrected it")
    input_summary: object = None


class DeadLetterPage(BaseModel):
    """The newest first."""

    items: list[DeadLetterOut]
    next_page: NextPageToken = None


class DeadLetterQuery(QueryModel):
    user_id: UserFilter = "me"
    kind: KindFilter = None
    error_codes: ErrorCodeFilter | None = None
    job_id: JobFilter = None
    from_: Timestamp | None = Field(None, validation_alias=FROM_ALIASES, description="Failed then or later")
    to: Timestamp | None = Field(None, description="Failed before then")
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
    jobs: int = Field(description="In how many jobs")
    newest: datetime | None = Field(description="When such a job last changed")


class RunNowIn(RequestModel):
    """Items that need wait no longer for their retry."""

    item_ids: list[ItemIdText] = Field(max_length=ITEM_IDS_MAX)


class RunNowOut(BaseModel):
    """What became of them. All of them together are those that were named."""

    due: int = Field(description="Waited for a retry, and are due now")
    in_hand: int = Field(description="A worker has them already")
    others: int = Field(description="Wait for their turn as it is, or are settled")


class OpenItemCountsOut(BaseModel):
    """Items that are not settled."""

    pending: int
    processing: int
    retry_wait: int


class FlowPointOut(BaseModel):
    """So many were settled in the stretch that ends then."""

    at: datetime
    settled: int
    failed: int = Field(description="Of the settled")


class FlowOut(BaseModel):
    """What is open, and how it has flowed lately, over all jobs. Of more than a thousand, the newest."""

    open: OpenItemCountsOut
    step_s: int = Field(description="Seconds of a stretch")
    points: list[FlowPointOut] = Field(description="Of the last quarter of an hour")


class FlowQuery(QueryModel):
    user_id: UserFilter = "me"


router = APIRouter(tags=["across jobs"], route_class=AuthenticatedRoute)


@router.get("/pending", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_pending(query: Annotated[PendingQuery, Query()], me: CurrentUser, runtime: RuntimeDep) -> PendingPage:
    """Items that wait or are in hand, in any job, those that have done so for longest first; and why."""
    if not runtime.settings.pending_dashboard and query.job_id is None:  # the items of one job are always listed
        raise HttpError(404, "the pending dashboard is switched off here")
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
    return PendingPage(items=items, **count, **schema_types.build_next_page_field(page.after))


async def _load_pending_count_field(runtime: Runtime, query: PendingQuery, owner_id: int | None) -> dict[str, int]:
    """The number of listed items, if the filters allow to know it without counting items."""
    if query.job_id is not None or query.from_ is not None or query.to is not None:
        return {}
    counted = await runtime.get(make_pending_count_cache).get(owner_id, statuses=query.statuses, kind=query.job_type)
    return {"pending_count": counted.count}


@router.get("/dead-letters", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_dead_letters(
    query: Annotated[DeadLetterQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> DeadLetterPage:
    """Items that failed for good, in any job, the newest first."""
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
    found = [DeadLetterOut.model_validate(row) for row in page.items]
    return DeadLetterPage(items=found, **schema_types.build_next_page_field(page.after))


@router.get("/dead-letters/causes", **build_route_options(Permission.USER, 404))
async def list_dead_letter_causes(
    query: Annotated[CauseQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> list[DeadLetterCauseOut]:
    """Dead letters by error code."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    job_id = await resolve_job_filter(db, query.job_id, owner_id)
    found = await queries.list_dead_letter_causes(db, owner_id, kind=query.kind, job_id=job_id)
    return [DeadLetterCauseOut.model_validate(row) for row in found]


@router.post("/pending/run-now", **build_route_options(Permission.USER, 404))
async def run_items_now(body: RunNowIn, me: CurrentUser, db: DatabaseDep) -> RunNowOut:
    """Items of any jobs that wait for a retry are due at once; whatever else they wait for, they still do."""
    items = parse_item_ids(body.item_ids, "item_ids")
    return RunNowOut.model_validate(
        await job_control.make_items_due_now(db, items, get_owner_scope(me), by=me.user_id), from_attributes=True
    )


@router.get("/flow", **build_route_options(Permission.USER, 404))
async def get_flow(query: Annotated[FlowQuery, Query()], me: CurrentUser, db: DatabaseDep) -> FlowOut:
    """How many items are open, and how many were settled and failed lately, over all your jobs."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    return FlowOut.model_validate(await queries.get_throughput(db, owner_id))
