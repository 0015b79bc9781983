"""Bodies, queries and responses of the export routes."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool
from typing_extensions import TypeAliasType

from tidemill.core.status import JobStatus
from tidemill.jobs.bulk_operation_schemas import SelectionIn
from tidemill.jobs.schemas import ItemCountsOut, JobFilterQuery
from tidemill.rest.example_values import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
)
from tidemill.rest.schema_types import STATUSES_ALIASES, ItemStatusFilter, NextPageToken, QueryModel, RequestModel

TableFormat = TypeAliasType("TableFormat", Literal["csv", "ndjson", "json", "xlsx", "parquet"])
ExportCompression = TypeAliasType("ExportCompression", Literal["none", "gzip", "zstd"])
ShortName = Annotated[str, Field(min_length=1, max_length=200)]
_FIELDS_DESCRIPTION = "Fields of the file, in this order; all by default"
_ORDER_DESCRIPTION = "Fields to sort by; `-field` is descending. The key of the resource by default"
_SPREADSHEET_SAFE_DESCRIPTION = "Put an apostrophe before text that a spreadsheet could execute; csv and xlsx only"


def _split_names(value: object) -> object:
    values = value if isinstance(value, list) else [value]
    return [name for item in values for name in (item.split(",") if isinstance(item, str) else [item]) if name != ""]


ShortNameList = Annotated[list[ShortName], BeforeValidator(_split_names)]


class ExportIn(RequestModel):
    """The rows to export, and the format of the file."""

    resource: ShortName = Field(description="A declared resource; for administrators, also a table")
    format: TableFormat = "csv"
    compression: ExportCompression = "none"
    fields: list[ShortName] = Field([], max_length=2_000, description=_FIELDS_DESCRIPTION)
    filters: dict[str, Any] = Field(
        {},
        description='Field -> {operator: value or values}, or field -> value: `{"role": {"in": ["admin", "editor"]}}`',
    )
    order: list[ShortName] = Field([], max_length=100, description=_ORDER_DESCRIPTION)
    spreadsheet_safe: StrictBool = Field(False, description=_SPREADSHEET_SAFE_DESCRIPTION)
    priority: int = Field(10, ge=-100, le=100)


class ExportListQuery(JobFilterQuery):
    """With `resource`, the rows to stream; without, the exports to list. The route parses `filter[…]` itself."""

    model_config = ConfigDict(extra="allow")

    resource: ShortName | None = Field(
        None, description="Stream the rows of this resource; without it, list your exports"
    )
    format: TableFormat = Field("csv", description="Format of a stream")
    compression: ExportCompression = Field("none", description="Compression of a stream")
    fields: ShortNameList = Field([], description=f"{_FIELDS_DESCRIPTION}; separated by commas")
    order: ShortNameList = Field([], description=f"{_ORDER_DESCRIPTION}; separated by commas")
    spreadsheet_safe: bool = Field(False, description=_SPREADSHEET_SAFE_DESCRIPTION)


class ExportOut(BaseModel):
    """An export and its progress."""

    job_id: UUID
    key: str = Field(description="Short name, accepted wherever an id is")
    idempotency_key: str | None = None
    resource_type: str = Field(description="The exported resource, or `job` for the results of a job")
    format: str
    compression: str = "none"
    spreadsheet_safe: bool = False
    status: JobStatus
    filters: dict[str, Any] = {}
    fields: list[str] = Field([], description="Requested fields; empty means all")
    order: list[str] = []
    record_count: int | None = Field(None, description="Rows in the file")
    size: int | None = Field(None, description="Size of the file in bytes")
    sha256: str | None = None
    file_id: str | None = Field(None, description="Imports accept it as their file")
    file_path: str | None = Field(None, description="URL of the file in the blob store")
    download_url: str | None = None
    failure_reason: str | None = None
    counts: ItemCountsOut = Field(description="One item: the file")
    user_id: int
    started_at: datetime | None = None
    completed_at: datetime | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = Field(None, description="When the file is removed")
    links: dict[str, str] = Field(description="Related resources and actions")


class ExportPage(BaseModel):
    """A page of exports, newest first."""

    exports: list[ExportOut]
    next_page: NextPageToken = None


ExportFormat = TypeAliasType("ExportFormat", Literal["csv", "xlsx", "ndjson"])


class JobExportQuery(QueryModel):
    format: ExportFormat = "csv"
    statuses: ItemStatusFilter = Field([], validation_alias=STATUSES_ALIASES)
    spreadsheet_safe: bool = Field(False, description="Put an apostrophe before text that a spreadsheet could execute")


_EXPORT: dict[str, Any] = {
    "job_id": EXAMPLE_JOB_ID,
    "key": "J20261115_000779",
    "idempotency_key": "editors-2026-11-15",
    "resource_type": "users",
    "format": "csv",
    "compression": "gzip",
    "status": "completed",
    "filters": {"role": {"in": ["admin", "editor"]}},
    "fields": ["email", "name"],
    "order": ["-created_at"],
    "record_count": 1000,
    "size": 18234,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "file_id": "019a8b7c1d2e7f008000123456789abc",
    "file_path": "s3://exports/tidemill/019a8b7c1d2e7f008000123456789abc",
    "download_url": f"/v1/exports/{EXAMPLE_JOB_ID}/download",
    "counts": dict.fromkeys(EXAMPLE_COUNTS, 0) | {"total": 1, "done": 1},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "started_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
    "expires_at": "2026-11-22T09:00:41.250000Z",
    "links": {"self": f"/v1/exports/{EXAMPLE_JOB_ID}", "download": f"/v1/exports/{EXAMPLE_JOB_ID}/download"},
}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    ExportIn: {
        "resource": "users",
        "fields": ["email", "name"],
        "filters": {"role": {"in": ["admin", "editor"]}},
        "order": ["-created_at"],
        "compression": "gzip",
    },
    ExportOut: _EXPORT,
    ExportPage: {"exports": [_EXPORT], "next_page": EXAMPLE_NEXT_PAGE},
    SelectionIn: {
        "statuses": ["failed"],
        "error_codes": ["exhausted"],
        "except": [f"{EXAMPLE_JOB_ID}:7"],
    },
}
