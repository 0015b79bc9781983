"""Request and response models of jobs, batches and items."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType

from tidemill.core.progress import NoEstimate
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.rest.schema_types import (
    EMPTY_IS_NONE,
    STATUSES_ALIASES,
    AfterCursor,
    ColumnsOf,
    ErrorCodeFilter,
    ItemStatusFilter,
    JobStatusFilter,
    KeyFilter,
    KindFilter,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
    ShortText,
    Timestamp,
    UserFilter,
)

PolicyMode = TypeAliasType("PolicyMode", Literal["continue", "fail_fast", "tolerate"])
SourceFormat = TypeAliasType("SourceFormat", Literal["csv", "tsv", "ndjson", "json", "xlsx", "parquet", "images"])
NonNegativeInt = Annotated[int, Field(ge=0)]


class PolicyIn(RequestModel):
    """What failures of items mean for the whole job. `tolerate` needs one of the two bounds."""

    mode: PolicyMode = "continue"
    max_failed: int | None = Field(None, ge=0)
    max_percent: float | None = Field(None, ge=0, le=100, description="Of the settled items, from the 100th on")


class JobSourceIn(RequestModel):
    """A file in one of the folders of TIDEMILL_SOURCES."""

    name: str = Field(max_length=100)
    path: str = Field(max_length=1_000)
    format: SourceFormat | None = Field(None, description="By the name's ending, if absent")


class JobIn(RequestModel):
    """Work to be done: inputs here, or a source; one of the two."""

    kind: str = Field(min_length=1, max_length=200)
    inputs: list[Any] | None = Field(None, description="An item for each, of any shape")
    source: JobSourceIn | None = None
    params: dict[str, Any] = Field({}, description="Kept with the job")
    policy: PolicyIn = PolicyIn()
    priority: int = Field(0, ge=-100, le=100, description="Each step doubles its share among its owner's jobs")


class ItemCountsOut(BaseModel):
    """Where the items are. total is always the sum of the others."""

    total: NonNegativeInt
    pending: NonNegativeInt
    processing: NonNegativeInt
    retry_wait: NonNegativeInt
    done: NonNegativeInt
    not_found: NonNegativeInt
    skipped: NonNegativeInt
    failed: NonNegativeInt
    cancelled: NonNegativeInt


class RatesOut(BaseModel):
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
    counts: ItemCountsOut
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
    rates: RatesOut
    adaptive: list[dict[str, Any]] = Field(description="What the workers have settled on for this kind")
    retried: int = Field(description="Attempts that ended in another one")
    request_id: str | None = Field(None, description="Of the request that submitted it")
    traceparent: str | None = None
    ip_address: str | None = None
    file_id: str | None = None


class JobPage(BaseModel):
    """The newest first."""

    jobs: list[JobOut]
    next_page: NextPageToken = None


class JobFilterQuery(QueryModel):
    """Which jobs of a list."""

    statuses: JobStatusFilter = Field([], validation_alias=STATUSES_ALIASES)
    user_id: UserFilter = "me"
    created_from: Timestamp | None = None
    created_to: Timestamp | None = None
    q: Annotated[ShortText | None, EMPTY_IS_NONE] = Field(None, description="The beginning of a key or an id")
    page_size: PageSize = 50
    after: AfterCursor = None


class JobListQuery(JobFilterQuery):
    kind: KindFilter = None
    job_type: KindFilter = Field(None, description="The same as kind")


class JobCountsOut(BaseModel):
    """How many jobs are what. Of very many, the newest ten thousand are counted, and `is_complete` is false."""

    counts: dict[str, NonNegativeInt] = Field(description="By status; every status is there")
    is_complete: bool


class JobCountsQuery(QueryModel):
    user_id: UserFilter = "me"


class PageQuery(QueryModel):
    page_size: PageSize = 50
    after: AfterCursor = None


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
    next_page: NextPageToken = None


class ProgressPointOut(BaseModel):
    """So many were settled by then, those aside that were cancelled."""

    at: datetime
    settled: int
    failed: int


class KickoffOut(BaseModel):
    """What one slice did; what workers did meanwhile is not in it."""

    settled: int
    failed: int = Field(description="Of the settled")
    retried: int = Field(description="Will be tried again")
    seconds: float
    is_drained: bool = Field(description="Nothing is open any more: no need for another slice")
    next_due_at: datetime | None = Field(None, description="When the first of what waits is due")
    due_in: float | None = Field(None, description="The same, in seconds from now")
    child_died: bool = Field(False, description="A process died of an item; what was finished is kept")


BatchShape = TypeAliasType("BatchShape", Literal["range", "list"])
BatchState = TypeAliasType("BatchState", Literal["ready", "leased", "done", "cancelled"])


class BatchTalliesOut(BaseModel):
    """Items of a batch that are settled, and attempts that will be repeated."""

    done: int
    not_found: int
    skipped: int
    failed: int
    cancelled: int
    retried: int


class BatchOut(BaseModel):
    """A range of a job's items on their first pass, or a list of them on a later one."""

    id: int
    shape: BatchShape
    state: BatchState
    lo: int
    hi: int
    size: int
    open: int = Field(description="Items that are not settled")
    tallies: BatchTalliesOut
    codes: dict[str, int] = Field(description="Failures by error code")
    since: datetime
    closed_at: datetime | None
    duration_ms: int | None
    not_before: datetime
    worker: str | None
    isolated: bool = Field(description="Its items run alone: one of them may have killed a process")
    crashes: int
    losses: int


