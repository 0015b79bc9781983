"""Items, in lists and whole."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from tidemill.api.schemas.base import EITHER, After, Asked, Codes, ColumnsOf, Key, NextPage, PageSize, Query, Statuses
from tidemill.domain.status import ItemStatus


class ItemError(BaseModel):
    """Why an item failed, was not found, was skipped or is tried again."""

    model_config = ConfigDict(extra="allow")

    row: int | None = Field(None, description="The item's number from 1")
    line: int | None = Field(None, description="In its file")
    field: str | None = None
    value: Any = None
    code: str | None = None
    reason: str | None = None
    attempt: int | None = None
    retryable: bool | None = Field(None, description="Whether sending it round again makes sense")


class ItemOut(BaseModel):
    """An item in a list: its input only in a few words."""

    id: str
    seq: int
    status: ItemStatus
    attempts: int
    updated_at: datetime | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    due_at: datetime | None = Field(None, description="When it is tried again")
    input_summary: Any = Field(None, description="A title, a brand, a key; or the first few fields")
    input: Any = Field(None, description="If `inputs` were asked for, and the columns are theirs")
    result: Any = None
    result_cut: bool = Field(False, description="The result is too long for a list: ask for the item")
    error: ItemError | None = None
    duration_ms: int | None = None
    rev: int | None = Field(None, description="Its newest correction, if somebody corrected it")


class ItemPage(BaseModel):
    """A page of a grid."""

    columns: list[str] = Field(description="What a grid shows of the results, or of the inputs where there are none")
    columns_of: ColumnsOf = Field("result", description="Which of the two these are")
    items: list[ItemOut]
    next_page: NextPage = None


class ItemQuery(Query):
    statuses: Statuses = Field([], validation_alias=EITHER)
    error_codes: Codes | None = None
    key: Key = None
    seq: int | None = Field(None, ge=0, le=2**62, description="Begin here, in order of seq")
    inputs: bool = Field(False, description="Show inputs, where the columns are those of inputs")
    page_size: PageSize = 100
    after: After = None


class FixOut(BaseModel):
    """That somebody corrected an input."""

    rev: int
    by: int = Field(description="Whose correction it is")
    at: datetime


class ItemDetail(BaseModel):
    """An item, whole."""

    id: str
    job_id: UUID
    seq: int
    status: ItemStatus
    attempts: int
    updated_at: datetime | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    due_at: datetime | None = None
    input: Any = Field(description="With the newest correction")
    original: Any = Field(description="As it was submitted")
    fixes: list[FixOut]
    defect: dict[str, Any] | None = Field(None, description="Why its record could not be read")
    result: Any = None
    normalized: Any = None
    error: ItemError | None = None
    duration_ms: int | None = None
    batch: dict[str, Any] | None = Field(None, description="The open batch it is in")


class FixIn(Asked):
    """A correction."""

    input: Any = Field(description="The whole input, corrected")


class Fixed(BaseModel):
    """The number of the correction."""

    rev: int
