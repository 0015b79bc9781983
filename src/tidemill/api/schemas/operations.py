"""Bulk actions on items."""

from datetime import datetime
from typing import Annotated, Any, Literal
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
    Key,
    Kind,
    Moment,
    NextPage,
    OfJob,
    PageSize,
    Query,
    StatusList,
    UserId,
)
from tidemill.domain.status import ItemStatus

Scope = TypeAliasType("Scope", Literal["job", "items"])
OperationVerb = TypeAliasType("OperationVerb", Literal["reprocess", "redrive", "cancel"])
CountFor = TypeAliasType("CountFor", Literal["reprocess", "cancel", "export"])
OperationState = TypeAliasType("OperationState", Literal["running", "done", "failed"])

RESET = "Without it, only items that have attempts left: of failures and of what was not found, as the handler has it"

But = Annotated[
    list[ItemId],
    Field(max_length=ITEMS_MAX, validation_alias=AliasChoices("except", "except_"), description="But these"),
]


class ReprocessIn(Asked):
    """Which items go round again."""

    scope: Scope = "job"
    item_ids: list[ItemId] | None = Field(None, max_length=ITEMS_MAX, description="With scope `items`")
    statuses: StatusList = Field([ItemStatus.FAILED, ItemStatus.NOT_FOUND])
    error_codes: CodeList | None = None
    key: Key = None
    except_: But = Field(default_factory=list)
    reset_attempts: StrictBool = Field(True, description=RESET)


class ChosenIn(Asked):
    """Items of a job: all that match, or those of `item_ids` that do; but some."""

    key: Key = None
    item_ids: list[ItemId] | None = Field(None, max_length=ITEMS_MAX)
    except_: But = Field(default_factory=list)


class SelectionIn(ChosenIn):
    """Which items of a job, whatever became of them."""

    statuses: StatusList = Field([])
    error_codes: CodeList | None = Field(None, description="Failures with these codes, and nothing else")


class CancelItemsIn(ChosenIn):
    """Which of the items that wait are cancelled."""

    statuses: StatusList = Field([ItemStatus.PENDING, ItemStatus.RETRY_WAIT])


class CountIn(SelectionIn):
    """What is to be done with how many."""

    to: CountFor = "export"


class CountOut(BaseModel):
    """How many items are meant, as the service counts them now."""

    items: int
    is_complete: bool = Field(description="False: these and perhaps more, it was not counted to the end")


class DeadLetterFilter(Asked):
    """Dead letters that have all of these."""

    job_id: OfJob = None
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
    reset_attempts: StrictBool = Field(True, description=RESET)
    user_id: UserId = "me"


class OperationOut(BaseModel):
    """A bulk action: who wanted what, and how far it is."""

    id: UUID
    verb: OperationVerb
    state: OperationState
    items: int = Field(description="Sent round, or cancelled, so far")
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
