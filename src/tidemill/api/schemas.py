"""The shapes of requests and answers. Requests know no other fields, and both spellings of a name."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AliasChoices, AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tidemill.domain.identity import Role
from tidemill.domain.status import ItemStatus, JobStatus, parse_item_status

ITEMS_MAX = 10_000
PAGE_MAX = 500


class Asked(BaseModel):
    """Part of a request: page_size and pageSize are the same; what is not known is an error."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(name, to_camel(name))),
        populate_by_name=True,
    )


class Query(BaseModel):
    """Parameters of a list, with ours names only: the entrance has translated the others."""

    model_config = ConfigDict(extra="forbid")


def _flat(value: object) -> list[object]:
    """A list, or words between commas, or both."""
    words = value if isinstance(value, list) else [value]
    return [part for word in words for part in (word.split(",") if isinstance(word, str) else [word]) if part != ""]


def _words(value: object) -> object:
    """Statuses in our words or the documents'."""
    return [parse_item_status(word) if isinstance(word, str) else word for word in _flat(value)]


def _job_words(value: object) -> object:
    return [word.strip().lower() if isinstance(word, str) else word for word in _flat(value)]


JobStatuses = Annotated[list[JobStatus], BeforeValidator(_job_words)]
Statuses = Annotated[list[ItemStatus], BeforeValidator(_words)]
Codes = Annotated[list[Annotated[str, Field(max_length=200)]], BeforeValidator(_flat), Field(max_length=100)]
PageSize = Annotated[int, Field(ge=1, le=PAGE_MAX, description="Rows of a page")]
After = Annotated[str | None, Field(max_length=400, description="`next_page` of the page before")]
UserId = Annotated[str, Field(max_length=100, description="`me`; for admins also `all`, or a user's name or id")]
ItemId = Annotated[
    str, Field(pattern=r"^[0-9a-fA-F-]{32,36}:\d{1,18}$", examples=["019a8b7c-1d2e-7f00-8000-123456789abc:7"])
]


class Health(BaseModel):
    status: Literal["ok", "degraded", "unfit"]
    database: str
    migrations: str
    workers: int
    open_jobs: int
    queue_age_s: float = Field(description="How long the oldest batch that is due has waited")


class Limits(BaseModel):
    max_file_size_mb: int
    max_json_bytes: int
    max_row_bytes: int
    rate_limit_per_s: int
    rate_limit_burst: int
    max_concurrent_jobs: int
    sources: list[str]
    pending_dashboard: bool


class WorkerOut(BaseModel):
    id: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime
    silent_s: float
    info: dict[str, Any]


class Me(BaseModel):
    user_id: int
    name: str
    role: Role
    by: str = Field(description="Which key or session", examples=["key tm_1a2b3c4d"])
    csrf_token: str | None = Field(None, description="What a browser's writes carry in X-CSRF-Token")


class SignIn(Asked):
    """An API key, or the token of a one-time link."""

    key: str | None = Field(None, max_length=200, examples=["tm_1a2b3c4d_…"])
    link: str | None = Field(None, max_length=200)


class UserIn(Asked):
    name: str = Field(min_length=1, max_length=100, examples=["ada"])
    role: Role = Role.USER


class RoleIn(Asked):
    role: Role


class UserOut(BaseModel):
    id: int
    name: str
    role: Role
    created_at: datetime
    keys: int = Field(0, description="Keys that are good now")


class KeyIn(Asked):
    name: str = Field("", max_length=100, examples=["nightly import"])
    expires_in_s: int | None = Field(None, gt=0, le=10 * 366 * 86_400, description="Never, without it")
    user: str | None = Field(None, max_length=100, description="For whom; admins only")


class KeyOut(BaseModel):
    prefix: str = Field(examples=["tm_1a2b3c4d"])
    name: str
    user_id: int | None = None
    user_name: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class NewKey(KeyOut):
    key: str = Field(description="Shown this once", examples=["tm_1a2b3c4d_…"])


class PolicyIn(Asked):
    """What many failures mean for the whole job."""

    mode: Literal["continue", "fail_fast", "tolerate"] = "continue"
    max_failed: int | None = Field(None, ge=0)
    max_percent: float | None = Field(None, ge=0, le=100)