class BatchPage(BaseModel):
    """The newest first."""

    batches: list[BatchOut]
    next_page: NextPageToken = None


class ItemError(BaseModel):
    """Why an item failed, was not found, was skipped or is tried again."""

    model_config = ConfigDict(extra="allow")

    row: int | None = Field(None, description="The item's number from 1")
    line: int | None = Field(None, description="In its file")
    field: str | None = None
    value: Any = None
    code: str | None = None
    reason: str | None = None
    attempt: int | None = None
    retryable: bool | None = Field(None, description="Whether sending it round again makes sense")


class ItemOut(BaseModel):
    """An item in a list: its input only in a few words."""

    id: str
    seq: int
    status: ItemStatus
    attempts: int
    updated_at: datetime | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    due_at: datetime | None = Field(None, description="When it is tried again")
    input_summary: Any = Field(None, description="A title, a brand, a key; or the first few fields")
    input: Any = Field(None, description="If `inputs` were asked for, and the columns are theirs")
    result: Any = None
    result_cut: bool = Field(False, description="The result is too long for a list: ask for the item")
    error: ItemError | None = None
    duration_ms: int | None = None
    rev: int | None = Field(None, description="Its newest correction, if somebody corrected it")


class ItemPage(BaseModel):
    """A page of a grid."""

    columns: list[str] = Field(description="What a grid shows of the results, or of the inputs where there are none")
    columns_of: ColumnsOf = Field("result", description="Which of the two these are")
    items: list[ItemOut]
    next_page: NextPageToken = None


class ItemQuery(QueryModel):
    statuses: ItemStatusFilter = Field([], validation_alias=STATUSES_ALIASES)
    error_codes: ErrorCodeFilter | None = None
    key: KeyFilter = None
    seq: int | None = Field(None, ge=0, le=2**62, description="Begin here, in order of seq")
    inputs: bool = Field(False, description="Show inputs, where the columns are those of inputs")
    page_size: PageSize = 100
    after: AfterCursor = None


class FixOut(BaseModel):
    """That somebody corrected an input."""

    rev: int
    by: int = Field(description="Whose correction it is")
    at: datetime


class ItemDetail(BaseModel):
    """An item, whole."""

    id: str
    job_id: UUID
    seq: int
    status: ItemStatus
    attempts: int
    updated_at: datetime | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    due_at: datetime | None = None
    input: Any = Field(description="With the newest correction")
    original: Any = Field(description="As it was submitted")
    fixes: list[FixOut]
    defect: dict[str, Any] | None = Field(None, description="Why its record could not be read")
    result: Any = None
    normalized: Any = None
    error: ItemError | None = None
    duration_ms: int | None = None
    batch: dict[str, Any] | None = Field(None, description="The open batch it is in")


class FixIn(RequestModel):
    """A correction."""

    input: Any = Field(description="The whole input, corrected")


class FixCreatedOut(BaseModel):
    """The number of the correction."""

    rev: int
