"""Request and response models of imports, and OpenAPI descriptions of bodies that are read as a stream."""

from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, Field, StrictBool, StrictFloat, StrictInt, field_validator
from typing_extensions import TypeAliasType

from tidemill.core.status import JobStatus
from tidemill.jobs.schemas import FetchOut, FileReferenceIn, ItemCountsOut, NonNegativeInt, PolicyIn, RatesOut
from tidemill.rest.schema_types import (
    BINARY_CONTENT,
    BINARY_SCHEMA,
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    NextPageToken,
    RequestModel,
)
from tidemill.tables.row_rules import COMPUTED_MAX, CONSTANTS_MAX, SKIP_RULES_MAX

ImportMode = TypeAliasType("ImportMode", Literal["insert", "upsert"])
DuplicatePolicy = TypeAliasType("DuplicatePolicy", Literal["first", "last", "error"])
ImportFileFormat = TypeAliasType("ImportFileFormat", Literal["csv", "tsv", "ndjson", "json", "xlsx", "parquet"])
ShortRows = TypeAliasType("ShortRows", Literal["report", "pad"])
LongRows = TypeAliasType("LongRows", Literal["report", "cut"])
ImportCompression = TypeAliasType("ImportCompression", Literal["none", "gzip", "zstd", "zip"])


class LayoutIn(RequestModel):
    """The layout of a file. Tidemill detects options that are not set."""

    format: ImportFileFormat | None = None
    encoding: str | None = Field(None, max_length=40, examples=["cp1252"])
    delimiter: str | None = Field(
        None,
        max_length=10,
        description="1 to 8 characters, or `tab`, `comma`, `semicolon`, `pipe`, `space`, `blanks`",
    )
    quote: str | None = Field(None, max_length=1, description="Quote character; empty if the file has none")
    escape: str | None = Field(None, max_length=1, description="A backslash if it escapes quotes; else empty")
    line_end: str | None = Field(None, max_length=10, description="`lf`, `crlf` or `cr`")
    header: bool | None = Field(None, description="Whether the first record contains the column names")
    header_rows: int | None = Field(None, ge=0, le=10, description="Number of header rows, whose names are joined")
    skip_lines: int | None = Field(None, ge=0, description="Number of lines before the table")
    table: int | None = Field(None, ge=1, description="Which of several tables in the file, from 1")
    table_lines: int | None = Field(None, ge=0, description="Number of lines of the table, counted after `skip_lines`")
    footer_lines: int | None = Field(
        None, ge=0, le=1_000, description="Number of lines after the table, at the end of the file"
    )
    comment: str | None = Field(None, max_length=8, description="Prefix of lines to ignore")
    trailing_delimiter: bool | None = Field(
        None, description="Whether each line ends with an extra delimiter, after the last column"
    )
    short_rows: ShortRows | None = Field(None, description="`pad` fills missing fields; by default, they are an error")
    long_rows: LongRows | None = Field(None, description="`cut` drops extra fields; by default, they are an error")
    records: str | None = Field(
        None, max_length=200, description="List of rows in a JSON object, such as `items` or `data.items`"
    )
    flatten: bool | None = Field(None, description="Whether the fields of nested JSON objects become fields of the row")
    compression: ImportCompression | None = None
    sheet: int | str | None = Field(None, description="Sheet of a workbook: its name, or its number from 1")


class ImportIn(LayoutIn):
    """The target, the source and the options of an import."""

    creates_job: ClassVar[bool] = True
    resource: str = Field(
        min_length=1, max_length=200, description="Name of a declared resource; admins can also use the name of a table"
    )
    source: FileReferenceIn | None = Field(None, description="Required if the request contains no file")
    mode: ImportMode = "insert"
    validate_only: bool = Field(
        False, description="Dry run: check all rows and write none. A dry run can be promoted to an import"
    )
    duplicates: DuplicatePolicy = Field("error", description="Which of several rows with the same key is imported")
    mapping: dict[str, str] = Field({}, description="Column of the file -> field; an empty name ignores the column")
    translations: dict[str, dict[str, str]] = Field(
        {}, description="Field -> text in the file -> text to import instead. Texts are compared without outer spaces"
    )
    key: list[str] = Field([], max_length=32, description="Fields that identify a row; overrides the resource's key")
    spreadsheet_safe: bool = Field(
        False,
        description="True if the file was exported with this option: the import removes apostrophes before formulas",
    )
    keep_empty: bool = Field(
        False,
        description="Import empty text as text. A missing value is then only `null` or, in CSV, an empty field without "
        "quotes",
    )
    formats: dict[str, str] = Field(
        {},
        max_length=2_000,
        description="Field -> format of its values, such as `decimal-comma`, `DD.MM.YYYY`, `yes-no` or `plain+nulls`",
        examples=[{"credit_limit": "decimal-comma"}],
    )
    lookups: dict[str, str | list[str]] = Field(
        {},
        max_length=200,
        description="Field -> columns of the referenced table by which its rows are found instead of by their key; "
        "an empty text uses the keys in the file",
        examples=[{"team_id": "name"}],
    )
    create_missing: list[str] = Field(
        [], max_length=200, description="Fields whose lookups create the rows that they do not find"
    )
    assume: bool = Field(
        False, description="Use the more likely format if a column fits two formats, instead of an error"
    )
    constants: dict[str, str | StrictInt | StrictFloat | StrictBool] = Field(
        {},
        max_length=CONSTANTS_MAX,
        description="Field -> value of every row. An upsert updates only rows that have these values",
        examples=[{"source": "webshop"}],
    )
    computed: dict[str, str] = Field(
        {},
        max_length=COMPUTED_MAX,
        description="Field -> expression of columns, such as `concat(first, ' ', last)`",
        examples=[{"email": "lower(trim(email))"}],
    )
    skip: list[str] = Field(
        [], max_length=SKIP_RULES_MAX, description="Conditions of rows to skip", examples=[["status = 'deleted'"]]
    )
    undo: bool | None = Field(None, description="Keep the data to undo this import. By default, the resource decides")
    policy: PolicyIn = PolicyIn()
    priority: int = Field(0, ge=-100, le=100)

    @field_validator("mode", mode="before")
    @classmethod
    def _reject_validate_only_mode(cls, mode: Any) -> Any:
        if mode == "validate_only":
            raise ValueError(
                'must be "insert" or "upsert". For a dry run of one of these modes, set validate_only=true'
            )
        return mode


