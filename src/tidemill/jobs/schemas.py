"""Request and response models of jobs, batches and items."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
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
ItemSort = TypeAliasType("ItemSort", Literal["seq", "updated_at"])
SourceFormat = TypeAliasType("SourceFormat", Literal["csv", "tsv", "ndjson", "json", "xlsx", "parquet", "images"])
NonNegativeInt = Annotated[int, Field(ge=0)]


class PolicyIn(RequestModel):
    """When failed items fail the job. `tolerate` requires `max_failed` or `max_percent`."""

    mode: PolicyMode = "continue"
    max_failed: int | None = Field(None, ge=0)
    max_percent: float | None = Field(
        None,
        ge=0,
        le=100,
        description="Maximum percentage of failed items among settled items; checked after 100 items have settled",
    )


class FileReferenceIn(RequestModel):
    """Location of a file: a URL, a stored file, or a file of a source in TIDEMILL_SOURCES. Set exactly one."""

    url: str | None = Field(None, min_length=1, max_length=4_000, description="A worker downloads this file")
    file_id: str | None = Field(None, pattern=r"^[0-9a-f]{32}$", description="The file of one of your jobs or exports")
    name: str | None = Field(None, max_length=100, description="Name of a folder or bucket; requires `path`")
    path: str | None = Field(
        None, max_length=1_000, description="Path of the file in the folder, or key of the object below the prefix"
    )


class JobSourceIn(FileReferenceIn):
    """The file of a job."""

    format: SourceFormat | None = Field(None, description="Default: detected from the name and the content of the file")


class JobIn(RequestModel):
    """A job to create, with either `inputs` or `source`."""

    kind: str = Field(min_length=1, max_length=200)
    inputs: list[Any] | None = Field(None, description="Inputs of the job, any JSON values; each becomes an item")
    source: JobSourceIn | None = None
    params: dict[str, Any] = Field({}, description="JSON object that is stored with the job")
    policy: PolicyIn = PolicyIn()
    priority: int = Field(0, ge=-100, le=100, description="Each step doubles the job's share of its owner's capacity")


class ItemCountsOut(BaseModel):
    """Number of items by status. `total` is always the sum of the others."""

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
    """Items settled per second, in the last 30 s and since the job started. Cancelled items are not counted."""

    now_per_s: float
    average_per_s: float
    eta_s: float | None = None
    why: NoEstimate | None = Field(None, description="Why there is no estimate")


class JobOut(BaseModel):
    """A job and its progress."""

    id: UUID
    key: str = Field(description="Short name of the job. Every route that accepts the id also accepts this key")
    kind: str
    user_id: int
    status: JobStatus
    counts: ItemCountsOut
    ingest_complete: bool = Field(description="True if all inputs are stored, so that `total` is final")
    priority: int
    file_name: str | None = Field(None, description="Original name of the input file")
    target: str | None = Field(None, description="Resource or dataset that the job reads or writes")
    failure_reason: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = Field(None, description="When a worker started to read the file or the first items")
    closed_at: datetime | None = None
    duration_s: float | None = Field(
        None, description="Seconds from start to close, minus `idle_s`; null while the job is open"
    )
    idle_s: float = Field(0.0, description="Seconds for which the job was closed before it was reopened")
    links: dict[str, str] = Field(description="Paths of related resources and actions")


class FetchOut(BaseModel):
    """The download of a source that has a URL. The file is read after the download."""

    is_complete: bool
    is_active: bool = Field(description="True while a worker downloads the file; false while the download waits")
    bytes: int = Field(description="Bytes downloaded so far")
    total_bytes: int | None = Field(None, description="Size of the file; null if the server does not report it")


class JobDetail(JobOut):
    """A job with all details."""

    params: dict[str, Any]
    policy: dict[str, Any]
    errors: dict[str, int] = Field(description="Failed items by error code")
    columns: list[str] = Field(description="Columns of the results, or of the inputs if there are no results, in order")
    columns_of: ColumnsOf = Field(description="Whether `columns` are from results or from inputs")
    rates: RatesOut
    adaptive: list[dict[str, Any]] = Field(description="How workers adapt to the load for this kind")
    retried: int = Field(description="Number of attempts that were followed by a retry")
    request_id: str | None = Field(None, description="Id of the request that submitted the job")
    traceparent: str | None = None
    ip_address: str | None = None
    file_id: str | None = None
    fetch: FetchOut | None = Field(None, description="Download of the source; null if the source has no URL")


class JobPage(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobOut]
    next_page: NextPageToken = None


class JobFilterQuery(QueryModel):
    """Filters for a list of jobs."""

    statuses: JobStatusFilter = Field([], validation_alias=STATUSES_ALIASES)
    user_id: UserFilter = "me"
    created_from: Timestamp | None = None
    created_to: Timestamp | None = None
    q: Annotated[ShortText | None, EMPTY_IS_NONE] = Field(None, description="Prefix of a key or id")
    search: Annotated[ShortText | None, EMPTY_IS_NONE] = Field(
        None, description="Part of a key, file name, resource or dataset, case-insensitive; or a complete id"
    )
    page_size: PageSize = 50
    after: AfterCursor = None


class JobListQuery(JobFilterQuery):
    kind: KindFilter = None
    job_type: KindFilter = Field(None, description="Alias of `kind`")


class JobCountsOut(BaseModel):
    """Number of jobs by status. If there are more than 10,000 jobs, only the newest are counted."""

    counts: dict[str, NonNegativeInt] = Field(description="Number of jobs for every status")
    is_complete: bool


class JobCountsQuery(QueryModel):
    user_id: UserFilter = "me"


class PageQuery(QueryModel):
    page_size: PageSize = 50
    after: AfterCursor = None


class ActivityOut(BaseModel):
    """A user's action on a job."""

    id: int
    at: datetime
    user_id: int
    verb: str
    details: dict[str, Any]


