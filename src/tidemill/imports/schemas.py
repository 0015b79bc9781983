"""Request and response models of imports, and OpenAPI descriptions of bodies that are read as a stream."""

from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, field_validator
from typing_extensions import TypeAliasType

from tidemill.core.status import JobStatus
from tidemill.imports.use_cases import PREVIEW_ROWS_MAX
from tidemill.jobs.schemas import FetchOut, ItemCountsOut, NonNegativeInt, PolicyIn, RatesOut
from tidemill.rest.problems import FormatExample, FormatFindingOut
from tidemill.rest.schema_types import (
    BINARY_CONTENT,
    BINARY_SCHEMA,
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    AfterCursor,
    ErrorCodeFilter,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
    ValueType,
)

ImportMode = TypeAliasType("ImportMode", Literal["insert", "upsert"])
DuplicatePolicy = TypeAliasType("DuplicatePolicy", Literal["first", "last", "error"])
ImportFileFormat = TypeAliasType("ImportFileFormat", Literal["csv", "tsv", "ndjson", "json", "xlsx", "parquet"])
ShortRows = TypeAliasType("ShortRows", Literal["report", "pad"])
LongRows = TypeAliasType("LongRows", Literal["report", "cut"])
RepairRuleType = TypeAliasType("RepairRuleType", Literal["replace", "translate", "split", "format", "default", "drop"])
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
    compression: ImportCompression | None = None
    sheet: int | str | None = Field(None, description="Sheet of a workbook: its name, or its number from 1")


class ImportSourceIn(RequestModel):
    """Location of the file: a URL, a stored file, or a file in a folder of TIDEMILL_SOURCES. Set exactly one."""

    url: str | None = Field(None, min_length=1, max_length=4_000, description="A worker downloads this file")
    file_id: str | None = Field(None, pattern=r"^[0-9a-f]{32}$", description="The file of one of your jobs or exports")
    name: str | None = Field(None, max_length=100, description="Name of a folder; requires `path`")
    path: str | None = Field(None, max_length=1_000, description="Path of the file in the folder")


class ImportIn(LayoutIn):
    """The target, the source and the options of an import."""

    creates_job: ClassVar[bool] = True
    resource: str = Field(
        min_length=1, max_length=200, description="Name of a declared resource; admins can also use the name of a table"
    )
    source: ImportSourceIn | None = Field(None, description="Required if the request contains no file")
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
    assume: bool = Field(
        False, description="Take the likelier format of columns that can be read in two ways, instead of an error"
    )
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


class PreviewIn(ImportIn):
    """The options of an import, and the number of rows to preview."""

    creates_job: ClassVar[bool] = False
    memory: bool = Field(True, description="Complete the options from an earlier import of a file with such columns")
    rows: int = Field(20, ge=1, le=PREVIEW_ROWS_MAX)


class RowError(BaseModel):
    """One error in a row."""

    row: int = Field(description="Number of the row, from 1")
    line: int = Field(description="Line in the file")
    byte_offset: int | None = Field(
        None, description="Byte offset of the first byte that is invalid in the file's encoding"
    )
    field: str | None = None
    value: Any = Field(None, description="The invalid value, truncated")
    code: str | None = None
    reason: str | None = None
    retryable: bool = False


class RowOut(BaseModel):
    """A row and all of its errors."""

    row: int
    line: int
    errors: list[RowError]
    input: Any = Field(description="The row with its newest fix; a string if the row could not be parsed")


class TargetFieldOut(BaseModel):
    """A field that a column can be mapped to."""

    name: str
    type: ValueType
    required: bool = Field(description="True if every new row must have a value, because the column has no default")
    allowed: list[str] = Field([], description="Allowed values, if the field is an enumeration")


class LayoutFindingOut(BaseModel):
    """An option of the layout that was detected, and why. Below a confidence of 0.6, an import requires the option."""

    option: str = Field(description="The option; `columns` lists column names that were derived")
    value: str | int | bool
    confidence: float = Field(ge=0, le=1)
    reason: str