class SourceIn(Asked):
    """A file in one of the folders of TIDEMILL_SOURCES."""

    name: str = Field(max_length=100, examples=["inbox"])
    path: str = Field(max_length=1_000, examples=["2026/11/prices.csv"])
    format: Literal["csv", "tsv", "ndjson", "images"] | None = Field(
        None, description="By the name's ending, if absent"
    )


class JobIn(Asked):
    """Work to be done: inputs here, or a source."""

    kind: str = Field(min_length=1, max_length=200, examples=["price.lookup"])
    inputs: list[Any] | None = Field(None, examples=[[{"sku": "A-1"}, {"sku": "A-2"}]])
    source: SourceIn | None = None
    params: dict[str, Any] = {}
    policy: PolicyIn = PolicyIn()
    priority: int = Field(0, ge=-100, le=100)


class Counts(BaseModel):
    """Where the items are. total is always the sum of the others."""

    total: int
    pending: int
    processing: int
    retry_wait: int
    done: int
    not_found: int
    skipped: int
    failed: int
    cancelled: int


class Rates(BaseModel):
    """Items settled per second: in the last half minute, and since the job was submitted."""

    now_per_s: float
    average_per_s: float
    eta_s: float | None = None
    why: str | None = Field(None, description="Why there is no estimate")


class JobOut(BaseModel):
    id: UUID
    key: str = Field(examples=["J20261115_000777"])
    kind: str
    user_id: int
    status: JobStatus
    counts: Counts
    ingest_complete: bool
    priority: int
    failure_reason: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    closed_at: datetime | None = None
    links: dict[str, str]


class JobDetail(JobOut):
    params: dict[str, Any]
    policy: dict[str, Any]
    errors: dict[str, int] = Field(description="Failed items by error code")
    columns: list[str] = Field(description="Of its results, in order")
    rates: Rates
    adaptive: list[dict[str, Any]] = Field(description="What the workers have settled on for this kind")
    retried: int = Field(description="Attempts that ended in another one")
    request_id: str | None = None
    traceparent: str | None = None
    ip_address: str | None = None
    file_id: str | None = None


class JobPage(BaseModel):
    jobs: list[JobOut]
    next_page: str | None = None


class JobQuery(Query):
    statuses: JobStatuses = []
    kind: str | None = Field(None, max_length=200)
    job_type: str | None = Field(None, max_length=200, description="The same as kind")
    user_id: UserId = "me"
    created_from: datetime | None = None
    created_to: datetime | None = None
    q: str | None = Field(None, max_length=64, description="The beginning of a key or an id")
    page_size: PageSize = 50
    after: After = None


class ItemOut(BaseModel):
    """An item in a list: its input only in a few words."""

    id: str = Field(examples=["019a8b7c-1d2e-7f00-8000-123456789abc:7"])
    seq: int
    status: ItemStatus
    attempts: int
    updated_at: datetime | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    due_at: datetime | None = Field(None, description="When it is tried again")
    input_summary: Any = Field(None, description="A title, a brand, a key; or the first few fields")
    result: Any = None
    result_cut: bool = Field(False, description="The result is too long for a list: ask for the item")
    error: dict[str, Any] | None = None
    duration_ms: int | None = None


class ItemPage(BaseModel):
    columns: list[str] = Field(description="What a grid shows of the results, or of the inputs where there are none")
    items: list[ItemOut]
    next_page: str | None = None


class ItemQuery(Query):
    statuses: Statuses = Field([], validation_alias=AliasChoices("statuses", "status"))
    error_codes: Codes | None = None
    seq: int | None = Field(None, ge=0, le=2**62, description="Begin here, in order of seq")
    page_size: PageSize = 100
    after: After = None


class FixOut(BaseModel):
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
    defect: dict[str, Any] | None = None
    result: Any = None
    normalized: Any = None
    error: dict[str, Any] | None = None
    duration_ms: int | None = None
    batch: dict[str, Any] | None = None


class Tallies(BaseModel):
    done: int
    not_found: int
    skipped: int
    failed: int
    cancelled: int
    retried: int


