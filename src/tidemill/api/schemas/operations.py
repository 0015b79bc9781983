"""Bulk actions on items."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AliasChoices, BaseModel, Field, StrictBool, StrictInt
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
from tidemill.domain.page import MAX_NUMBER
from tidemill.domain.status import ItemStatus

Scope = TypeAliasType("Scope", Literal["job", "items"])
OperationVerb = TypeAliasType("OperationVerb", Literal["reprocess", "redrive", "cancel"])
CountFor = TypeAliasType("CountFor", Literal["reprocess", "cancel", "export"])
OperationState = TypeAliasType("OperationState", Literal["running", "done", "failed"])

RESET = "Without it, only items that have attempts left: of failures and of what was not found, as the handler has it"

RANGES_MAX = 100


def _in_order(ends: list[int]) -> list[int]:
    if ends[0] > ends[1]:
        raise ValueError("the first row of a range comes after its last")
    return ends


Place = Annotated[StrictInt, Field(ge=0, le=MAX_NUMBER)]
RowRange = Annotated[list[Place], Field(min_length=2, max_length=2), AfterValidator(_in_order)]
OF_RANGES = "Items by their `seq`: first and last of each range, both included; beside `item_ids`, or instead"
Ranges = Annotated[list[RowRange] | None, Field(max_length=RANGES_MAX, description=OF_RANGES)]
But = Annotated[
    list[ItemId],
    Field(max_length=ITEMS_MAX, validation_alias=AliasChoices("except", "except_"), description="But these"),
]


class ChosenIn(Asked):
    """Items of a job: all that match, or those of `item_ids` and `ranges` that do; but some."""

    key: Key = None
    item_ids: list[ItemId] | None = Field(None, max_length=ITEMS_MAX)
    ranges: Ranges = None
    except_: But = Field(default_factory=list)


class ReprocessIn(ChosenIn):
    """Which items go round again."""

    scope: Scope = Field("job", description="`items` comes with `item_ids`, with `ranges` or with both")
    statuses: StatusList = Field([ItemStatus.FAILED, ItemStatus.NOT_FOUND])
    error_codes: CodeList | None = None
    reset_attempts: StrictBool = Field(True, description=RESET)


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
