"""Open items, from the batch side: those whose batch has been as it is for longest come first.

An item that is taken moves behind everything that waited before it, so slow ones in hand never fill the pages of
those that wait; and a carve moves nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.page import Page, Walk, mark_of, moment, number
from tidemill.domain.scan import BATCH_BUDGET, ITEM_BUDGET, Picked, enough
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.lists.fetch import Row, item_rows, rows

WALK = Walk("open", (moment, number, number))
OPEN = (ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_WAIT)

_STATES: dict[ItemStatus, list[tuple[str, bool]]] = {
    ItemStatus.PENDING: [("ready", False)],
    ItemStatus.RETRY_WAIT: [("ready", True)],
    ItemStatus.PROCESSING: [("leased", False), ("leased", True)],
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Which open items: of a job, of an owner, or everybody's; and since when they are as they are."""

    statuses: Sequence[ItemStatus] = OPEN
    job_id: UUID | None = None
    owner_id: int | None = None
    kind: str | None = None
    from_: datetime | None = None
    to: datetime | None = None

    @property
    def mark(self) -> str:
        return mark_of(sorted(set(self.statuses)), self.job_id, self.owner_id, self.kind, self.from_, self.to)


async def list_open(conn: Connection, asked: Asked, *, limit: int, after: object = None) -> Page[Row]:
    place = None if after is None else WALK.read(after, asked.mark)
    since, begun, seq = place or (asked.from_ or "-infinity", -1, -1)
    found = await _pick(conn, asked, since, begun, limit)
    openable = [Picked(row["id"], row["items"], row["width"]) for row in found if not row["is_end"]]
    n = enough(openable, limit + 1, begun=begun, budget=ITEM_BUDGET)
    items = await _items(conn, found[:n], {"batch": begun, "seq": seq, "limit": limit + 1}) if n else []
    if len(items) > limit:
        last = items[limit - 1]
        return Page(items[:limit], WALK.place(asked.mark, last["updated_at"], last["batch_id"], last["seq"]))
    rest = found[n:]
    return Page(items, WALK.place(asked.mark, rest[0]["since"], rest[0]["id"], -1) if rest else None)


async def _items(conn: Connection, batches: Sequence[Row], place: dict[str, Any]) -> list[Row]:
    jobs = [batch["job_id"] for batch in batches]
    asked = {"batches": [batch["id"] for batch in batches], "first_job": min(jobs), "last_job": max(jobs)}
    return await item_rows(conn, "item/list_open", asked | place)


async def _pick(conn: Connection, asked: Asked, since: Any, begun: int, limit: int) -> list[Row]:
    """Open batches with an item each at least, save the one that was begun: so many that they fill a page."""
    params: dict[str, Any] = {"since": since, "batch": begun, "until": asked.to or "infinity", "limit": limit + 2}
    if asked.job_id is not None:
        pairs = [pair for status in sorted(set(asked.statuses)) for pair in _STATES[status]]
        states, retryings = [state for state, _ in pairs], [retrying for _, retrying in pairs]
        params |= {"job_id": asked.job_id, "states": states, "retryings": retryings}
        return await rows(conn, "batch/pick_of_job", params)
    statuses = [status.value for status in asked.statuses]
    params |= {"statuses": statuses, "kind": asked.kind, "budget": BATCH_BUDGET}
    if asked.owner_id is None:
        return await rows(conn, "batch/pick_of_all", params)
    return await rows(conn, "batch/pick_of_owner", params | {"owner_id": asked.owner_id})
