"""Items in order of seq, whatever became of them."""

from collections.abc import Sequence
from typing import Any

from tidemill.domain.page import Page, Walk, number
from tidemill.domain.scan import ITEM_BUDGET, windows
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.keys import keyed
from tidemill.store.lists.fetch import Row, item_rows
from tidemill.store.lists.grid import Grid

WALK = Walk("seq", (number,))
FIRST_WINDOW = 256
_TOLD = {ItemStatus.PROCESSING: (ItemStatus.PENDING, ItemStatus.RETRY_WAIT)}


async def list_by_seq(
    conn: Connection,
    grid: Grid,
    statuses: Sequence[ItemStatus],
    mark: str,
    *,
    limit: int,
    start: int = 0,
    after: object = None,
    key: str | None = None,
    codes: Sequence[str] | None = None,
) -> Page[Row]:
    """So many items are looked at that the page is full, or the budget used up: then it is short, but not the last."""
    if after is not None:
        start = WALK.read(after, mark)[0] + 1
    if grid.purged:
        return Page([], None)
    wanted = sorted(set(statuses))
    items: list[Row] = []
    is_some = bool(wanted) or key is not None or codes is not None
    first = max(limit + 1, FIRST_WINDOW) if is_some else limit + 1
    for lo, hi in windows(start, grid.total, first, ITEM_BUDGET):
        among = None if key is None else await keyed(conn, grid.id, key, lo, hi)
        which = {"lo": lo, "hi": hi, "among": among, "codes": None if codes is None else list(codes)}
        items += await _window(conn, grid, wanted, which | {"limit": limit + 1 - len(items)})
        start = hi
        if len(items) > limit:
            return Page(items[:limit], WALK.place(mark, items[limit - 1]["seq"]))
    return Page(items, WALK.place(mark, start - 1) if start < grid.total else None)


async def _window(conn: Connection, grid: Grid, wanted: list[ItemStatus], which: dict[str, Any]) -> list[Row]:
    if which["among"] == []:
        return []
    params: dict[str, Any] = {"job_id": grid.id, "sparse": grid.sparse}
    params |= {"statuses": wanted or None, "stored": _stored(wanted) or None}
    return await item_rows(conn, "item/list_seq", params | which)


def _stored(wanted: list[ItemStatus]) -> list[ItemStatus]:
    """What the outcomes of such items say: of one in hand, what it was before."""
    return sorted({told for status in wanted for told in _TOLD.get(status, (status,))})
