"""Distributions: what is asked for, and what became of it."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from typing_extensions import TypeAliasType

from tidemill.core.status import ItemStatus, JobStatus
from tidemill.distributions.dataset import FieldType
from tidemill.jobs.schemas import NonNegativeInt, PolicyIn
from tidemill.rest.schema_types import AfterCursor, NextPageToken, QueryModel, RequestModel

DistributionFormat = TypeAliasType("DistributionFormat", Literal["csv", "ndjson", "json", "xlsx", "parquet"])
DistributionCompression = TypeAliasType("DistributionCompression", Literal["none", "gzip", "zstd"])
InputType = TypeAliasType("InputType", FieldType)
CONTENT_PAGE_SIZE_MAX = 1_000


class ReuseIn(RequestModel):
    """Whether files that were made before do; what is not said is as the settings have it."""

    enabled: StrictBool | None = None
    days: Annotated[StrictInt, Field(ge=0, le=36_500)] | None = Field(
        None, description="Of inputs whose date is younger than so many days, files are made anew"
    )


class DistributionIn(RequestModel):
    """A file for each input."""

    dataset: str = Field(min_length=1, max_length=63)
    inputs: list[dict[str, Any]] = Field(
        min_length=1, description="Each with the fields of the dataset, no two of them the same"
    )
    reuse: ReuseIn | None = None
    policy: PolicyIn | None = Field(None, description="Without it, the first input that fails fails all: `fail_fast`")
    format: DistributionFormat | None = Field(None, description="Instead of the dataset's")
    compression: DistributionCompression | None = Field(None, description="Instead of the dataset's")
    priority: int = Field(0, ge=-100, le=100, description="Each step doubles its share among its owner's jobs")


class ReuseOut(BaseModel):
    """As it was decided by when this was submitted."""

    enabled: bool
    days: int


class DistributionOut(BaseModel):
    """A distribution and how far it is. total is the sum of the counts from pending to cancelled."""

    job_id: UUID
    key: str = Field(description="Its short name; wherever an id is asked for, it does as well")
    dataset: str
    status: JobStatus
    total: NonNegativeInt
    pending: NonNegativeInt
    processing: NonNegativeInt
    retry_wait: NonNegativeInt
    done: NonNegativeInt
    not_found: NonNegativeInt
    skipped: NonNegativeInt
    failed: NonNegativeInt
    cancelled: NonNegativeInt
    files_generated: int
    files_reused: int
    error_message: str | None = Field(
        None, description="Why it failed as a whole, and the first input that failed with its reason"
    )
    reuse: ReuseOut
    format: str
    compression: str
    policy: dict[str, Any]
    user_id: int
    created_at: datetime | None = None
    started_at: datetime | None = Field(None, description="When its first input was taken in hand")
    completed_at: datetime | None = None
    links: dict[str, str] = Field(description="What can be asked about it, or done to it")


class InputError(BaseModel):
    """Why there is no file, or not yet."""

    code: str | None = None
    reason: str | None = None


class ContentOut(BaseModel):
    """An input, by its own fields, and its file."""

    model_config = ConfigDict(extra="allow")

    status: ItemStatus
    attempts: int
    path: str | None = Field(None, description="Where the file is; one that is used again lies in an earlier folder")
    download_url: str | None = Field(None, description="Where this service has it for you")
    rows: int | None = None
    size: int | None = Field(None, description="Bytes")
    sha256: str | None = None
    reused: bool | None = None
    error: InputError | None = None


class DistributionDetail(DistributionOut):
    """A distribution, and a page of its inputs in the order they came in."""

    data_content: list[ContentOut]
    next_page: NextPageToken = None


class DistributionPage(BaseModel):
    """The newest first."""

    distributions: list[DistributionOut]
    next_page: NextPageToken = None


class ContentQuery(QueryModel):
    page_size: Annotated[int, Field(ge=1, le=CONTENT_PAGE_SIZE_MAX, description="Inputs of a page")] = (
        CONTENT_PAGE_SIZE_MAX
    )
    after: AfterCursor = None


class InputFieldOut(BaseModel):
    """A `date` and a `yyyymmdd` are given as 20240202 or as 2024-02-02."""

    name: str
    type: InputType
    required: bool


class DatasetOut(BaseModel):
    """What files can be asked for, and with which inputs."""

    name: str
    fields: list[InputFieldOut]
    date_field: str | None = Field(None, description="What decides whether a file is used again; without it, none is")
    format: str
    compression: str


class DatasetList(BaseModel):
    """Those that you may ask for."""

    datasets: list[DatasetOut]