class ActivityPage(BaseModel):
    """A page of user actions, newest first."""

    activity: list[ActivityOut]
    next_page: NextPageToken = None


class ProgressPointOut(BaseModel):
    """Number of items settled up to a point in time. Cancelled items are not counted."""

    at: datetime
    settled: int
    failed: int


class KickoffOut(BaseModel):
    """Result of one time slice. Work that other workers did during the slice is not included."""

    settled: int
    failed: int = Field(description="Failed items, included in `settled`")
    retried: int = Field(description="Items that will be retried")
    seconds: float
    is_drained: bool = Field(description="True if no item is open, so that no further slice is needed")
    next_due_at: datetime | None = Field(None, description="When the next waiting item is due")
    due_in: float | None = Field(None, description="Seconds until `next_due_at`")
    child_died: bool = Field(
        False, description="True if an item crashed the process. Results of finished items are kept"
    )


BatchShape = TypeAliasType("BatchShape", Literal["range", "list"])
BatchState = TypeAliasType("BatchState", Literal["ready", "leased", "done", "cancelled"])


class BatchTalliesOut(BaseModel):
    """Settled items of a batch by status, and attempts that were followed by a retry."""

    done: int
    not_found: int
    skipped: int
    failed: int
    cancelled: int
    retried: int


class BatchOut(BaseModel):
    """A batch: a range of items on their first attempt, or a list of items on a later attempt."""

    id: int
    shape: BatchShape
    state: BatchState
    lo: int
    hi: int
    size: int
    open: int = Field(description="Number of items that are not settled")
    tallies: BatchTalliesOut
    codes: dict[str, int] = Field(description="Failures by error code")
    since: datetime
    closed_at: datetime | None
    duration_ms: int | None
    not_before: datetime
    worker: str | None
    isolated: bool = Field(
        description="True if the items run one by one, because one of them may have crashed a process"
    )
    crashes: int
    losses: int


class BatchPage(BaseModel):
    """A page of batches, newest first."""

    batches: list[BatchOut]
    next_page: NextPageToken = None