class BatchOut(BaseModel):
    """A range of a job's items on their first pass, or a list of them on a later one."""

    id: int
    shape: Literal["range", "list"]
    state: Literal["ready", "leased", "done", "cancelled"]
    lo: int
    hi: int
    size: int
    open: int
    tallies: Tallies
    codes: dict[str, int]
    since: datetime
    closed_at: datetime | None
    duration_ms: int | None
    not_before: datetime
    worker: str | None
    isolated: bool = Field(description="Its items run alone: one of them may have killed a process")
    crashes: int
    losses: int


class BatchPage(BaseModel):
    batches: list[BatchOut]
    next_page: str | None = None


class ActivityOut(BaseModel):
    id: int
    at: datetime
    user_id: int
    verb: str
    details: dict[str, Any]


class ActivityPage(BaseModel):
    activity: list[ActivityOut]
    next_page: str | None = None


class PageQuery(Query):
    page_size: PageSize = 50
    after: After = None


class PendingOut(ItemOut):
    job_id: UUID
    job_key: str
    job_status: JobStatus
    kind: str
    owner_id: int
    why: str = Field(description="Why it waits")


class PendingPage(BaseModel):
    items: list[PendingOut]
    pending_count: int = Field(description="How many wait in all; up to half a minute old")
    next_page: str | None = None


class PendingQuery(Query):
    statuses: Statuses = [ItemStatus.PENDING, ItemStatus.PROCESSING]
    user_id: UserId = "me"
    job_type: str | None = Field(None, max_length=200)
    job_id: UUID | None = None
    from_: datetime | None = Field(None, validation_alias=AliasChoices("from", "from_"))
    to: datetime | None = None
    page_size: PageSize = 100
    after: After = None


class ExportQuery(Query):
    format: Literal["csv", "xlsx", "ndjson"] = "csv"
    statuses: Statuses = []
    spreadsheet_safe: bool = False


class DeadLetterOut(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str
    job_id: UUID
    seq: int


class DeadLetterPage(BaseModel):
    items: list[DeadLetterOut]
    next_page: str | None = None


class DeadLetterQuery(Query):
    user_id: UserId = "me"
    kind: str | None = Field(None, max_length=200)
    error_codes: Codes | None = None
    job_id: UUID | None = None
    from_: datetime | None = Field(None, validation_alias=AliasChoices("from", "from_"))
    to: datetime | None = None
    page_size: PageSize = 100
    after: After = None


class Cause(BaseModel):
    model_config = ConfigDict(extra="allow")

    code: str


class Point(BaseModel):
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


class ReprocessIn(Asked):
    """Which items go round again."""

    scope: Literal["job", "items"] = "job"
    item_ids: list[ItemId] | None = Field(None, max_length=ITEMS_MAX)
    statuses: Statuses = [ItemStatus.FAILED, ItemStatus.NOT_FOUND]
    error_codes: Codes | None = None
    reset_attempts: bool = Field(True, description="Without it, only items that have attempts left")


class DeadLetterFilter(Asked):
    job_id: UUID | None = None
    kind: str | None = Field(None, max_length=200)
    error_codes: Codes | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


class RedriveIn(Asked):
    """Dead letters by predicate: all that match a filter, but some; or these."""

    all_matching: bool = False
    filter: DeadLetterFilter = DeadLetterFilter()
    except_: list[ItemId] = Field([], max_length=ITEMS_MAX, validation_alias=AliasChoices("except", "except_"))
    item_ids: list[ItemId] | None = Field(None, max_length=ITEMS_MAX)
    user_id: UserId = "me"


class OperationOut(BaseModel):
    id: UUID
    verb: Literal["reprocess", "redrive"]
    state: Literal["running", "done", "failed"]
    items: int = Field(description="Sent round so far")
    user_id: int
    job_id: UUID | None = None
    predicate: dict[str, Any]
    error: str | None = None
    request_id: str | None = None
    created_at: datetime
    updated_at: datetime


class OperationPage(BaseModel):
    operations: list[OperationOut]
    next_page: str | None = None


class FixIn(Asked):
    input: Any = Field(description="The whole input, corrected")


class Fixed(BaseModel):
    rev: int
