"""Request and response models of exports."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool
from typing_extensions import TypeAliasType

from tidemill.core.status import JobStatus
from tidemill.jobs.bulk_operation_schemas import SelectionIn
from tidemill.jobs.schemas import ItemCountsOut, JobFilterQuery
from tidemill.rest.schema_types import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    STATUSES_ALIASES,
    ItemStatusFilter,
    NextPageToken,
    QueryModel,
    RequestModel,
)

TableFormat = TypeAliasType("TableFormat", Literal["csv", "ndjson", "json", "xlsx", "parquet"])
ColumnSource = TypeAliasType(
    "ColumnSource", Literal["input", "result", "row", "status", "error_code", "error", "attempts"]
)
ExportCompression = TypeAliasType("ExportCompression", Literal["none", "gzip", "zstd"])
ShortName = Annotated[str, Field(min_length=1, max_length=200)]
_FIELDS_DESCRIPTION = "Fields to export, in this order; all by default"
_ORDER_DESCRIPTION = "Fields to sort by; `-field` sorts descending. Default: the natural key of the resource"
_SPREADSHEET_SAFE_DESCRIPTION = "Put an apostrophe before text that a spreadsheet could execute; csv and xlsx only"


def _split_names(value: object) -> object:
    values = value if isinstance(value, list) else [value]
    return [name for item in values for name in (item.split(",") if isinstance(item, str) else [item]) if name != ""]


ShortNameList = Annotated[list[ShortName], BeforeValidator(_split_names)]


class ExportIn(RequestModel):
    """An export of the rows of a resource to a file."""

    resource: ShortName = Field(description="Name of a declared resource; admins can also use the name of a table")
    format: TableFormat = "csv"
    compression: ExportCompression = "none"
    fields: list[ShortName] = Field([], max_length=2_000, description=_FIELDS_DESCRIPTION)
    filters: dict[str, Any] = Field(
        {},
        description='Conditions that rows must match: `{"role": {"in": ["admin", "editor"]}}` or `{"role": "admin"}`',
    )
    order: list[ShortName] = Field([], max_length=100, description=_ORDER_DESCRIPTION)
    spreadsheet_safe: StrictBool = Field(False, description=_SPREADSHEET_SAFE_DESCRIPTION)
    priority: int = Field(10, ge=-100, le=100)


class ExportListQuery(JobFilterQuery):
    """With `resource`, the rows to stream; without it, the exports to list. The route itself parses `filter[…]`."""

    model_config = ConfigDict(extra="allow")

    resource: ShortName | None = Field(
        None, description="Resource whose rows to stream; without it, the response lists your exports"
    )
    format: TableFormat = Field("csv", description="Format of the stream")
    compression: ExportCompression = Field("none", description="Compression of the stream")
    fields: ShortNameList = Field([], description=f"{_FIELDS_DESCRIPTION}. Comma-separated")
    order: ShortNameList = Field([], description=f"{_ORDER_DESCRIPTION}. Comma-separated")
    spreadsheet_safe: bool = Field(False, description=_SPREADSHEET_SAFE_DESCRIPTION)


class ExportOut(BaseModel):
    """An export and its progress."""

    job_id: UUID
    key: str = Field(description="Short name of the job. Every route that accepts the id also accepts this key")
    idempotency_key: str | None = None
    resource_type: str = Field(description="Name of the exported resource, or `job` for job results")
    format: str
    compression: str = "none"
    spreadsheet_safe: bool = False
    status: JobStatus
    filters: dict[str, Any] = {}
    fields: list[str] = Field([], description="Requested fields; empty means all")
    order: list[str] = []
    record_count: int | None = Field(None, description="Number of rows in the file")
    size: int | None = Field(None, description="Size of the file in bytes")
    sha256: str | None = None
    file_id: str | None = Field(None, description="Id of the stored file; imports accept it as `source.file_id`")
    file_path: str | None = Field(None, description="URL of the file in the blob store")
    download_url: str | None = None
    failure_reason: str | None = None
    counts: ItemCountsOut = Field(description="Item counts of the job; an export has one item, the file")
    user_id: int
    started_at: datetime | None = None
    completed_at: datetime | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = Field(None, description="Time after which the file is removed")
    links: dict[str, str] = Field(description="URLs of related resources and actions")


class ExportPage(BaseModel):
    """A page of exports, newest first."""

    exports: list[ExportOut]
    next_page: NextPageToken = None


_COLUMNS_DESCRIPTION = "Columns in this order: headers, `input.NAME`, `result.NAME`, `input.*`, `result.*`, `*` for all"


class JobExportQuery(QueryModel):
    format: TableFormat = "csv"
    compression: ExportCompression = "none"
    statuses: ItemStatusFilter = Field([], validation_alias=STATUSES_ALIASES)
    columns: Annotated[list[str], BeforeValidator(_split_names)] = Field([], description=_COLUMNS_DESCRIPTION)
    flatten: bool = Field(False, description="Give each field of a nested object a column, such as `price.amount`")
    spreadsheet_safe: bool = Field(False, description="Put an apostrophe before text that a spreadsheet could execute")


class JobExportIn(SelectionIn):
    """The items and the columns of a result file. Without `statuses`, items of every status are selected."""

    columns: list[str] = Field([], max_length=2_000, description=_COLUMNS_DESCRIPTION)


class ResultColumnOut(BaseModel):
    """A column that a result file can have."""

    header: str = Field(description="Name of the column in the file")
    source: ColumnSource = Field(description="Whether the column shows the input, the result, or a state of the item")
    name: str | None = Field(description="Field of the input or the result; null for other sources")


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
    ResultColumnOut: {"header": "cents", "source": "result", "name": "cents"},
    JobExportIn: {
        "columns": ["sku", "result.*", "_error"],
        "statuses": ["failed"],
        "error_codes": ["exhausted"],
        "except": [f"{EXAMPLE_JOB_ID}:7"],
    },
}
