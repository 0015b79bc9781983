"""Request and response models of bulk operations on items."""

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
    "Reset the attempt count. If false, only items with attempts left, by the limits of their handler, run again"
)

ROW_RANGES_MAX = 100


def _check_range_order(ends: list[int]) -> list[int]:
    if ends[0] > ends[1]:
        raise ValueError("the first item of a range must not be after its last")
    return ends


RowNumber = Annotated[StrictInt, Field(ge=0, le=BIGINT_SAFE_MAX)]
RowRange = Annotated[list[RowNumber], Field(min_length=2, max_length=2), AfterValidator(_check_range_order)]
ROW_RANGES_DESCRIPTION = (
    "Ranges of `seq`, each with its first and last item, both included; in addition to `item_ids`, or instead"
)
RowRanges = Annotated[list[RowRange] | None, Field(max_length=ROW_RANGES_MAX, description=ROW_RANGES_DESCRIPTION)]
ExcludedItemIds = Annotated[
    list[ItemIdText],
    Field(max_length=ITEM_IDS_MAX, validation_alias=AliasChoices("except", "except_"), description="Items to exclude"),
]


class ItemChoiceIn(RequestModel):
    """A selection of items: all that match, or the matching ones of `item_ids` and `ranges`, without `except`."""

    key: KeyFilter = None
    item_ids: list[ItemIdText] | None = Field(None, max_length=ITEM_IDS_MAX)
    ranges: RowRanges = None
    except_: ExcludedItemIds = Field(default_factory=list)


class ReprocessIn(ItemChoiceIn):
    """Items to run again."""

    scope: ReprocessScope = Field("job", description="`items` requires `item_ids`, `ranges` or both")
    statuses: ItemStatusList = Field([ItemStatus.FAILED, ItemStatus.NOT_FOUND])
    error_codes: ErrorCodeList | None = None
    reset_attempts: StrictBool = Field(True, description=RESET_ATTEMPTS_DESCRIPTION)


class SelectionIn(ItemChoiceIn):
    """A selection of items of a job with any status."""

    statuses: ItemStatusList = Field([])
    error_codes: ErrorCodeList | None = Field(None, description="Only failures with these error codes")


class CancelItemsIn(ItemChoiceIn):
    """Waiting items to cancel."""

    statuses: ItemStatusList = Field([ItemStatus.PENDING, ItemStatus.RETRY_WAIT])


class CountIn(SelectionIn):
    """A selection of items to count, and the operation to count them for."""

    to: CountFor = "export"


class CountOut(BaseModel):
    """The number of selected items."""

    items: int
    is_complete: bool = Field(description="False if counting stopped early: there may be more items")


class DeadLetterFilter(RequestModel):
    """A filter for dead letters that match all conditions."""

    job_id: JobFilter = None
    kind: KindFilter = None
    error_codes: ErrorCodeList | None = None
    from_: Timestamp | None = Field(None, validation_alias=FROM_ALIASES, description="Failed at or after this time")
    to: Timestamp | None = Field(None, description="Failed before this time")


class RedriveIn(RequestModel):
    """Dead letters to retry: all that match `filter`, without `except`; or those in `item_ids`."""

    all_matching: StrictBool = False
    filter: DeadLetterFilter = DeadLetterFilter()
    except_: list[ItemIdText] = Field([], max_length=ITEM_IDS_MAX, validation_alias=AliasChoices("except", "except_"))
    item_ids: list[ItemIdText] | None = Field(None, max_length=ITEM_IDS_MAX, description="Instead of all_matching")
    reset_attempts: StrictBool = Field(True, description=RESET_ATTEMPTS_DESCRIPTION)
    user_id: UserFilter = "me"


class OperationOut(BaseModel):
    """A bulk operation and its progress."""

    id: UUID
    verb: OperationVerb
    state: OperationState
    items: int = Field(description="Items requeued or cancelled so far")
    user_id: int
    job_id: UUID | None = None
    predicate: dict[str, Any]
    error: str | None = None
    request_id: str | None = None
    created_at: datetime
    updated_at: datetime


class OperationPage(BaseModel):
    """A page of operations, newest first."""

    operations: list[OperationOut]
    next_page: NextPageToken = None


class OperationQuery(QueryModel):
    user_id: UserFilter = "me"
    page_size: PageSize = 50
    after: AfterCursor = None
