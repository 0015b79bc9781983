"""Bulk actions on items."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AliasChoices, BaseModel, Field, StrictBool, StrictInt
from typing_extensions import TypeAliasType

from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.status import ItemStatus
from tidemill.rest.schema_types import (
    FROM_ALIASES,
    ITEM_IDS_MAX,
    AfterCursor,
    ErrorCodeList,
    ItemIdText,
    ItemStatusList,
    JobFilter,
    KeyFilter,
    KindFilter,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
    Timestamp,
    UserFilter,
)

ReprocessScope = TypeAliasType("ReprocessScope", Literal["job", "items"])
OperationVerb = TypeAliasType("OperationVerb", Literal["reprocess", "redrive", "cancel"])
CountFor = TypeAliasType("CountFor", Literal["reprocess", "cancel", "export"])
OperationState = TypeAliasType("OperationState", Literal["running", "done", "failed"])

RESET_ATTEMPTS_DESCRIPTION = (
    "Without it, only items that have attempts left: of failures and of what was not found, as the handler has it"
)

ROW_RANGES_MAX = 100


def _check_range_order(ends: list[int]) -> list[int]:
    if ends[0] > ends[1]:
        raise ValueError("the first row of a range comes after its last")
    return ends


RowNumber = Annotated[StrictInt, Field(ge=0, le=BIGINT_SAFE_MAX)]
RowRange = Annotated[list[RowNumber], Field(min_length=2, max_length=2), AfterValidator(_check_range_order)]
ROW_RANGES_DESCRIPTION = (
    "Items by their `seq`: first and last of each range, both included; beside `item_ids`, or instead"
)
RowRanges = Annotated[list[RowRange] | None, Field(max_length=ROW_RANGES_MAX, description=ROW_RANGES_DESCRIPTION)]
ExcludedItemIds = Annotated[
    list[ItemIdText],
    Field(max_length=ITEM_IDS_MAX, validation_alias=AliasChoices("except", "except_"), description="But these"),
]


class ItemChoiceIn(RequestModel):
    """Items of a job: all that match, or those of `item_ids` and `ranges` that do; but some."""

    key: KeyFilter = None
    item_ids: list[ItemIdText] | None = Field(None, max_length=ITEM_IDS_MAX)
    ranges: RowRanges = None
    except_: ExcludedItemIds = Field(default_factory=list)


class ReprocessIn(ItemChoiceIn):
    """Which items go round again."""

    scope: ReprocessScope = Field("job", description="`items` comes with `item_ids`, with `ranges` or with both")
    statuses: ItemStatusList = Field([ItemStatus.FAILED, ItemStatus.NOT_FOUND])
    error_codes: ErrorCodeList | None = None
    reset_attempts: StrictBool = Field(True, description=RESET_ATTEMPTS_DESCRIPTION)


class SelectionIn(ItemChoiceIn):
    """Which items of a job, whatever became of them."""

    statuses: ItemStatusList = Field([])
    error_codes: ErrorCodeList | None = Field(None, description="Failures with these codes, and nothing else")


class CancelItemsIn(ItemChoiceIn):
    """Which of the items that wait are cancelled."""

    statuses: ItemStatusList = Field([ItemStatus.PENDING, ItemStatus.RETRY_WAIT])


class CountIn(SelectionIn):
    """What is to be done with how many."""

    to: CountFor = "export"


class CountOut(BaseModel):
    """How many items are meant, as the service counts them now."""

    items: int
    is_complete: bool = Field(description="False: these and perhaps more, it was not counted to the end")


class DeadLetterFilter(RequestModel):
    """Dead letters that have all of these."""

    job_id: JobFilter = None
    kind: KindFilter = None
    error_codes: ErrorCodeList | None = None
    from_: Timestamp | None = Field(None, validation_alias=FROM_ALIASES, description="Failed then or later")
    to: Timestamp | None = Field(None, description="Failed before then")


class RedriveIn(RequestModel):
    """Dead letters by predicate: all that match a filter, but some; or these."""

    all_matching: StrictBool = False
    filter: DeadLetterFilter = DeadLetterFilter()
    except_: list[ItemIdText] = Field([], max_length=ITEM_IDS_MAX, validation_alias=AliasChoices("except", "except_"))
    item_ids: list[ItemIdText] | None = Field(None, max_length=ITEM_IDS_MAX, description="Instead of all_matching")
    reset_attempts: StrictBool = Field(True, description=RESET_ATTEMPTS_DESCRIPTION)
    user_id: UserFilter = "me"


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
    next_page: NextPageToken = None


class OperationQuery(QueryModel):
    user_id: UserFilter = "me"
    page_size: PageSize = 50
    after: AfterCursor = None
