"""Pending items, dead letters and throughput of all jobs."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AliasChoices, BaseModel, Field
from typing_extensions import TypeAliasType

from tidemill.core.status import ItemStatus, JobStatus
from tidemill.jobs import job_control, queries
from tidemill.jobs.bulk_operation_schemas import CategoryFilter, FailureCategory, FailureGroupFilter
from tidemill.jobs.queries import make_pending_count_cache
from tidemill.jobs.route_dependencies import (
    get_owner_scope,
    parse_item_ids,
    resolve_filtered_job_id,
    resolve_owner_filter,
)
from tidemill.jobs.schemas import ItemError, ItemOut
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, RuntimeDep
from tidemill.rest.problems import HttpError
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
    """A page of open items. The least recently changed item comes first."""

    items: list[PendingOut]
    pending_count: int | None = Field(
        None,
        description="Number of items with these statuses and this kind. Can be 30 s old; absent with other filters",
    )
    next_page: NextPageToken = None


class PendingQuery(QueryModel):
    statuses: ItemStatusFilter = Field([ItemStatus.PENDING, ItemStatus.PROCESSING], validation_alias=STATUSES_ALIASES)
    user_id: UserFilter = "me"
    job_type: KindFilter = None
    job_id: JobFilter = None
    from_: Timestamp | None = Field(
        None, validation_alias=FROM_ALIASES, description="Only items that last changed at or after this time"
    )
    to: Timestamp | None = Field(None, description="Only items that last changed before this time")
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
    rev: int | None = Field(description="Number of the newest fix, if the item was fixed")
    category: FailureCategory = Field(description="Where the failure comes from")
    dismissed_at: datetime | None = Field(description="When a user dismissed the item; null if no user dismissed it")
    dismissed_by: int | None = Field(description="Id of the user who dismissed the item")
    input_summary: object = None


class DeadLetterPage(BaseModel):
    """A page of dead letters, newest first."""

    items: list[DeadLetterOut]
    next_page: NextPageToken = None


class DeadLetterQuery(QueryModel):
    user_id: UserFilter = "me"
    kind: KindFilter = None
    error_codes: ErrorCodeFilter | None = None
    category: CategoryFilter = None
    group: FailureGroupFilter = None
    dismissed: bool = Field(False, description="List only dismissed items; by default, they are not listed")
    job_id: JobFilter = None
    from_: Timestamp | None = Field(
        None, validation_alias=FROM_ALIASES, description="Only items that failed at or after this time"
    )
    to: Timestamp | None = Field(None, description="Only items that failed before this time")
    page_size: PageSize = 100
    after: AfterCursor = None


class DeadLetterGroupQuery(QueryModel):
    user_id: UserFilter = "me"
    kind: KindFilter = None
    job_id: JobFilter = None
    category: CategoryFilter = None
    dismissed: bool = Field(False, description="Group the dismissed items of all categories, and no other items")
    from_: Timestamp | None = Field(
        None, validation_alias=FROM_ALIASES, description="Only items that failed at or after this time"
    )
    to: Timestamp | None = Field(None, description="Only items that failed before this time")


class DeadLetterGroupOut(BaseModel):
    """Failed items of one kind with the same error type and message. Values in the messages can differ."""

    id: str
    kind: str
    type: str = Field(description="The class of the exception, or the error code")
    message: str = Field(description="The message; quoted values, UUIDs and numbers are replaced by `…`")
    count: int
    first_at: datetime = Field(description="When the first of these items failed")
    last_at: datetime = Field(description="When the last of these items failed")
    example: DeadLetterOut | None = Field(description="The newest of these items")


class DeadLetterCountsOut(BaseModel):
    """The number of failed items in each category, not counting dismissed items, and the number of dismissed items."""

    handler: int
    invalid_row: int
    dry_run: int
    dismissed: int = Field(description="Number of dismissed items, at most 10,000")
    is_exact: bool = Field(
        description="False if more than 10,000 items are dismissed. The other counts then include some dismissed items"
    )


ListedCategory = TypeAliasType("ListedCategory", Literal["handler", "invalid_row", "dry_run", "dismissed"])


class DeadLetterGroupsOut(BaseModel):
    """Groups of failed items, largest first, and the counts of all categories."""

    category: ListedCategory = Field(description="Category of the items in `groups`")
    counts: DeadLetterCountsOut
    groups: list[DeadLetterGroupOut] = Field(description="At most 200 groups")
    grouped: int = Field(description="Number of items that were grouped, at most 10,000")
    is_complete: bool = Field(description="False if only the newest items were grouped")


class CauseQuery(QueryModel):
    user_id: UserFilter = "me"
    kind: KindFilter = None
    job_id: JobFilter = None


class DeadLetterCauseOut(BaseModel):
    """Dead letters with one error code."""

    code: str
    count: int
    jobs: int = Field(description="Number of jobs with these dead letters")
    newest: datetime | None = Field(description="Time of the latest change to these jobs")


class RunNowIn(RequestModel):
    """Items to retry now instead of after their delay."""

    item_ids: list[ItemIdText] = Field(max_length=ITEM_IDS_MAX)


class RunNowOut(BaseModel):
    """The requested items by result. The numbers add up to the number of requested items."""

    due: int = Field(description="Items that waited for a retry and are now due")
    in_hand: int = Field(description="Items that a worker has already leased")
    others: int = Field(
        description="Items for which the request changes nothing: they were already due, or are settled"
    )


class OpenItemCountsOut(BaseModel):
    """The number of open items by status."""

    pending: int
    processing: int
    retry_wait: int


class FlowPointOut(BaseModel):
    """Number of items settled in one interval. `at` is the end of the interval."""

    at: datetime
    settled: int
    failed: int = Field(description="Failed items, included in `settled`")


class UnservedKindOut(BaseModel):
    """A kind with open items or jobs that no running worker handles."""

    kind: str
    items: int = Field(description="Open items of this kind, except items of paused jobs")
    jobs: int = Field(
        description="Open jobs of this kind, except paused jobs; includes jobs whose file is not read yet"
    )


class FlowOut(BaseModel):
    """Open items and recent throughput of all jobs, or of the newest 1,000 jobs."""

    open: OpenItemCountsOut
    paused: int = Field(description="Open items of jobs that are paused or being cancelled")
    unserved: list[UnservedKindOut] = Field(
        description="At most 20 kinds that no running worker handles, the kind with the most items first"
    )
    step_s: int = Field(description="Length of an interval in seconds")
    points: list[FlowPointOut] = Field(description="Intervals of the last 15 minutes")


class FlowQuery(QueryModel):
    user_id: UserFilter = "me"


router = APIRouter(tags=["across jobs"], route_class=AuthenticatedRoute)


@router.get("/pending", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_pending(query: Annotated[PendingQuery, Query()], me: CurrentUser, runtime: RuntimeDep) -> PendingPage:
    """List waiting and running items of all jobs, and why each waits. The least recently changed item comes first."""
    if (
        not runtime.settings.pending_dashboard and query.job_id is None
    ):  # listing the items of one job is always allowed
        raise HttpError(404, "The pending dashboard is disabled (TIDEMILL_PENDING_DASHBOARD)")
    owner_id = await resolve_owner_filter(runtime.db, me, query.user_id)
    page = await queries.list_pending_items(
        runtime.db,
        owner_id=owner_id,
        statuses=query.statuses,
        kind=query.job_type,
        job_id=await resolve_filtered_job_id(runtime.db, query.job_id, owner_id),
        from_=query.from_,
        to=query.to,
        limit=query.page_size,
        after=dependencies.decode_cursor(query.after),
    )
    items = [PendingOut.model_validate(row) for row in page.items]
    count = await _read_pending_count_dict(runtime, query, owner_id)
    return PendingPage(items=items, **count, **dependencies.build_next_page_dict(page.after))


async def _read_pending_count_dict(runtime: Runtime, query: PendingQuery, owner_id: int | None) -> dict[str, int]:
    """Return the number of listed items; empty if the filters would require counting items."""
    if query.job_id is not None or query.from_ is not None or query.to is not None:
        return {}
    counted = await runtime.get(make_pending_count_cache).get(owner_id, statuses=query.statuses, kind=query.job_type)
    return {"pending_count": counted.count}


@router.get("/dead-letters", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404))
async def list_dead_letters(
    query: Annotated[DeadLetterQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> DeadLetterPage:
    """List dead letters of all jobs, newest first. Dismissed items are not included, unless `dismissed` is set."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    page = await queries.list_dead_letters(
        db,
        owner_id=owner_id,
        kind=query.kind,
        codes=query.error_codes,
        job_id=await resolve_filtered_job_id(db, query.job_id, owner_id),
        from_=query.from_,
        to=query.to,
        category=query.category,
        group=query.group,
        dismissed=query.dismissed,
        limit=query.page_size,
        after=dependencies.decode_cursor(query.after),
    )
    items = [DeadLetterOut.model_validate(row) for row in page.items]
    return DeadLetterPage(items=items, **dependencies.build_next_page_dict(page.after))


