"""Across jobs: what waits, and what failed."""

from datetime import datetime
from uuid import UUID

from pydantic import AliasChoices, BaseModel, Field

from tidemill.api.schemas.base import (
    EITHER,
    FROM,
    After,
    Codes,
    Kind,
    Moment,
    NextPage,
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
    pending_count: int = Field(description="How many wait in all; up to half a minute old")
    next_page: NextPage = None


class PendingQuery(Query):
    statuses: Statuses = Field([ItemStatus.PENDING, ItemStatus.PROCESSING], validation_alias=EITHER)
    user_id: UserId = "me"
    job_type: Kind = None
    job_id: UUID | None = None
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
    job_id: UUID | None = None
    from_: Moment | None = Field(None, validation_alias=FROM, description="Failed then or later")
    to: Moment | None = Field(None, description="Failed before then")
    page_size: PageSize = 100
    after: After = None


class CauseQuery(Query):
    user_id: UserId = "me"


class Cause(BaseModel):
    """Dead letters with one error code."""

    code: str
    count: int
    jobs: int = Field(description="In how many jobs")
    newest: datetime | None = Field(description="When such a job last changed")