class RejectedValueOut(BaseModel):
    """A text in the file that is not a valid value of its field. A translation can replace it."""

    value: str
    rows: int = Field(description="Number of rows with this text, among the checked rows")
    reason: str


class ProbableRenameOut(BaseModel):
    """A new column that may be a column of the earlier import under another name."""

    column: str
    before: str = Field(description="The missing column")
    field: str = Field(description="The field of the missing column")
    reason: str


class RememberedRequest(BaseModel):
    """The options of an import, completed from a remembered mapping. Send them with the import."""

    model_config = ConfigDict(extra="allow")

    mapping: dict[str, str] = Field({}, description="Column of the file -> field")
    translations: dict[str, dict[str, str]] = {}


class RememberedOut(BaseModel):
    """The remembered mapping that completed the options of a preview, and how the columns differ."""

    id: int
    owner: str
    resource: str
    shared: bool
    uses: int
    job_key: str = Field(description="The last import that used the mapping")
    used_at: datetime
    exact: bool = Field(description="True if the file has the same columns")
    new: list[str] = Field(description="Columns that the earlier file did not have")
    missing: list[str] = Field(description="Imported columns of the earlier file that this file does not have")
    renamed: list[ProbableRenameOut] = Field(description="Probable renames. They are not applied")
    request: RememberedRequest
    layout: dict[str, Any] = Field(description="The layout options of the request, completed from the mapping")


class ValueFormatOut(BaseModel):
    """A format that values of a field can have."""

    name: str = Field(examples=["decimal-comma"])
    types: list[ValueType] = Field(description="Types of the fields that can have the format")
    description: str
    example: FormatExample


class PreviewOut(BaseModel):
    """The layout of a file, its column mapping, and the errors in its first rows. The file is not stored."""

    resource_type: str
    layout: dict[str, Any]
    findings: list[LayoutFindingOut] = Field([], description="The detected options of the layout")
    columns: list[str]
    mapping: dict[str, str] = Field(
        description="Column -> field: the request's mapping, and each column that has the same name as a field"
    )
    unknown: list[str] = Field(description="Columns that match no field")
    missing: list[str] = Field(description="Required fields without a column")
    problems: list[str] = Field(description="Why the import would be rejected; empty if it would be accepted")
    fields: list[TargetFieldOut] = Field([], description="Fields of the resource, in order")
    remembered: RememberedOut | None = Field(None, description="The remembered mapping that completed the options")
    formats: list[FormatFindingOut] = Field(
        [], description="The detected and the requested formats of columns. Other columns are in plain notation"
    )
    known_formats: list[ValueFormatOut] = Field([], description="The formats to choose from")
    rejected_values: dict[str, list[RejectedValueOut]] = Field(
        {}, description="Field -> invalid texts of its column in the first 1,000 rows, the most frequent first"
    )
    rows: list[RowOut] = Field(
        description="The first rows, with the errors that can be found without a query of the table"
    )


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
    assumed: list[str] = Field([], description="Fields whose values fit two formats, and whose format is the likelier")
    duplicates: DuplicatePolicy
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


class RowErrorQuery(QueryModel):
    error_codes: ErrorCodeFilter | None = None
    include_dismissed: bool = Field(True, description="False omits rows that a user dismissed")
    page_size: PageSize = 100
    after: AfterCursor = None


class RowPage(BaseModel):
    """A page of failed rows in file order. A page can have fewer rows than requested and still not be the last."""

    rows: list[RowOut]
    next_page: NextPageToken = None


class RepairRuleIn(RequestModel):
    """A rule. `replace` uses `find`, `replacement` and `whole`; each other field names the type that uses it."""

    type: RepairRuleType
    find: str | None = Field(None, description="Text to replace wherever it occurs in the value")
    replacement: str | None = Field(None, description="The new text; default: empty")
    whole: bool | None = Field(None, description="Replace only values that are exactly this text")
    values: dict[str, str | None] | None = Field(None, description="`translate`: value -> new value")
    separator: str | None = Field(None, description="`split`: the value is split where it occurs first")
    into: list[str] | None = Field(None, description="`split`: the columns of the two parts")
    format: str | None = Field(None, description="`format`: the value format of the text, such as `DD.MM.YYYY`")
    value: str | StrictInt | StrictFloat | StrictBool | None = Field(
        None, description="`default`: set where the value is empty or invalid"
    )


