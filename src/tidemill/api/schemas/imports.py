"""Imports: what is asked for, and what became of it."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypeAliasType

from tidemill.api.schemas.base import (
    After,
    Asked,
    Codes,
    NextPage,
    PageSize,
    Query,
)
from tidemill.api.schemas.jobs import Count, Counts, PolicyIn, Rates
from tidemill.api.schemas.resources import ValueType
from tidemill.domain.status import JobStatus
from tidemill.operations.import_preview import PREVIEW_MAX

ImportMode = TypeAliasType("ImportMode", Literal["insert", "upsert"])
DuplicatePolicy = TypeAliasType("DuplicatePolicy", Literal["first", "last", "error"])
FileFormat = TypeAliasType("FileFormat", Literal["csv", "tsv", "ndjson", "json", "xlsx", "parquet"])
Compression = TypeAliasType("Compression", Literal["none", "gzip", "zstd", "zip"])


class LayoutIn(Asked):
    """How a file is laid out. What is not said is found out."""

    format: FileFormat | None = None
    encoding: str | None = Field(None, max_length=40, examples=["cp1252"])
    delimiter: str | None = Field(
        None, max_length=10, description="One character, or `tab`, `comma`, `semicolon`, `pipe`"
    )
    quote: str | None = Field(None, max_length=1, description="Empty for none")
    line_end: str | None = Field(None, max_length=10, description="`lf`, `crlf` or `cr`")
    header: bool | None = Field(None, description="Whether the first record names the columns")
    compression: Compression | None = None
    sheet: int | str | None = Field(None, description="Of a workbook: its name, or its number from 1")


class ImportSourceIn(Asked):
    """Where the file is: at a URL, in the blob store, or in a folder of TIDEMILL_SOURCES. One of the three."""

    url: str | None = Field(None, min_length=1, max_length=4_000, description="Fetched by a worker")
    file_id: str | None = Field(None, pattern=r"^[0-9a-f]{32}$", description="The file of a job or an export of yours")
    name: str | None = Field(None, max_length=100, description="A folder's name; with path")
    path: str | None = Field(None, max_length=1_000)


class ImportIn(LayoutIn):
    """Which rows go where, and how."""

    resource: str = Field(min_length=1, max_length=200, description="A declared one; for admins also a table")
    source: ImportSourceIn | None = Field(None, description="Where there is no file in the request")
    mode: ImportMode = "insert"
    validate_only: bool = Field(False, description="Everything is checked and nothing written; can be promoted")
    duplicates: DuplicatePolicy = Field("error", description="Which of several rows with one key is imported")
    mapping: dict[str, str] = Field({}, description="Column of the file -> field; an empty name leaves a column out")
    key: list[str] = Field([], max_length=32, description="Fields that identify a row, instead of the resource's")
    spreadsheet_safe: bool = Field(
        False, description="The file was exported so: apostrophes that keep text from being run are taken off"
    )
    keep_empty: bool = Field(
        False, description='Empty text is kept: nothing is `null`, or in CSV a field without quotes; `""` is a text'
    )
    policy: PolicyIn = PolicyIn()
    priority: int = Field(0, ge=-100, le=100)

    @field_validator("mode", mode="before")
    @classmethod
    def _is_no_mode(cls, said: Any) -> Any:
        if said == "validate_only":
            raise ValueError("a trial may be of either mode: say validate_only=true beside insert or upsert")
        return said


class PreviewIn(ImportIn):
    """The same, to look at its first rows."""

    rows: int = Field(20, ge=1, le=PREVIEW_MAX)


class RowError(BaseModel):
    """One thing that is wrong with a row."""

    row: int = Field(description="The record's number, from 1")
    line: int = Field(description="In its file")
    byte_offset: int | None = Field(None, description="In its file, of bytes that are not in its encoding")
    field: str | None = None
    value: Any = Field(None, description="What was there, cut short")
    code: str | None = None
    reason: str | None = None
    retryable: bool = False


class RowOut(BaseModel):
    """A row and all that is wrong with it."""

    row: int
    line: int
    errors: list[RowError]
    input: Any = Field(description="As it is now, with corrections; text where it could not be parsed")


class TargetOut(BaseModel):
    """A field that a column may go to."""

    name: str
    type: ValueType
    required: bool = Field(description="A row cannot be without it, for neither a default nor the table fills it")


class PreviewOut(BaseModel):
    """What a file turned out to be, and what an import of it would meet. Nothing of it is kept."""

    resource_type: str
    layout: dict[str, Any]
    columns: list[str]
    mapping: dict[str, str] = Field(description="Column -> field, as said or guessed")
    unknown: list[str] = Field(description="Columns that are no field")
    missing: list[str] = Field(description="Required fields without a column")
    problems: list[str] = Field(description="Why an import would be refused; none if it would not")
    fields: list[TargetOut] = Field([], description="Of the resource, in their order")
    rows: list[RowOut] = Field(description="Checked one by one; what only the table knows is not looked up")


class EffectsOut(BaseModel):
    """Rows of the table: new ones, changed ones, and ones that were so already. Of a trial, what they would be."""

    inserted: Count
    updated: Count
    unchanged: Count


class ImportOut(BaseModel):
    """An import and how far it is."""

    job_id: UUID
    key: str = Field(description="Its short name; wherever an id is asked for, it does as well")
    idempotency_key: str | None = None
    resource_type: str
    file_name: str | None = Field(None, description="What the file was called, if it had a name")
    mode: ImportMode
    validate_only: bool
    status: JobStatus
    total_records: Count
    processed_records: Count
    successful_records: Count
    error_records: Count
    failure_reason: str | None = None
    counts: Counts
    user_id: int
    created_at: datetime | None = None
    started_at: datetime | None = Field(None, description="When its first row was read")
    completed_at: datetime | None = None
    links: dict[str, str] = Field(description="What can be asked about it, or done to it")


class ImportDetail(ImportOut):
    """An import, whole."""

    rates: Rates
    effects: EffectsOut
    errors: dict[str, int] = Field(description="Failed rows by their first error: field and rule")
    layout: dict[str, Any]
    columns: list[str] = Field(description="Of the file")
    mapping: dict[str, str] = Field(description="Column of the file -> field")
    duplicates: DuplicatePolicy
    resource_key: list[str] = Field(description="Fields that identify a row")
    policy: dict[str, Any]
    file_id: str | None = None
    promoted_from: UUID | None = Field(None, description="The trial that it was")
    promoted_to: UUID | None = Field(None, description="The live import that this trial became")


class ImportPage(BaseModel):
    """The newest first."""

    imports: list[ImportOut]
    next_page: NextPage = None


class RowErrorQuery(Query):
    error_codes: Codes | None = None
    page_size: PageSize = 100
    after: After = None


class RowPage(BaseModel):
    """Failed rows in their own order. A page may be short, and still have a next one."""

    rows: list[RowOut]
    next_page: NextPage = None
