"""HTTP routes of quarantined messages."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType

from tidemill.core.errors import InvalidInput
from tidemill.dispatch import quarantine
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep
from tidemill.rest.schema_types import AfterCursor, NextPageToken, PageSize, QueryModel

MessageSource = TypeAliasType("MessageSource", Literal["received", "refused"])


class QuarantinedMessageOut(BaseModel):
    """A quarantined message. No work is lost, because all state is in the database."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    source: MessageSource = Field(
        description="`received`: a worker received the message; `refused`: the broker rejected the message"
    )
    reason: str = Field(description="All problems found in the message")
    message: str = Field(description="The first 4 kB of the message")
    size: int = Field(description="Size of the complete message in bytes")
    job_id: UUID | None = Field(description="The job that the hint names, if the message is a hint")
    worker: str | None = Field(description="The worker that quarantined the message")


class QuarantinePage(BaseModel):
    """A page of quarantined messages, newest first."""

    items: list[QuarantinedMessageOut]
    next_page: NextPageToken = None


class QuarantineQuery(QueryModel):
    page_size: PageSize = 100
    after: AfterCursor = None


class QuarantineClearedOut(BaseModel):
    removed: int


router = APIRouter(tags=["service"], route_class=AuthenticatedRoute)
NewestSeenId = Annotated[
    int | None, Query(ge=0, le=2**63 - 1, description="Delete messages up to this ID; by default, all messages")
]


@router.get("/quarantine", response_model_exclude_unset=True, **build_route_options(Permission.ADMIN))
async def list_quarantine(query: Annotated[QuarantineQuery, Query()], db: DatabaseDep) -> QuarantinePage:
    """List broker messages that are not valid hints, and hints that the broker rejected, newest first."""
    before = _parse_quarantine_cursor(dependencies.decode_cursor(query.after))
    messages = await db.read(quarantine.list_quarantined_messages, query.page_size + 1, before)
    shown, more = messages[: query.page_size], messages[query.page_size :]
    after = (shown[-1].id,) if more else None
    return QuarantinePage.model_validate(
        {"items": shown} | dependencies.build_next_page_dict(after), from_attributes=True
    )


@router.delete("/quarantine", **build_route_options(Permission.ADMIN))
async def clear_quarantine(db: DatabaseDep, up_to: NewestSeenId = None) -> QuarantineClearedOut:
    """Delete all quarantined messages, or only the messages up to the given ID."""
    return QuarantineClearedOut(removed=await db.run(quarantine.delete_quarantined_messages, up_to))


def _parse_quarantine_cursor(cursor: tuple[object, ...] | None) -> int | None:
    match cursor:
        case None:
            return None
        case (int() as before,) if not isinstance(before, bool) and 0 <= before < 1 << 63:
            return before
    raise InvalidInput("after: the cursor does not belong to this list")
