"""Bulk actions on items."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import AliasChoices, BaseModel, Field, StrictBool
from typing_extensions import TypeAliasType

from tidemill.api.schemas.base import (
    FROM,
    ITEMS_MAX,
    After,
    Asked,
    CodeList,
    ItemId,
    Kind,
    Moment,
    NextPage,
    PageSize,
    Query,
    StatusList,
    UserId,
)
from tidemill.domain.status import ItemStatus

Scope = TypeAliasType("Scope", Literal["job", "items"])
OperationVerb = TypeAliasType("OperationVerb", Literal["reprocess", "redrive"])
OperationState = TypeAliasType("OperationState", Literal["running", "done", "failed"])


class ReprocessIn(Asked):
    """Which items go round again."""

    scope: Scope = "job"
    item_ids: list[ItemId] | None = Field(None, max_length=ITEMS_MAX, description="With scope `items`")
    statuses: StatusList = Field([ItemStatus.FAILED, ItemStatus.NOT_FOUND])
    error_codes: CodeList | None = None
    except_: list[ItemId] = Field(
        [], max_length=ITEMS_MAX, validation_alias=AliasChoices("except", "except_"), description="But these"
    )
    reset_attempts: StrictBool = Field(True, description="Without it, only items that have attempts left")


class DeadLetterFilter(Asked):
    """Dead letters that have all of these."""

    job_id: UUID | None = None
    kind: Kind = None
    error_codes: CodeList | None = None
    from_: Moment | None = Field(None, validation_alias=FROM, description="Failed then or later")
    to: Moment | None = Field(None, description="Failed before then")


class RedriveIn(Asked):
    """Dead letters by predicate: all that match a filter, but some; or these."""

    all_matching: StrictBool = False
    filter: DeadLetterFilter = DeadLetterFilter()
    except_: list[ItemId] = Field([], max_length=ITEMS_MAX, validation_alias=AliasChoices("except", "except_"))
    item_ids: list[ItemId] | None = Field(None, max_length=ITEMS_MAX, description="Instead of all_matching")
    reset_attempts: StrictBool = Field(True, description="Without it, only items that have attempts left")
    user_id: UserId = "me"


class OperationOut(BaseModel):
    """A bulk action: who wanted what, and how far it is."""

    id: UUID
    verb: OperationVerb
    state: OperationState
    items: int = Field(description="Sent round so far")
    user_id: int
    job_id: UUID | None = None
    predicate: dict[str, Any]
    error: str | None = None
    request_id: str | None = None
    created_at: datetime
    updated_at: datetime


class OperationPage(BaseModel):
    """The newest first."""

    operations: list[OperationOut]
    next_page: NextPage = None


class OperationQuery(Query):
    user_id: UserId = "me"
    page_size: PageSize = 50
    after: After = None