class RepairIn(RequestModel):
    """A rule for all rows of an import that have the same error."""

    cause: str = Field(min_length=1, max_length=200, description="Error code (`field.rule`), as in `rows_by_error`")
    rule: RepairRuleIn
    column: str | None = Field(
        None, max_length=1_000, description="Column of the file that the rule reads; default: the column of the error"
    )


class RepairExampleOut(BaseModel):
    """A row that the rule changes."""

    row: int
    line: int
    before: dict[str, Any] = Field(description="The changed columns before the rule")
    after: dict[str, Any]
    errors: list[RowError] = Field(description="The errors that remain")


class RepairPreviewOut(BaseModel):
    """What a repair would do. All numbers except `rows` are about the first `checked` rows."""

    rows: int = Field(description="Failed rows with this error, without dismissed ones")
    column: str | None
    checked: int = Field(description="Number of rows that were checked")
    changed: int = Field(description="Checked rows that the rule changes")
    valid: int = Field(description="Checked rows that are valid after the change")
    too_large: int = Field(description="Checked rows that would exceed the size limit of a row; they stay unchanged")
    examples: list[RepairExampleOut]


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
    "assume": {"type": "boolean", "description": "Take the likelier format of columns that can be read in two ways"},
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
_FILE_LAYOUT = {"format": "csv", "encoding": "utf-8", "delimiter": ",", "quote": '"', "header": True}
_FILE_LAYOUT |= {"compression": "none", "line_end": "\n"}
_LAYOUT_FINDING = {"option": "delimiter", "value": ",", "confidence": 0.99}
_LAYOUT_FINDING |= {"reason": "With the delimiter comma, 100% of 101 rows have 2 fields"}
_COLUMN_MAPPING = {"E-Mail": "email", "name": "name"}
_IMPORT_DETAIL: dict[str, Any] = {
    "rates": {"now_per_s": 0, "average_per_s": 24100.5},
    "effects": {"inserted": 900, "updated": 90, "unchanged": 3},
    "errors": {"email.pattern": 6, "role.enum": 1},
    "rows_by_error": {"email.pattern": 6, "role.enum": 3},
    "dismissed_by_error": {},
    "layout": _FILE_LAYOUT,
    "columns": ["E-Mail", "name"],
    "mapping": _COLUMN_MAPPING,
    "duplicates": "error",
    "resource_key": ["email"],
    "policy": {"mode": "continue"},
    "file_id": "3f1c6a0e9b2d4c583f1c6a0e9b2d4c58",
}
_ROW_ERROR = {"row": 7, "line": 8, "field": "email", "value": "ada", "code": "email.pattern"}
_ROW_ERROR |= {"reason": "must be an e-mail address", "retryable": False}
_FAILED_ROW = {"row": 7, "line": 8, "errors": [_ROW_ERROR], "input": {"E-Mail": "ada", "name": "Ada"}}
_IMPORT_SOURCE = {"url": "https://files.example.com/users.csv.gz"}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    ImportIn: {"resource": "users", "source": _IMPORT_SOURCE, "mode": "upsert", "mapping": {"E-Mail": "email"}},
    PreviewIn: {"resource": "users", "source": _IMPORT_SOURCE, "rows": 50},
    PreviewOut: {
        "resource_type": "users",
        "layout": _FILE_LAYOUT,
        "findings": [_LAYOUT_FINDING],
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
    RepairIn: {"cause": "country.enum", "rule": {"type": "translate", "values": {"Germany": "DE", "France": "FR"}}},
    RepairPreviewOut: {
        "rows": 4120,
        "column": "country",
        "checked": 1000,
        "changed": 980,
        "valid": 975,
        "too_large": 0,
        "examples": [{"row": 7, "line": 8, "before": {"country": "Germany"}, "after": {"country": "DE"}, "errors": []}],
    },
    RowPage: {"rows": [_FAILED_ROW], "next_page": EXAMPLE_NEXT_PAGE},
}
