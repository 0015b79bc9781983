"""Request and response models of previews of imports."""

from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tidemill.imports.failed_row_schemas import EXAMPLE_FAILED_ROW, RowOut
from tidemill.imports.import_preview import PREVIEW_ROWS_MAX
from tidemill.imports.schemas import EXAMPLE_COLUMN_MAPPING, EXAMPLE_FILE_LAYOUT, EXAMPLE_IMPORT_SOURCE, ImportIn
from tidemill.rest.problems import FormatExample, FormatFindingOut
from tidemill.rest.schema_types import (
    ValueType,
)


class PreviewIn(ImportIn):
    """The options of an import, and the number of rows to preview."""

    creates_job: ClassVar[bool] = False
    memory: bool = Field(
        True, description="Complete the options from an earlier import of a file with the same or similar columns"
    )
    rows: int = Field(20, ge=1, le=PREVIEW_ROWS_MAX)


class TargetFieldOut(BaseModel):
    """A field that a column can be mapped to."""

    name: str
    type: ValueType
    required: bool = Field(description="True if every new row must have a value, because the column has no default")
    allowed: list[str] = Field([], description="Allowed values, if the field is an enumeration")
    closed: bool = Field(False, description="True if the import sets the field itself: no column can be mapped to it")


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


class PreviewRowOut(RowOut):
    """A row of a preview with all of its errors."""

    computed: dict[str, str | None] = Field({}, description="Computed field -> value")
    skipped: str | None = Field(None, description="Why the import would skip the row")


class LookupValuesOut(BaseModel):
    """Numbers of different values of a column in the first rows: found, missing, and found in several rows."""

    found: int
    missing: int
    ambiguous: int


class LookupOut(BaseModel):
    """A field that refers to rows of another table, and the columns by which you can look up these rows."""

    field: str
    table: str
    column: str | None = Field(None, description="The column of the file that is mapped to the field")
    by: list[str] = Field(description="The columns by which the rows are looked up; empty if the file has keys")
    create: bool = Field(description="True if the import creates the rows that it does not find")
    columns: list[str] = Field(description="Columns of the referenced table that you may search")
    unique: list[list[str]] = Field(description="The sets of these columns that have a unique index")
    creatable: list[list[str]] = Field(description="The unique sets by which you may create missing rows")
    proposal: str | None = Field(None, description="The only unique text column")
    values: LookupValuesOut | None = Field(None, description="Null if the lookup took too long, or in the own table")


class LookupProposalOut(BaseModel):
    """An unknown column that may name the rows that a field refers to. Nothing is applied."""

    column: str
    field: str
    table: str
    by: str


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
    undo: bool = Field(False, description="Whether the import would keep the data to undo it")
    problems: list[str] = Field(description="Why the import would be rejected; empty if it would be accepted")
    fields: list[TargetFieldOut] = Field([], description="Fields of the resource, in order")
    remembered: RememberedOut | None = Field(None, description="The remembered mapping that completed the options")
    formats: list[FormatFindingOut] = Field(
        [], description="The detected and the requested formats of columns. Other columns are in plain notation"
    )
    lookups: list[LookupOut] = Field([], description="The fields that refer to rows of other tables")
    lookup_proposals: list[LookupProposalOut] = Field([], description="Proposed lookups for unknown columns")
    known_formats: list[ValueFormatOut] = Field([], description="The formats to choose from")
    rejected_values: dict[str, list[RejectedValueOut]] = Field(
        {}, description="Field -> invalid texts of its column in the first 1,000 rows, the most frequent first"
    )
    constants: dict[str, str] = Field({}, description="Field -> value of every row")
    computed: dict[str, str] = Field({}, description="Field -> expression")
    skip: list[str] = Field([], description="Conditions of rows that the import would skip")
    forced_fields: list[str] = Field([], description="Fields that the resource sets itself, for every import")
    forced_skip: list[str] = Field([], description="Those of the conditions that belong to the resource")
    rows: list[PreviewRowOut] = Field(
        description="The first rows, with the errors that can be found without a query of the table, and those of "
        "lookups"
    )


_LAYOUT_FINDING = {"option": "delimiter", "value": ",", "confidence": 0.99}
_LAYOUT_FINDING |= {"reason": "With the delimiter comma, 100% of 101 rows have 2 fields"}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    PreviewIn: {"resource": "users", "source": EXAMPLE_IMPORT_SOURCE, "rows": 50},
    PreviewOut: {
        "resource_type": "users",
        "layout": EXAMPLE_FILE_LAYOUT,
        "findings": [_LAYOUT_FINDING],
        "columns": ["E-Mail", "name"],
        "mapping": EXAMPLE_COLUMN_MAPPING,
        "unknown": [],
        "missing": [],
        "problems": [],
        "rows": [EXAMPLE_FAILED_ROW],
    },
}