class EffectsOut(BaseModel):
    """Numbers of rows that the import inserted, updated and left unchanged. A dry run counts what it would do."""

    inserted: NonNegativeInt
    updated: NonNegativeInt
    unchanged: NonNegativeInt


class ImportOut(BaseModel):
    """An import and its progress."""

    job_id: UUID
    key: str = Field(description="Short name of the job. Every route that accepts the id also accepts this key")
    idempotency_key: str | None = None
    resource_type: str
    file_name: str | None = Field(None, description="Name of the uploaded file, if it had one")
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
    started_at: datetime | None = Field(None, description="When a worker started to read the file")
    completed_at: datetime | None = None
    duration_s: float | None = Field(
        None, description="Seconds from start to completion, minus `idle_s`; null while the import is open"
    )
    idle_s: float = Field(0.0, description="Seconds for which the import was closed before it was reopened")
    links: dict[str, str] = Field(description="URLs of the import and its operations")


class ImportDetail(ImportOut):
    """An import with all details."""

    rates: RatesOut
    effects: EffectsOut
    created_references: dict[str, NonNegativeInt] = Field(
        {}, description="Referenced table -> number of rows that lookups created; a dry run counts what it would create"
    )
    errors: dict[str, int] = Field(description="Code of a row's first error (`field.rule`) -> number of failed rows")
    rows_by_error: dict[str, int] = Field(
        description="Error code -> number of failed rows with this code. A row counts once for each of its codes"
    )
    dismissed_by_error: dict[str, int] = Field(description="Error code -> number of these rows that were dismissed")
    layout: dict[str, Any]
    columns: list[str] = Field(description="Columns of the file")
    mapping: dict[str, str] = Field(description="Column of the file -> field")
    translations: dict[str, dict[str, str]] = Field(
        {}, description="Field -> text in the file -> text that is imported instead"
    )
    formats: dict[str, str] = Field({}, description="Field -> format of its values, for fields that have one")
    assumed: list[str] = Field(
        [], description="Fields whose values fit two formats; the import uses the more likely one"
    )
    constants: dict[str, str] = Field({}, description="Field -> value of every row")
    computed: dict[str, str] = Field({}, description="Field -> expression")
    skip: list[str] = Field([], description="Conditions of rows that are skipped")
    lookups: dict[str, list[str]] = Field(
        {}, description="Field -> columns of the referenced table by which its rows are found"
    )
    create_missing: list[str] = Field([], description="Fields whose lookups create the rows that they do not find")
    duplicates: DuplicatePolicy
    undo: bool = Field(False, description="True if the import keeps the data to undo it")
    resource_key: list[str] = Field(description="Fields that identify a row")
    policy: dict[str, Any]
    file_id: str | None = None
    fetch: FetchOut | None = Field(None, description="Download of the file; null if it was not imported from a URL")
    promoted_from: UUID | None = Field(None, description="The dry run that was promoted to this import")
    promoted_to: UUID | None = Field(None, description="The import that this dry run was promoted to")


class ImportPage(BaseModel):
    """A page of imports, newest first."""

    imports: list[ImportOut]
    next_page: NextPageToken = None


