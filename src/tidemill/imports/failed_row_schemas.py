"""Request and response models of failed rows and of the repairs that fix them."""

from typing import Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictFloat, StrictInt
from typing_extensions import TypeAliasType

from tidemill.rest.schema_types import (
    EXAMPLE_NEXT_PAGE,
    AfterCursor,
    ErrorCodeFilter,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
)

RepairRuleType = TypeAliasType("RepairRuleType", Literal["replace", "translate", "split", "format", "default", "drop"])


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


_ROW_ERROR = {"row": 7, "line": 8, "field": "email", "value": "ada", "code": "email.pattern"}
_ROW_ERROR |= {"reason": "must be an e-mail address", "retryable": False}
EXAMPLE_FAILED_ROW = {"row": 7, "line": 8, "errors": [_ROW_ERROR], "input": {"E-Mail": "ada", "name": "Ada"}}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
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
    RowPage: {"rows": [EXAMPLE_FAILED_ROW], "next_page": EXAMPLE_NEXT_PAGE},
}