class ItemError(BaseModel):
    """Why an item failed, was not found, was skipped or is retried."""

    model_config = ConfigDict(extra="allow")

    row: int | None = Field(None, description="Row number of the item, from 1")
    line: int | None = Field(None, description="Line number in the file")
    field: str | None = None
    value: Any = None
    code: str | None = None
    reason: str | None = None
    attempt: int | None = None
    retryable: bool | None = Field(None, description="Whether a retry may succeed")


def _to_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


# A handler's own details of an error may have a field of the same name with any value.
LenientText = Annotated[str | None, BeforeValidator(_to_text)]


class ItemErrorDetail(ItemError):
    """The error of one item, and the exception that its handler raised."""

    type: LenientText = Field(None, description="Class of the exception that the handler raised")
    traceback: LenientText = Field(None, description="Traceback of the exception, at most 8 KiB")


class AttemptOut(BaseModel):
    """One attempt at an item."""

    attempt: int = Field(
        description="Number of the attempt, from 1; a reprocess restarts at 1. 0 means that the process crashed"
    )
    at: datetime = Field(description="When the attempt ended")
    worker: str | None = Field(None, description="Id of the worker; null if the first attempt settled the item")
    duration_ms: int | None = None
    status: ItemStatus = Field(description="Status of the item after the attempt")
    code: str | None = Field(None, description="Error code")


class ItemOut(BaseModel):
    """An item in a list, with a summary of its input."""

    id: str
    seq: int
    status: ItemStatus
    attempts: int
    updated_at: datetime | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    due_at: datetime | None = Field(None, description="When the item will be retried")
    input_summary: Any = Field(
        None, description="Short form of the input: a title, brand or key, or the first few fields"
    )
    input: Any = Field(
        None, description="The input. Present only if the request set `inputs` and `columns` are from inputs"
    )
    result: Any = None
    result_cut: bool = Field(False, description="True if the result is too long for a list. Get the item to see it")
    error: ItemError | None = None
    duration_ms: int | None = None
    rev: int | None = Field(None, description="Number of the newest fix, if the item was fixed")


class ItemPage(BaseModel):
    """A page of items."""

    columns: list[str] = Field(description="Columns of the results, or of the inputs if there are no results")
    columns_of: ColumnsOf = Field("result", description="Whether `columns` are from results or from inputs")
    items: list[ItemOut]
    next_page: NextPageToken = None


class ItemQuery(QueryModel):
    statuses: ItemStatusFilter = Field([], validation_alias=STATUSES_ALIASES)
    error_codes: ErrorCodeFilter | None = None
    key: KeyFilter = None
    seq: int | None = Field(None, ge=0, le=2**62, description="Start at this item and sort by seq")
    sort: ItemSort | None = Field(
        None,
        description="Ascending order. `updated_at` requires `statuses` that are all open, or none of which is open or "
        "`done`. Default: the fastest order for the filters",
    )
    inputs: bool = Field(
        False, description="Include the input of each item. Has no effect if `columns` are from results"
    )
    page_size: PageSize = 100
    after: AfterCursor = None


class FixOut(BaseModel):
    """A fix for an input."""

    rev: int
    by: int = Field(description="Id of the user who made the fix")
    at: datetime
    operation_id: UUID | None = Field(None, description="The repair that made the fix")
    rule: dict[str, Any] | None = Field(None, description="The rule of this repair")


class ItemDetail(BaseModel):
    """An item with all details."""

    id: str
    job_id: UUID
    seq: int
    status: ItemStatus
    attempts: int
    updated_at: datetime | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    due_at: datetime | None = None
    input: Any = Field(description="The input, with the newest fix applied")
    original: Any = Field(description="The input as submitted")
    fixes: list[FixOut]
    defect: dict[str, Any] | None = Field(None, description="Why the row could not be parsed")
    result: Any = None
    normalized: Any = None
    error: ItemErrorDetail | None = None
    attempt_history: list[AttemptOut] = Field(description="The last 20 counted attempts, oldest first")
    duration_ms: int | None = None
    batch: dict[str, Any] | None = Field(None, description="The open batch that contains the item")


class FixIn(RequestModel):
    """A fix for an item's input."""

    input: Any = Field(description="The complete new input")


class FixCreatedOut(BaseModel):
    """The number of a new fix."""

    rev: int
