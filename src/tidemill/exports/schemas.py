"""Exports: what is asked for, and what became of it."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool
from typing_extensions import TypeAliasType

from tidemill.core.status import JobStatus
from tidemill.jobs.schemas import ItemCountsOut, JobFilterQuery
from tidemill.rest.schema_types import STATUSES_ALIASES, ItemStatusFilter, NextPageToken, QueryModel, RequestModel

TableFormat = TypeAliasType("TableFormat", Literal["csv", "ndjson", "json", "xlsx", "parquet"])
ExportCompression = TypeAliasType("ExportCompression", Literal["none", "gzip", "zstd"])
ShortName = Annotated[str, Field(min_length=1, max_length=200)]
_FIELDS_DESCRIPTION = "Of the file, in this order; all of them, if none is named"
_ORDER_DESCRIPTION = (
    "Fields, the first one first; one with a minus before it is the other way round. By the natural key, if absent"
)
_SPREADSHEET_SAFE_DESCRIPTION = "Text that a spreadsheet might run gets an apostrophe in front; csv and xlsx only"


def _split_names(value: object) -> object:
    words = value if isinstance(value, list) else [value]
    return [part for word in words for part in (word.split(",") if isinstance(word, str) else [word]) if part != ""]


ShortNameList = Annotated[list[ShortName], BeforeValidator(_split_names)]


class ExportIn(RequestModel):
    """Which rows of what, as which file."""

    resource: ShortName = Field(description="A declared one; for admins also a table")
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
    """With a resource, what is streamed; without, which exports are listed. Filters are read by themselves."""

    model_config = ConfigDict(extra="allow")

    resource: ShortName | None = Field(None, description="Stream the rows of this one; without it, list your exports")
    format: TableFormat = Field("csv", description="Of a stream")
    compression: ExportCompression = Field("none", description="Of a stream")
    fields: ShortNameList = Field([], description=f"{_FIELDS_DESCRIPTION}; between commas")
    order: ShortNameList = Field([], description=f"{_ORDER_DESCRIPTION}; between commas")
    spreadsheet_safe: bool = Field(False, description=_SPREADSHEET_SAFE_DESCRIPTION)


class ExportOut(BaseModel):
    """An export and how far it is."""

    job_id: UUID
    key: str = Field(description="Its short name; wherever an id is asked for, it does as well")
    idempotency_key: str | None = None
    resource_type: str = Field(description="What it is of: a resource, or `job` for the results of one")
    format: str
    compression: str = "none"
    spreadsheet_safe: bool = False
    status: JobStatus
    filters: dict[str, Any] = {}
    fields: list[str] = Field([], description="As they were asked for; none of them is all")
    order: list[str] = []
    record_count: int | None = Field(None, description="Rows of the file")
    size: int | None = Field(None, description="Bytes of the file")
    sha256: str | None = None
    file_id: str | None = Field(None, description="An import may refer to it")
    file_path: str | None = Field(None, description="Where the store has it")
    download_url: str | None = None
    failure_reason: str | None = None
    counts: ItemCountsOut = Field(description="One item: the file")
    user_id: int
    started_at: datetime | None = None
    completed_at: datetime | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = Field(None, description="From then on there is no file any more")
    links: dict[str, str] = Field(description="What can be asked about it, or done to it")


class ExportPage(BaseModel):
    """The newest first."""

    exports: list[ExportOut]
    next_page: NextPageToken = None


ExportFormat = TypeAliasType("ExportFormat", Literal["csv", "xlsx", "ndjson"])


class JobExportQuery(QueryModel):
    format: ExportFormat = "csv"
    statuses: ItemStatusFilter = Field([], validation_alias=STATUSES_ALIASES)
    spreadsheet_safe: bool = Field(False, description="Text that a spreadsheet might run is made harmless")
