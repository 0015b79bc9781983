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
OperationVerb = TypeAliasType(
    "OperationVerb", Literal["reprocess", "redrive", "cancel", "dismiss", "restore", "repair", "undo", "redo"]
)
CountFor = TypeAliasType("CountFor", Literal["reprocess", "cancel", "export"])
OperationState = TypeAliasType("OperationState", Literal["running", "done", "failed", "cancelled"])

RESET_ATTEMPTS_DESCRIPTION = (
    "Reset the attempt counts of the items. If false, failures with a permanent error do not run again"
)

ROW_RANGES_MAX = 100


def _check_range_order(ends: list[int]) -> list[int]:
    if ends[0] > ends[1]:
        raise ValueError("the first item of a range must not be after its last item")
    return ends


RowNumber = Annotated[StrictInt, Field(ge=0, le=BIGINT_SAFE_MAX)]
RowRange = Annotated[list[RowNumber], Field(min_length=2, max_length=2), AfterValidator(_check_range_order)]
ROW_RANGES_DESCRIPTION = (
    "Ranges of `seq`: the first and the last item of each range, both included. You can combine them with `item_ids`"
)
RowRanges = Annotated[list[RowRange] | None, Field(max_length=ROW_RANGES_MAX, description=ROW_RANGES_DESCRIPTION)]
ExcludedItemIds = Annotated[
    list[ItemIdText],
    Field(max_length=ITEM_IDS_MAX, validation_alias=AliasChoices("except", "except_"), description="Items to exclude"),
]


class ItemChoiceIn(RequestModel):
    """A selection of items: all matching items, or the matching items in `item_ids` and `ranges`, minus `except`."""

    key: KeyFilter = None
    item_ids: list[ItemIdText] | None = Field(None, max_length=ITEM_IDS_MAX)
    ranges: RowRanges = None
    except_: ExcludedItemIds = Field(default_factory=list)


class ReprocessIn(ItemChoiceIn):
    """Items to run again."""

    scope: ReprocessScope = Field("job", description="`items` requires `item_ids`, `ranges` or both")
    statuses: ItemStatusList = Field([ItemStatus.FAILED, ItemStatus.NOT_FOUND])
    error_codes: ErrorCodeList | None = Field(None, description="Only failures with these error codes")
    reset_attempts: StrictBool = Field(True, description=RESET_ATTEMPTS_DESCRIPTION)


class SelectionIn(ItemChoiceIn):
    """A selection of a job's items. Without `statuses`, items of every status are selected."""

    statuses: ItemStatusList = Field([])
    error_codes: ErrorCodeList | None = Field(None, description="Only failures with these error codes")


class CancelItemsIn(ItemChoiceIn):
    """Waiting items to cancel."""

    statuses: ItemStatusList = Field([ItemStatus.PENDING, ItemStatus.RETRY_WAIT])


class CountIn(SelectionIn):
    """A selection of items to count, and the operation to count them for."""

    to: CountFor = Field(
        "export", description="With `reprocess` and without `statuses`, items that failed or were not found are counted"
    )
    reset_attempts: StrictBool = Field(True, description="As in the request to reprocess the items")


class CountOut(BaseModel):
    """The number of selected items."""

    items: int
    is_complete: bool = Field(description="False if counting stopped early: there may be more items")


FailureCategory = TypeAliasType("FailureCategory", Literal["handler", "invalid_row", "dry_run"])
CATEGORY_DESCRIPTION = (
    "Only handler failures (`handler`), invalid import rows (`invalid_row`) or dry-run rows (`dry_run`)"
)
CategoryFilter = Annotated[FailureCategory | None, Field(description=CATEGORY_DESCRIPTION)]
FailureGroupFilter = Annotated[
    Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None,
    Field(description="Only this group, by its `id` in `GET /v1/dead-letters/groups`"),
]


class DeadLetterFilter(RequestModel):
    """Conditions for dead letters. An item must match all of them."""

    job_id: JobFilter = None
    kind: KindFilter = None
    error_codes: ErrorCodeList | None = None
    category: CategoryFilter = None
    group: FailureGroupFilter = None
    from_: Timestamp | None = Field(
        None, validation_alias=FROM_ALIASES, description="Only items that failed at or after this time"
    )
    to: Timestamp | None = Field(None, description="Only items that failed before this time")


class DeadLetterSelectionIn(RequestModel):
    """A selection of dead letters: all that match `filter` except those in `except`, or those in `item_ids`."""

    all_matching: StrictBool = False
    filter: DeadLetterFilter = DeadLetterFilter()
    except_: list[ItemIdText] = Field([], max_length=ITEM_IDS_MAX, validation_alias=AliasChoices("except", "except_"))
    item_ids: list[ItemIdText] | None = Field(
        None, max_length=ITEM_IDS_MAX, description="The items to select, instead of all_matching"
    )
    user_id: UserFilter = "me"


class RedriveIn(DeadLetterSelectionIn):
    """Dead letters to retry. A filter does not match dismissed items."""

    reset_attempts: StrictBool = Field(True, description=RESET_ATTEMPTS_DESCRIPTION)


class RetryForecastOut(BaseModel):
    """What a retry of dead letters will probably do. Each item counts once, under the first reason that applies."""

    dry_run: int = Field(description="Rows of dry runs: a retry checks the row again and writes nothing")
    invalid_row: int = Field(description="Invalid rows of imports: they fail again unless the row was fixed")
    no_worker: int = Field(description="Items whose kind no running worker handles: they wait for a worker")
    poison: int = Field(description="Items that crashed their process three times: they may crash it again")
    not_retryable: int = Field(description="Items whose handler declared the error permanent: they fail again")
    retryable: int = Field(description="Other items: a retry may succeed")
    is_complete: bool = Field(description="False if only the newest 10,000 matching items were classified")


class OperationOut(BaseModel):
    """A bulk operation and its progress."""

    id: UUID
    verb: OperationVerb
    state: OperationState
    items: int = Field(description="Items requeued, cancelled, dismissed or restored so far, or rows undone or redone")
    unchanged: int = Field(0, description="Rows that the rule of a repair, or an undo, did not change")
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
