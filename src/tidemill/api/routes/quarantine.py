"""Messages that are no hints."""

from typing import Annotated

from fastapi import APIRouter, Query

from tidemill.api import cursor
from tidemill.api.guard import Guarded, Permission, allow
from tidemill.api.schemas.quarantine import Cleared, QuarantinePage, QuarantineQuery
from tidemill.api.state import Db
from tidemill.domain.errors import InvalidInput
from tidemill.store import quarantine

router = APIRouter(tags=["service"], route_class=Guarded)
UpTo = Annotated[
    int | None, Query(ge=0, le=2**63 - 1, description="The newest that somebody has looked at; without it, all")
]


@router.get("/quarantine", response_model_exclude_unset=True, **allow(Permission.ADMIN))
async def list_quarantine(query: Annotated[QuarantineQuery, Query()], db: Db) -> QuarantinePage:
    """Messages of the broker that are no hints, and hints that it would not take; the newest first."""
    place = cursor.decode(query.after)
    found = await db.run(quarantine.list_quarantine, query.page_size + 1, _before(place))
    shown, more = found[: query.page_size], found[query.page_size :]
    after = (shown[-1].id,) if more else None
    return QuarantinePage.model_validate({"items": shown} | cursor.next_page(after), from_attributes=True)


@router.delete("/quarantine", **allow(Permission.ADMIN))
async def clear_quarantine(db: Db, up_to: UpTo = None) -> Cleared:
    """Forget messages, from the oldest to the one of this id, or all."""
    return Cleared(removed=await db.run(quarantine.clear, up_to))


def _before(place: tuple[object, ...] | None) -> int | None:
    match place:
        case None:
            return None
        case (int() as before,) if not isinstance(before, bool) and 0 <= before < 1 << 63:
            return before
    raise InvalidInput("`after` is not a token of this list")
