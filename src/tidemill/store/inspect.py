"""Pages of items: open ones from the batch side, exceptions by their index, the rest in order of seq."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.jobs import get
from tidemill.store.statements import sql

SCAN_BUDGET = 20_000  # rows a page in order of seq may look at; it may be short and still not be the last

_STATES: dict[ItemStatus, tuple[str, bool | None]] = {
    ItemStatus.PENDING: ("ready", False),
    ItemStatus.RETRY_WAIT: ("ready", True),
    ItemStatus.PROCESSING: ("leased", None),
}


@dataclass(frozen=True, slots=True)
class Page:
    """``after`` is the place of the next page, None at the end."""

    items: list[dict[str, Any]]
    after: tuple[Any, ...] | None


async def list_items(
    conn: Connection, job_id: UUID, status: ItemStatus | None, *, limit: int, after: tuple[Any, ...] | None = None
) -> Page:
    if status in _STATES:
        return await _open(conn, job_id, status, limit, after)
    if status is None or status is ItemStatus.DONE:
        return await _by_seq(conn, job_id, status, limit, after)
    return await _exceptions(conn, job_id, status, limit, after)


async def get_item(conn: Connection, job_id: UUID, seq: int) -> dict[str, Any] | None:
    return next(iter(await _rows(conn, "item/get", {"job_id": job_id, "seq": seq})), None)


async def _open(conn: Connection, job_id: UUID, status: ItemStatus, limit: int, after: tuple[Any, ...] | None) -> Page:
    state, retrying = _STATES[status]
    since, batch, seq = after or ("-infinity", -1, -1)
    place = {"after_since": since, "after_batch": batch, "after_seq": seq, "limit": limit}
    rows = await _rows(conn, "item/list_open", {"job_id": job_id, "states": [state], "retrying": retrying} | place)
    more = (rows[-1]["updated_at"], rows[-1]["batch_id"], rows[-1]["seq"]) if len(rows) == limit else None
    return Page(rows, more)


async def _exceptions(
    conn: Connection, job_id: UUID, status: ItemStatus, limit: int, after: tuple[Any, ...] | None
) -> Page:
    if after is not None and after[0] is None:
        return await _cancelled_ranges(conn, job_id, limit, after[1])
    at, seq = after or ("-infinity", -1)
    params = {"job_id": job_id, "status": status, "after_at": at, "after_seq": seq, "limit": limit}
    rows = await _rows(conn, "outcome/list", params)
    if len(rows) == limit:
        return Page(rows, (rows[-1]["updated_at"], rows[-1]["seq"]))
    if status is not ItemStatus.CANCELLED:
        return Page(rows, None)
    more = await _cancelled_ranges(conn, job_id, limit - len(rows), -1)
    return Page(rows + more.items, more.after)


async def _cancelled_ranges(conn: Connection, job_id: UUID, limit: int, after_seq: int) -> Page:
    """Cancelled before they were ever tried: they come after those that have an outcome, with a place (None, seq)."""
    rows = await _rows(conn, "item/list_cancelled", {"job_id": job_id, "after_seq": after_seq, "limit": limit})
    return Page(rows, (None, rows[-1]["seq"]) if len(rows) == limit else None)


async def _by_seq(
    conn: Connection, job_id: UUID, status: ItemStatus | None, limit: int, after: tuple[Any, ...] | None
) -> Page:
    job = await get(conn, job_id)
    seq = after[0] if after else -1
    params = {"job_id": job_id, "after_seq": seq, "window": SCAN_BUDGET, "status": status, "limit": limit}
    rows = await _rows(conn, "item/list_seq", params)
    reached = rows[-1]["seq"] if len(rows) == limit else seq + SCAN_BUDGET
    return Page(rows, (reached,) if reached < job.counts.total - 1 else None)


async def _rows(conn: Connection, name: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql(name), params)
        return await cursor.fetchall()
