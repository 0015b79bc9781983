"""Jobs, and what is asked of them."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from tidemill.api.schemas.base import (
    EITHER,
    EMPTY_IS_NONE,
    After,
    Asked,
    ColumnsOf,
    JobStatuses,
    Kind,
    Moment,
    NextPage,
    PageSize,
    Query,
    Statuses,
    Text,
    UserId,
)
from tidemill.domain.progress import NoEstimate
from tidemill.domain.status import JobStatus

PolicyMode = TypeAliasType("PolicyMode", Literal["continue", "fail_fast", "tolerate"])
SourceFormat = TypeAliasType("SourceFormat", Literal["csv", "tsv", "ndjson", "json", "xlsx", "parquet", "images"])
ExportFormat = TypeAliasType("ExportFormat", Literal["csv", "xlsx", "ndjson"])
Count = Annotated[int, Field(ge=0)]


class PolicyIn(Asked):
    """What failures of items mean for the whole job. `tolerate` needs one of the two bounds."""

    mode: PolicyMode = "continue"
    max_failed: int | None = Field(None, ge=0)
    max_percent: float | None = Field(None, ge=0, le=100, description="Of the settled items, from the 100th on")


class SourceIn(Asked):
    """A file in one of the folders of TIDEMILL_SOURCES."""

    name: str = Field(max_length=100)
    path: str = Field(max_length=1_000)
    format: SourceFormat | None = Field(None, description="By the name's ending, if absent")


class JobIn(Asked):
    """Work to be done: inputs here, or a source; one of the two."""

    kind: str = Field(min_length=1, max_length=200)
    inputs: list[Any] | None = Field(None, description="An item for each, of any shape")
    source: SourceIn | None = None
    params: dict[str, Any] = Field({}, description="Kept with the job")
    policy: PolicyIn = PolicyIn()
    priority: int = Field(0, ge=-100, le=100, description="Each step doubles its share among its owner's jobs")


class Counts(BaseModel):
    """Where the items are. total is always the sum of the others."""

    total: Count
    pending: Count
    processing: Count
    retry_wait: Count
    done: Count
    not_found: Count
    skipped: Count
    failed: Count
    cancelled: Count


class Rates(BaseModel):
    """Items settled per second, not cancelled: in the last half minute, and since the job was submitted."""

    now_per_s: float
    average_per_s: float
    eta_s: float | None = None
    why: NoEstimate | None = Field(None, description="Why there is no estimate")


class JobOut(BaseModel):
    """A job and how far it is."""

    id: UUID
    key: str = Field(description="Its short name; wherever an id is asked for, it does as well")
    kind: str
    user_id: int
    status: JobStatus
    counts: Counts
    ingest_complete: bool = Field(description="Its source is read to the end: total will not grow")
    priority: int
    failure_reason: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    closed_at: datetime | None = None
    links: dict[str, str] = Field(description="What can be asked about it, or done to it")


class JobDetail(JobOut):
    """A job, whole."""

    params: dict[str, Any]
    policy: dict[str, Any]
    errors: dict[str, int] = Field(description="Failed items by error code")
    columns: list[str] = Field(description="Of its results, in order; of its inputs where there are none")
    columns_of: ColumnsOf = Field(description="Which of the two these are")
    rates: Rates
    adaptive: list[dict[str, Any]] = Field(description="What the workers have settled on for this kind")
    retried: int = Field(description="Attempts that ended in another one")
    request_id: str | None = Field(None, description="Of the request that submitted it")
    traceparent: str | None = None
    ip_address: str | None = None
    file_id: str | None = None


class JobPage(BaseModel):
    """The newest first."""

    jobs: list[JobOut]
    next_page: NextPage = None


class ListQuery(Query):
    """Which jobs of a list."""

    statuses: JobStatuses = Field([], validation_alias=EITHER)
    user_id: UserId = "me"
    created_from: Moment | None = None
    created_to: Moment | None = None
    q: Annotated[Text | None, EMPTY_IS_NONE] = Field(None, description="The beginning of a key or an id")
    page_size: PageSize = 50
    after: After = None


class JobQuery(ListQuery):
    kind: Kind = None
    job_type: Kind = Field(None, description="The same as kind")


class JobCounts(BaseModel):
    """How many jobs are what. Of very many, the newest ten thousand are counted, and `is_complete` is false."""

    counts: dict[str, Count] = Field(description="By status; every status is there")
    is_complete: bool


class CountsQuery(Query):
    user_id: UserId = "me"


class PageQuery(Query):
    page_size: PageSize = 50
    after: After = None


class ActivityOut(BaseModel):
    """What somebody did to a job."""

    id: int
    at: datetime
    user_id: int
    verb: str
    details: dict[str, Any]


class ActivityPage(BaseModel):
    """The newest first."""

    activity: list[ActivityOut]
    next_page: NextPage = None


class Point(BaseModel):
    """So many were settled by then, those aside that were cancelled."""

    at: datetime
    settled: int
    failed: int


class SliceOut(BaseModel):
    """What one slice did; what workers did meanwhile is not in it."""

    settled: int
    failed: int = Field(description="Of the settled")
    retried: int = Field(description="Will be tried again")
    seconds: float
    is_drained: bool = Field(description="Nothing is open any more: no need for another slice")
    next_due_at: datetime | None = Field(None, description="When the first of what waits is due")
    due_in: float | None = Field(None, description="The same, in seconds from now")
    child_died: bool = Field(False, description="A process died of an item; what was finished is kept")


class ExportQuery(Query):
    format: ExportFormat = "csv"
    statuses: Statuses = Field([], validation_alias=EITHER)
    spreadsheet_safe: bool = Field(False, description="Text that a spreadsheet might run is made harmless")
