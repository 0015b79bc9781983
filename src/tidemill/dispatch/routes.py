"""Messages of the broker in quarantine."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType

from tidemill.core.errors import InvalidInput
from tidemill.dispatch import outbox
from tidemill.rest import schema_types
from tidemill.rest.auth import AuthenticatedRoute, Permission, build_route_options
from tidemill.rest.runtime_dependencies import DatabaseDep
from tidemill.rest.schema_types import AfterCursor, NextPageToken, PageSize, QueryModel

MessageSource = TypeAliasType("MessageSource", Literal["received", "refused"])


class QuarantinedMessageOut(BaseModel):
    """One message. Nothing is lost with it: what is true stands in the database, and workers look there."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    source: MessageSource = Field(description="It came so, or the broker would not take it")
    reason: str = Field(description="Every mistake in it")
    message: str = Field(description="Its first 4 kB")
    size: int = Field(description="In bytes")
    job_id: UUID | None = Field(description="Whose hint it was, if it was one")
    worker: str | None = Field(description="Who put it here")


class QuarantinePage(BaseModel):
    """The newest first."""

    items: list[QuarantinedMessageOut]
    next_page: NextPageToken = None


class QuarantineQuery(QueryModel):
    page_size: PageSize = 100
    after: AfterCursor = None


class QuarantineClearedOut(BaseModel):
    removed: int


router = APIRouter(tags=["service"], route_class=AuthenticatedRoute)
NewestSeenId = Annotated[
    int | None, Query(ge=0, le=2**63 - 1, description="The newest that somebody has looked at; without it, all")
]


@router.get("/quarantine", response_model_exclude_unset=True, **build_route_options(Permission.ADMIN))
async def list_quarantine(query: Annotated[QuarantineQuery, Query()], db: DatabaseDep) -> QuarantinePage:
    """Messages of the broker that are no hints, and hints that it would not take; the newest first."""
    before = _parse_quarantine_cursor(schema_types.decode_cursor(query.after))
    found = await db.read(outbox.list_quarantined_messages, query.page_size + 1, before)
    shown, more = found[: query.page_size], found[query.page_size :]
    after = (shown[-1].id,) if more else None
    return QuarantinePage.model_validate(
        {"items": shown} | schema_types.build_next_page_field(after), from_attributes=True
    )


@router.delete("/quarantine", **build_route_options(Permission.ADMIN))
async def clear_quarantine(db: DatabaseDep, up_to: NewestSeenId = None) -> QuarantineClearedOut:
    """Forget messages, from the oldest to the one of this id, or all."""
    return QuarantineClearedOut(removed=await db.run(outbox.delete_quarantined_messages, up_to))


def _parse_quarantine_cursor(cursor: tuple[object, ...] | None) -> int | None:
    match cursor:
        case None:
            return None
        case (int() as before,) if not isinstance(before, bool) and 0 <= before < 1 << 63:
            return before
    raise InvalidInput("`after` is not a token of this list")
