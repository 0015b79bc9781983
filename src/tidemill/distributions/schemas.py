"""Request bodies, query parameters and responses of the routes of datasets and distributions."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from typing_extensions import TypeAliasType

from tidemill.core.status import ItemStatus, JobStatus
from tidemill.distributions.dataset import FieldType
from tidemill.jobs.schemas import NonNegativeInt, PolicyIn
from tidemill.rest.schema_types import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    AfterCursor,
    NextPageToken,
    QueryModel,
    RequestModel,
)

DistributionFormat = TypeAliasType("DistributionFormat", Literal["csv", "ndjson", "json", "xlsx", "parquet"])
DistributionCompression = TypeAliasType("DistributionCompression", Literal["none", "gzip", "zstd"])
InputType = TypeAliasType("InputType", FieldType)
CONTENT_PAGE_SIZE_MAX = 1_000


class ReuseIn(RequestModel):
    """When to reuse existing files. The defaults are in the settings."""

    enabled: StrictBool | None = None
    days: Annotated[StrictInt, Field(ge=0, le=36_500)] | None = Field(
        None, description="Regenerate the files of inputs whose date is less than this many days ago"
    )


class DistributionIn(RequestModel):
    """A distribution to submit: one file per input."""

    dataset: str = Field(min_length=1, max_length=63)
    inputs: list[dict[str, Any]] = Field(
        min_length=1,
        description="One object per file, with the fields of the dataset. No two inputs may be equal.",
    )
    reuse: ReuseIn | None = None
    policy: PolicyIn | None = Field(
        None, description="Failure policy. The default is `fail_fast`: the first failed input fails the distribution"
    )
    format: DistributionFormat | None = Field(None, description="Default: the dataset's format")
    compression: DistributionCompression | None = Field(None, description="Default: the dataset's compression")
    priority: int = Field(0, ge=-100, le=100, description="Each step doubles the job's share of its owner's capacity")


class ReuseOut(BaseModel):
    """The reuse policy at the time of submission."""

    enabled: bool
    days: int


class DistributionOut(BaseModel):
    """A distribution and its progress. `total` is the sum of the counts from `pending` to `cancelled`."""

    job_id: UUID
    key: str = Field(description="Short name of the job. Every route that accepts the id also accepts this key")
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
        None, description="Why the distribution failed, with the first failed input and its error"
    )
    reuse: ReuseOut
    format: str
    compression: str
    policy: dict[str, Any]
    user_id: int
    created_at: datetime | None = None
    started_at: datetime | None = Field(None, description="Time when a worker started to read the inputs")
    completed_at: datetime | None = None
    links: dict[str, str] = Field(description="URLs of related resources and actions")


class InputError(BaseModel):
    """The error of an input that has no file."""

    code: str | None = None
    reason: str | None = None


class ContentOut(BaseModel):
    """The fields of an input, and its file."""

    model_config = ConfigDict(extra="allow")

    status: ItemStatus
    attempts: int
    path: str | None = Field(
        None, description="URL of the file in the blob store. A reused file is in the folder of an earlier distribution"
    )
    download_url: str | None = Field(None, description="Path in this API. A GET request to it downloads the file")
    rows: int | None = None
    size: int | None = Field(None, description="Size of the file in bytes")
    sha256: str | None = None
    reused: bool | None = None
    error: InputError | None = None


class DistributionDetail(DistributionOut):
    """A distribution and a page of its inputs, in request order."""

    data_content: list[ContentOut]
    next_page: NextPageToken = None


class DistributionPage(BaseModel):
    """A page of distributions, newest first."""

    distributions: list[DistributionOut]
    next_page: NextPageToken = None


class ContentQuery(QueryModel):
    page_size: Annotated[int, Field(ge=1, le=CONTENT_PAGE_SIZE_MAX, description="Number of inputs per page")] = (
        CONTENT_PAGE_SIZE_MAX
    )
    after: AfterCursor = None


class InputFieldOut(BaseModel):
    """A field of an input. Values of type `date` and `yyyymmdd` have the form 20240202 or 2024-02-02."""

    name: str
    type: InputType
    required: bool


class DatasetOut(BaseModel):
    """A dataset: the fields of its inputs, and the format of its files."""

    name: str
    fields: list[InputFieldOut]
    date_field: str | None = Field(
        None,
        description="Field with the date that decides whether a file is reused; without it, files are never reused",
    )
    format: str
    compression: str


class DatasetList(BaseModel):
    """The datasets that you may use."""

    datasets: list[DatasetOut]


_DISTRIBUTION_INPUT = {"index_key": "ABC", "effective_date": 20240202, "asofindicator": "CLS"}
_DISTRIBUTION: dict[str, Any] = {
    "job_id": EXAMPLE_JOB_ID,
    "key": "J20261115_000779",
    "dataset": "prices",
    "status": "completed",
}
_DISTRIBUTION |= dict.fromkeys(EXAMPLE_COUNTS, 0) | {"total": 2, "done": 2, "files_generated": 1, "files_reused": 1}
_DISTRIBUTION |= {"reuse": {"enabled": True, "days": 7}, "format": "csv", "compression": "none"}
_DISTRIBUTION |= {
    "policy": {"mode": "fail_fast"},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
}
_DISTRIBUTION |= {
    "started_at": EXAMPLE_CREATED_AT,
    "links": {"self": f"/v1/distributions/{EXAMPLE_JOB_ID}", "redrive": f"/v1/distributions/{EXAMPLE_JOB_ID}/redrive"},
}
_DISTRIBUTION_FOLDER_URL = "s3://bucket/exports/2026/11/15/J20261115_000779"
_DISTRIBUTION_CONTENT = _DISTRIBUTION_INPUT | {
    "status": "done",
    "attempts": 1,
    "path": f"{_DISTRIBUTION_FOLDER_URL}/ABC_20240202_CLS.csv",
    "rows": 500,
}
_DISTRIBUTION_CONTENT |= {"download_url": f"/v1/distributions/{EXAMPLE_JOB_ID}/files/0"}
_DISTRIBUTION_CONTENT |= {
    "size": 20110,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "reused": False,
}
_DATASET = {
    "name": "prices",
    "fields": [
        {"name": "index_key", "type": "text", "required": True},
        {"name": "effective_date", "type": "yyyymmdd", "required": True},
        {"name": "asofindicator", "type": "text", "required": True},
    ],
    "date_field": "effective_date",
    "format": "csv",
    "compression": "none",
}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    DatasetList: {"datasets": [_DATASET]},
    DistributionIn: {
        "dataset": "prices",
        "inputs": [_DISTRIBUTION_INPUT],
        "reuse": {"enabled": True, "days": 7},
    },
    DistributionOut: _DISTRIBUTION,
    DistributionDetail: _DISTRIBUTION | {"data_content": [_DISTRIBUTION_CONTENT]},
    DistributionPage: {"distributions": [_DISTRIBUTION], "next_page": EXAMPLE_NEXT_PAGE},
}
