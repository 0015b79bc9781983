"""Across jobs: what waits, and what failed."""

from datetime import datetime
from uuid import UUID

from pydantic import AliasChoices, BaseModel, Field

from tidemill.api.schemas.base import (
    EITHER,
    FROM,
    ITEMS_MAX,
    After,
    Asked,
    Codes,
    ItemId,
    Kind,
    Moment,
    NextPage,
    OfJob,
    PageSize,
    Query,
    Statuses,
    UserId,
)
from tidemill.api.schemas.items import ItemError, ItemOut
from tidemill.domain.status import ItemStatus, JobStatus

USER = AliasChoices("owner_id", "user_id")


class PendingOut(ItemOut):
    """An item that waits or is in hand."""

    job_id: UUID
    job_key: str
    job_status: JobStatus
    kind: str
    user_id: int = Field(validation_alias=USER)
    why: str = Field(description="Why it waits")


class PendingPage(BaseModel):
    """Those that have been as they are for longest first."""

    items: list[PendingOut]
    pending_count: int | None = Field(
        None,
        description="How many there are of these statuses and kind, half a minute ago at most; not with other filters",
    )
    next_page: NextPage = None


class PendingQuery(Query):
    statuses: Statuses = Field([ItemStatus.PENDING, ItemStatus.PROCESSING], validation_alias=EITHER)
    user_id: UserId = "me"
    job_type: Kind = None
    job_id: OfJob = None
    from_: Moment | None = Field(None, validation_alias=FROM, description="Unchanged since then or later")
    to: Moment | None = Field(None, description="Unchanged since before then")
    page_size: PageSize = 100
    after: After = None


class DeadLetterOut(BaseModel):
    """An item that failed for good."""

    id: str
    job_id: UUID
    job_key: str
    kind: str
    user_id: int = Field(validation_alias=USER)
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
    next_page: NextPage = None


class DeadLetterQuery(Query):
    user_id: UserId = "me"
    kind: Kind = None
    error_codes: Codes | None = None
    job_id: OfJob = None
    from_: Moment | None = Field(None, validation_alias=FROM, description="Failed then or later")
    to: Moment | None = Field(None, description="Failed before then")
    page_size: PageSize = 100
    after: After = None


class CauseQuery(Query):
    user_id: UserId = "me"
    kind: Kind = None
    job_id: OfJob = None


class Cause(BaseModel):
    """Dead letters with one error code."""

    code: str
    count: int
    jobs: int = Field(description="In how many jobs")
    newest: datetime | None = Field(description="When such a job last changed")


class RunNowIn(Asked):
    """Items that need wait no longer for their retry."""

    item_ids: list[ItemId] = Field(max_length=ITEMS_MAX)


class RunNowOut(BaseModel):
    """What became of them. All of them together are those that were named."""

    due: int = Field(description="Waited for a retry, and are due now")
    in_hand: int = Field(description="A worker has them already")
    others: int = Field(description="Wait for their turn as it is, or are settled")


class OpenCounts(BaseModel):
    """Items that are not settled."""

    pending: int
    processing: int
    retry_wait: int


class FlowPoint(BaseModel):
    """So many were settled in the stretch that ends then."""

    at: datetime
    settled: int
    failed: int = Field(description="Of the settled")


class Flow(BaseModel):
    """What is open, and how it has flowed lately, over all jobs. Of more than a thousand, the newest."""

    open: OpenCounts
    step_s: int = Field(description="Seconds of a stretch")
    points: list[FlowPoint] = Field(description="Of the last quarter of an hour")


class FlowQuery(Query):
    user_id: UserId = "me"