_CSV_EXAMPLE = "email,name\nada@example.com,Ada\n"
_LAYOUT_PROPERTIES: dict[str, dict[str, Any]] = {
    "format": {"$ref": "#/components/schemas/ImportFileFormat"},
    "encoding": {"type": "string", "maxLength": 40},
    "delimiter": {"type": "string", "maxLength": 10},
    "quote": {"type": "string", "maxLength": 1},
    "escape": {"type": "string", "maxLength": 1},
    "line_end": {"type": "string", "maxLength": 10, "description": "`lf`, `crlf` or `cr`"},
    "header": {"type": "boolean"},
    "header_rows": {"type": "integer", "minimum": 0, "maximum": 10},
    "skip_lines": {"type": "integer", "minimum": 0},
    "table": {"type": "integer", "minimum": 1},
    "table_lines": {"type": "integer", "minimum": 0},
    "footer_lines": {"type": "integer", "minimum": 0, "maximum": 1000},
    "comment": {"type": "string", "maxLength": 8},
    "trailing_delimiter": {"type": "boolean"},
    "short_rows": {"$ref": "#/components/schemas/ShortRows"},
    "long_rows": {"$ref": "#/components/schemas/LongRows"},
    "records": {"type": "string", "maxLength": 200},
    "flatten": {"type": "boolean"},
    "compression": {"$ref": "#/components/schemas/ImportCompression"},
    "sheet": {"type": "string", "description": "Sheet of a workbook: its name, or its number from 1"},
    "filename": {"type": "string", "description": "Used to detect the format"},
}
_IMPORT_PROPERTIES: dict[str, dict[str, Any]] = {
    "resource": {"type": "string", "minLength": 1, "maxLength": 200},
    "mode": {"$ref": "#/components/schemas/ImportMode"},
    "validate_only": {"type": "boolean"},
    "duplicates": {"$ref": "#/components/schemas/DuplicatePolicy"},
    "mapping": {"type": "string", "description": "JSON object: column of the file -> field"},
    "translations": {"type": "string", "description": "JSON object: field -> text in the file -> text to import"},
    "key": {"type": "string", "description": "Comma-separated fields, or a JSON list"},
    "spreadsheet_safe": {"type": "boolean", "description": "True if the file was exported with this option"},
    "keep_empty": {"type": "boolean", "description": "Import empty text as text, not as a missing value"},
    "formats": {"type": "string", "description": "JSON object: field -> format of its values"},
    "assume": {"type": "boolean", "description": "Use the more likely format if a column fits two formats"},
    "constants": {"type": "string", "description": "JSON object: field -> value of every row"},
    "computed": {"type": "string", "description": "JSON object: field -> expression"},
    "skip": {"type": "string", "description": "Condition of rows to skip, or a JSON list of conditions"},
    "lookups": {"type": "string", "description": "JSON object: field -> columns of the referenced table"},
    "create_missing": {"type": "string", "description": "Comma-separated fields, or a JSON list"},
    "policy": {"type": "string", "description": "JSON object, see PolicyIn"},
    "priority": {"type": "integer", "minimum": -100, "maximum": 100},
    **_LAYOUT_PROPERTIES,
}
_PREVIEW_PROPERTIES: dict[str, dict[str, Any]] = {
    "rows": {"type": "integer", "minimum": 1, "maximum": 1000},
    "memory": {"type": "boolean", "description": "Complete the options from an earlier import"},
}
_IMPORT_SOURCE_EXAMPLES = {
    "url": {
        "summary": "A file at a URL",
        "value": {"resource": "users", "source": {"url": "https://files.example.com/users.csv.gz"}, "mode": "upsert"},
    },
    "file": {
        "summary": "The file of one of your jobs or exports",
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
    """Document the query parameters of a body that is a file. JSON and form bodies contain them instead."""
    text = "Only if the body is a file"
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
EXAMPLE_FILE_LAYOUT = {"format": "csv", "encoding": "utf-8", "delimiter": ",", "quote": '"', "header": True}
EXAMPLE_FILE_LAYOUT |= {"compression": "none", "line_end": "\n"}
EXAMPLE_COLUMN_MAPPING = {"E-Mail": "email", "name": "name"}
_IMPORT_DETAIL: dict[str, Any] = {
    "rates": {"now_per_s": 0, "average_per_s": 24100.5},
    "effects": {"inserted": 900, "updated": 90, "unchanged": 3},
    "errors": {"email.pattern": 6, "role.enum": 1},
    "rows_by_error": {"email.pattern": 6, "role.enum": 3},
    "dismissed_by_error": {},
    "layout": EXAMPLE_FILE_LAYOUT,
    "columns": ["E-Mail", "name"],
    "mapping": EXAMPLE_COLUMN_MAPPING,
    "duplicates": "error",
    "resource_key": ["email"],
    "policy": {"mode": "continue"},
    "file_id": "3f1c6a0e9b2d4c583f1c6a0e9b2d4c58",
}
EXAMPLE_IMPORT_SOURCE = {"url": "https://files.example.com/users.csv.gz"}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    ImportIn: {"resource": "users", "source": EXAMPLE_IMPORT_SOURCE, "mode": "upsert", "mapping": {"E-Mail": "email"}},
    ImportOut: _IMPORT,
    ImportDetail: _IMPORT | _IMPORT_DETAIL,
    ImportPage: {"imports": [_IMPORT], "next_page": EXAMPLE_NEXT_PAGE},
}
