"""Request and response models of imports. Bodies that are read as a stream are described for the OpenAPI document."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypeAliasType

from tidemill.core.status import JobStatus
from tidemill.imports.use_cases import PREVIEW_ROWS_MAX
from tidemill.jobs.resource_routes import ValueType
from tidemill.jobs.schemas import ItemCountsOut, NonNegativeInt, PolicyIn, RatesOut
from tidemill.rest.example_values import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
)
from tidemill.rest.schema_types import (
    BINARY_CONTENT,
    BINARY_SCHEMA,
    AfterCursor,
    ErrorCodeFilter,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
)

ImportMode = TypeAliasType("ImportMode", Literal["insert", "upsert"])
DuplicatePolicy = TypeAliasType("DuplicatePolicy", Literal["first", "last", "error"])
ImportFileFormat = TypeAliasType("ImportFileFormat", Literal["csv", "tsv", "ndjson", "json", "xlsx", "parquet"])
ImportCompression = TypeAliasType("ImportCompression", Literal["none", "gzip", "zstd", "zip"])


class LayoutIn(RequestModel):
    """How a file is laid out. What is not said is found out."""

    format: ImportFileFormat | None = None
    encoding: str | None = Field(None, max_length=40, examples=["cp1252"])
    delimiter: str | None = Field(
        None, max_length=10, description="One character, or `tab`, `comma`, `semicolon`, `pipe`"
    )
    quote: str | None = Field(None, max_length=1, description="Empty for none")
    line_end: str | None = Field(None, max_length=10, description="`lf`, `crlf` or `cr`")
    header: bool | None = Field(None, description="Whether the first record names the columns")
    compression: ImportCompression | None = None
    sheet: int | str | None = Field(None, description="Of a workbook: its name, or its number from 1")


class ImportSourceIn(RequestModel):
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
    def _reject_validate_only_mode(cls, mode: Any) -> Any:
        if mode == "validate_only":
            raise ValueError("a trial may be of either mode: say validate_only=true beside insert or upsert")
        return mode


class PreviewIn(ImportIn):
    """The same, to look at its first rows."""

    rows: int = Field(20, ge=1, le=PREVIEW_ROWS_MAX)


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


class TargetFieldOut(BaseModel):
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
    fields: list[TargetFieldOut] = Field([], description="Of the resource, in their order")
    rows: list[RowOut] = Field(description="Checked one by one; what only the table knows is not looked up")


class EffectsOut(BaseModel):
    """Rows of the table: new ones, changed ones, and ones that were so already. Of a trial, what they would be."""

    inserted: NonNegativeInt
    updated: NonNegativeInt
    unchanged: NonNegativeInt


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
    total_records: NonNegativeInt
    processed_records: NonNegativeInt
    successful_records: NonNegativeInt
    error_records: NonNegativeInt
    failure_reason: str | None = None
    counts: ItemCountsOut
    user_id: int
    created_at: datetime | None = None
    started_at: datetime | None = Field(None, description="When its first row was read")
    completed_at: datetime | None = None
    links: dict[str, str] = Field(description="What can be asked about it, or done to it")


class ImportDetail(ImportOut):
    """An import, whole."""

    rates: RatesOut
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
    next_page: NextPageToken = None


class RowErrorQuery(QueryModel):
    error_codes: ErrorCodeFilter | None = None
    page_size: PageSize = 100
    after: AfterCursor = None


class RowPage(BaseModel):
    """Failed rows in their own order. A page may be short, and still have a next one."""

    rows: list[RowOut]
    next_page: NextPageToken = None


_CSV_EXAMPLE = "email,name\nada@example.com,Ada\n"
_LAYOUT_PROPERTIES: dict[str, dict[str, Any]] = {
    "format": {"$ref": "#/components/schemas/ImportFileFormat"},
    "encoding": {"type": "string", "maxLength": 40},
    "delimiter": {"type": "string", "maxLength": 10},
    "quote": {"type": "string", "maxLength": 1},
    "line_end": {"type": "string", "maxLength": 10, "description": "`lf`, `crlf` or `cr`"},
    "header": {"type": "boolean"},
    "compression": {"$ref": "#/components/schemas/ImportCompression"},
    "sheet": {"type": "string", "description": "Of a workbook: its name, or its number from 1"},
    "filename": {"type": "string", "description": "Says the format if nothing else does"},
}
_IMPORT_PROPERTIES: dict[str, dict[str, Any]] = {
    "resource": {"type": "string", "minLength": 1, "maxLength": 200},
    "mode": {"$ref": "#/components/schemas/ImportMode"},
    "validate_only": {"type": "boolean"},
    "duplicates": {"$ref": "#/components/schemas/DuplicatePolicy"},
    "mapping": {"type": "string", "description": "A JSON object: column of the file -> field"},
    "key": {"type": "string", "description": "Fields between commas, or a JSON list"},
    "spreadsheet_safe": {"type": "boolean", "description": "The file was exported so"},
    "keep_empty": {"type": "boolean", "description": "Empty text is kept, and is not the same as nothing"},
    "policy": {"type": "string", "description": "A JSON object, as PolicyIn"},
    "priority": {"type": "integer", "minimum": -100, "maximum": 100},
    **_LAYOUT_PROPERTIES,
}
_PREVIEW_PROPERTIES: dict[str, dict[str, Any]] = {"rows": {"type": "integer", "minimum": 1, "maximum": 1000}}
_IMPORT_SOURCE_EXAMPLES = {
    "url": {
        "summary": "A file of another machine",
        "value": {"resource": "users", "source": {"url": "https://files.example.com/users.csv.gz"}, "mode": "upsert"},
    },
    "file": {
        "summary": "The file of a job or an export of yours",
        "value": {"resource": "users", "source": {"file_id": "3f1c6a0e9b2d4c583f1c6a0e9b2d4c58"}},
    },
    "folder": {
        "summary": "A file in a configured folder",
        "value": {"resource": "users", "source": {"name": "inbox", "path": "users.csv"}, "validate_only": True},
    },
}


def _document_request_body(
    words: dict[str, dict[str, Any]], model: str | None, required: list[str], text: str = _CSV_EXAMPLE
) -> dict[str, Any]:
    form = {"type": "object", "properties": words | {"file": BINARY_SCHEMA}, "required": [*required, "file"]}
    content: dict[str, Any] = {
        "multipart/form-data": {
            "schema": form,
            "example": {"resource": "users", "file": text} if required else {"file": text},
        },
        "text/csv": {"schema": BINARY_SCHEMA, "example": text},
        "application/x-ndjson": BINARY_CONTENT,
        "application/octet-stream": BINARY_CONTENT,
    }
    if model is not None:
        reference = {"schema": {"$ref": f"#/components/schemas/{model}"}, "examples": _IMPORT_SOURCE_EXAMPLES}
        content = {"application/json": reference} | content
    return {"required": True, "content": content}


def _document_query_parameters(words: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """With JSON, and with a form, these words are in the body."""
    text = "Of a body that is a file"
    return [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
        for name, schema in words.items()
    ]


IMPORT_BODY, IMPORT_QUERY_PARAMETERS = (
    _document_request_body(_IMPORT_PROPERTIES, "ImportIn", ["resource"]),
    _document_query_parameters(_IMPORT_PROPERTIES),
)
PREVIEW_BODY, PREVIEW_QUERY_PARAMETERS = (
    _document_request_body(_IMPORT_PROPERTIES | _PREVIEW_PROPERTIES, "PreviewIn", ["resource"]),
    _document_query_parameters(_IMPORT_PROPERTIES | _PREVIEW_PROPERTIES),
)
FIXES_BODY = _document_request_body(_LAYOUT_PROPERTIES, None, [], "email,name,_row\nada@example.com,Ada,7\n")
FIXES_QUERY_PARAMETERS = _document_query_parameters(_LAYOUT_PROPERTIES)


_IMPORT: dict[str, Any] = {
    "job_id": EXAMPLE_JOB_ID,
    "key": "J20261115_000778",
    "idempotency_key": "users-2026-11-15",
    "resource_type": "users",
    "mode": "upsert",
    "validate_only": False,
    "status": "completed_with_errors",
    "total_records": 1000,
    "processed_records": 1000,
    "successful_records": 993,
    "error_records": 7,
    "counts": dict.fromkeys(EXAMPLE_COUNTS, 0) | {"total": 1000, "done": 993, "failed": 7},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "started_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
    "links": {"self": f"/v1/imports/{EXAMPLE_JOB_ID}", "errors": f"/v1/imports/{EXAMPLE_JOB_ID}/errors"},
}
_FILE_LAYOUT = {"format": "csv", "encoding": "utf-8", "delimiter": ",", "quote": '"', "header": True}
_FILE_LAYOUT |= {"compression": "none", "line_end": "\n"}
_COLUMN_MAPPING = {"E-Mail": "email", "name": "name"}
_IMPORT_DETAIL: dict[str, Any] = {
    "rates": {"now_per_s": 0, "average_per_s": 24100.5},
    "effects": {"inserted": 900, "updated": 90, "unchanged": 3},
    "errors": {"email.pattern": 6, "role.enum": 1},
    "layout": _FILE_LAYOUT,
    "columns": ["E-Mail", "name"],
    "mapping": _COLUMN_MAPPING,
    "duplicates": "error",
    "resource_key": ["email"],
    "policy": {"mode": "continue"},
    "file_id": "3f1c6a0e9b2d4c583f1c6a0e9b2d4c58",
}
_ROW_ERROR = {"row": 7, "line": 8, "field": "email", "value": "ada", "code": "email.pattern"}
_ROW_ERROR |= {"reason": "not an e-mail address", "retryable": False}
_FAILED_ROW = {"row": 7, "line": 8, "errors": [_ROW_ERROR], "input": {"E-Mail": "ada", "name": "Ada"}}
_IMPORT_SOURCE = {"url": "https://files.example.com/users.csv.gz"}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    ImportIn: {"resource": "users", "source": _IMPORT_SOURCE, "mode": "upsert", "mapping": {"E-Mail": "email"}},
    PreviewIn: {"resource": "users", "source": _IMPORT_SOURCE, "rows": 50},
    PreviewOut: {
        "resource_type": "users",
        "layout": _FILE_LAYOUT,
        "columns": ["E-Mail", "name"],
        "mapping": _COLUMN_MAPPING,
        "unknown": [],
        "missing": [],
        "problems": [],
        "rows": [_FAILED_ROW],
    },
    ImportOut: _IMPORT,
    ImportDetail: _IMPORT | _IMPORT_DETAIL,
    ImportPage: {"imports": [_IMPORT], "next_page": EXAMPLE_NEXT_PAGE},
    RowPage: {"rows": [_FAILED_ROW], "next_page": EXAMPLE_NEXT_PAGE},
}
