"""Items that ended otherwise than done, by the time of that."""

from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.page import Page, Walk, moment, number
from tidemill.domain.scan import BATCH_BUDGET, ITEM_BUDGET, Picked, enough
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.lists.fetch import Row, item_rows, rows

WALK = Walk("exceptions", (moment, number))
CANCELLED = Walk("cancelled", (number,))
EXCEPTIONS = (ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.FAILED, ItemStatus.CANCELLED)


async def list_exceptions(
    conn: Connection, job_id: UUID, statuses: Sequence[ItemStatus], mark: str, *, limit: int, after: object = None
) -> Page[Row]:
    """Those with an outcome; then what was cancelled before it was ever tried, in order of seq."""
    at, seq = ("-infinity", -1) if after is None else WALK.read(after, mark)
    asked = {"job_id": job_id, "statuses": sorted({status.value for status in statuses})}
    items = await item_rows(conn, "outcome/list_exceptions", asked | {"at": at, "seq": seq, "limit": limit + 1})
    if len(items) > limit:
        return Page(items[:limit], WALK.place(mark, items[limit - 1]["updated_at"], items[limit - 1]["seq"]))
    if ItemStatus.CANCELLED not in statuses:
        return Page(items, None)
    room = limit - len(items)
    untried = await _untried(conn, job_id, mark, room, -1)
    return Page(items + untried.items, untried.after)


async def list_cancelled(conn: Connection, job_id: UUID, mark: str, *, limit: int, after: object) -> Page[Row]:
    """Cancelled before they were ever tried: no outcome tells of them, their cancelled range does."""
    (after_seq,) = CANCELLED.read(after, mark)
    return await _untried(conn, job_id, mark, limit, after_seq)


async def list_codes(
    conn: Connection, job_id: UUID, codes: Sequence[str], mark: str, *, limit: int, after: object = None
) -> Page[Row]:
    """Failures with one of these error codes. There is no index of codes: a page may be short and not the last."""
    at, seq = ("-infinity", -1) if after is None else WALK.read(after, mark)
    asked = {"job_id": job_id, "codes": sorted(set(codes)), "budget": BATCH_BUDGET}
    found = await item_rows(conn, "outcome/list_codes", asked | {"at": at, "seq": seq, "limit": limit + 1})
    ends = [row.pop("is_end") for row in found]
    items = found[:limit]
    if len(found) > limit:
        return Page(items, WALK.place(mark, items[-1]["updated_at"], items[-1]["seq"]))
    if not any(ends):
        return Page(items, None)
    end = found.pop()  # looked at by the next page
    return Page(found, WALK.place(mark, end["updated_at"], end["seq"] - 1))


async def _untried(conn: Connection, job_id: UUID, mark: str, limit: int, after_seq: int) -> Page[Row]:
    params = {"job_id": job_id, "after_seq": after_seq, "limit": limit + 2}
    ranges = await rows(conn, "batch/pick_cancelled", params)
    picked = [Picked(row["id"], row["items"], row["width"]) for row in ranges]
    begun = ranges[0]["id"] if ranges and ranges[0]["lo"] <= after_seq else None
    n = enough(picked, limit + 1, begun=begun, budget=ITEM_BUDGET)
    params = {"batches": [batch.id for batch in picked[:n]], "after_seq": after_seq, "limit": limit + 1}
    items = await rows(conn, "item/list_cancelled", params) if n else []
    if len(items) > limit:
        return Page(items[:limit], CANCELLED.place(mark, items[limit - 1]["seq"] if limit else after_seq))
    return Page(items, CANCELLED.place(mark, ranges[n]["lo"] - 1) if n < len(ranges) else None)