@router.get("/dead-letters/groups", **build_route_options(Permission.USER, 404))
async def list_dead_letter_groups(
    query: Annotated[DeadLetterGroupQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> DeadLetterGroupsOut:
    """Group the newest 10,000 dead letters of a category by kind, error type and message.

    Without `category`, the response covers the first category that has dead letters, in the order `handler`,
    `invalid_row`, `dry_run`.
    """
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    category, counts, found = await queries.group_dead_letters(
        db,
        owner_id=owner_id,
        kind=query.kind,
        job_id=await resolve_filtered_job_id(db, query.job_id, owner_id),
        from_=query.from_,
        to=query.to,
        category=query.category,
        dismissed=query.dismissed,
    )
    return DeadLetterGroupsOut.model_validate(asdict(found) | {"category": category, "counts": asdict(counts)})


@router.get("/dead-letters/causes", **build_route_options(Permission.USER, 404))
async def list_dead_letter_causes(
    query: Annotated[CauseQuery, Query()], me: CurrentUser, db: DatabaseDep
) -> list[DeadLetterCauseOut]:
    """List the error codes of dead letters with their counts. Dismissed items are included."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    job_id = await resolve_filtered_job_id(db, query.job_id, owner_id)
    causes = await queries.list_dead_letter_causes(db, owner_id, kind=query.kind, job_id=job_id)
    return [DeadLetterCauseOut.model_validate(row) for row in causes]


@router.post("/pending/run-now", **build_route_options(Permission.USER, 404))
async def run_items_now(body: RunNowIn, me: CurrentUser, db: DatabaseDep) -> RunNowOut:
    """Retry waiting items now instead of after their delay. They still wait for other reasons, such as a paused job."""
    items = parse_item_ids(body.item_ids, "item_ids")
    return RunNowOut.model_validate(
        await job_control.make_items_due_now(db, items, get_owner_scope(me), by=me.user_id), from_attributes=True
    )


@router.get("/flow", **build_route_options(Permission.USER, 404))
async def get_flow(query: Annotated[FlowQuery, Query()], me: CurrentUser, db: DatabaseDep) -> FlowOut:
    """Count the open items of your jobs, and the items that recently settled or failed."""
    owner_id = await resolve_owner_filter(db, me, query.user_id)
    return FlowOut.model_validate(await queries.get_throughput(db, owner_id))
