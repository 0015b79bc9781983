"""Lists the items of a job, by sequence or by the time of their outcome."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tidemill.core.errors import InvalidInput
from tidemill.core.list_pages import (
    BIGINT_SAFE_MAX,
    PAGE_BATCH_BUDGET,
    PAGE_ITEM_BUDGET,
    ListOrder,
    Page,
    find_order_of_position,
    fingerprint_filters,
    parse_cursor_timestamp,
    parse_number,
)
from tidemill.core.status import (
    WORKER_LIVENESS_S,
    Intent,
    ItemStatus,
    JobStatus,
    derive_job_status,
    explain_why_item_is_open,
)
from tidemill.store.database import Connection, Database
from tidemill.store.item_selection import find_seqs_by_key
from tidemill.store.job_records import ItemListScope, read_item_list_scope
from tidemill.store.statements import RowDict, SqlParams, fetch_item_rows, fetch_rows, sql

OPEN_ITEMS_ORDER = ListOrder("open", (parse_cursor_timestamp, parse_number, parse_number))
OPEN_STATUSES = (ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_WAIT)

_BATCH_STATES_BY_STATUS: dict[ItemStatus, list[tuple[str, bool]]] = {
    ItemStatus.PENDING: [("ready", False)],
    ItemStatus.RETRY_WAIT: [("ready", True)],
    ItemStatus.PROCESSING: [("leased", False), ("leased", True)],
}


@dataclass(frozen=True, slots=True)
class OpenItemListRequest:
    """Filters for open items: by status, job, owner, kind, and the time since which they have their status."""

    statuses: Sequence[ItemStatus] = OPEN_STATUSES
    job_id: UUID | None = None
    owner_id: int | None = None
    kind: str | None = None
    from_: datetime | None = None
    to: datetime | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint_filters(
            sorted(set(self.statuses)), self.job_id, self.owner_id, self.kind, self.from_, self.to
        )


async def list_open_items(
    conn: Connection, request: OpenItemListRequest, *, limit: int, after: object = None
) -> Page[RowDict]:
    cursor = None if after is None else OPEN_ITEMS_ORDER.parse_position(after, request.fingerprint)
    since, begun, seq = cursor or (request.from_ or "-infinity", -1, -1)
    batches = await _pick_open_batches(conn, request, since, begun, limit)
    openable = [PageBatch(row["id"], row["items"], row["width"]) for row in batches if not row["is_end"]]
    n = count_batches_to_open(openable, limit + 1, started_batch_id=begun, budget=PAGE_ITEM_BUDGET)
    items = await _fetch_open_items(conn, batches[:n], {"batch": begun, "seq": seq, "limit": limit + 1}) if n else []
    if len(items) > limit:
        last = items[limit - 1]
        return Page(
            items[:limit],
            OPEN_ITEMS_ORDER.build_position(request.fingerprint, last["updated_at"], last["batch_id"], last["seq"]),
        )
    rest = batches[n:]
    return Page(
        items,
        OPEN_ITEMS_ORDER.build_position(request.fingerprint, rest[0]["since"], rest[0]["id"], -1) if rest else None,
    )


async def _fetch_open_items(conn: Connection, batches: Sequence[RowDict], place: dict[str, Any]) -> list[RowDict]:
    jobs = [batch["job_id"] for batch in batches]
    params = {"batches": [batch["id"] for batch in batches], "first_job": min(jobs), "last_job": max(jobs)}
    return await fetch_item_rows(conn, sql("item/list_open"), params | place)


async def _pick_open_batches(
    conn: Connection, request: OpenItemListRequest, since: Any, begun: int, limit: int
) -> list[RowDict]:
    """Return enough open batches to fill a page. Each has at least one item, except the batch of the cursor."""
    params: dict[str, Any] = {"since": since, "batch": begun, "until": request.to or "infinity", "limit": limit + 2}
    if request.job_id is not None:
        pairs = [pair for status in sorted(set(request.statuses)) for pair in _BATCH_STATES_BY_STATUS[status]]
        states, retryings = [state for state, _ in pairs], [retrying for _, retrying in pairs]
        params |= {"job_id": request.job_id, "states": states, "retryings": retryings}
        return await fetch_rows(conn, sql("batch/pick_of_job"), params)
    statuses = [status.value for status in request.statuses]
    params |= {"statuses": statuses, "kind": request.kind, "budget": PAGE_BATCH_BUDGET}
    if request.owner_id is None:
        return await fetch_rows(conn, sql("batch/pick_of_all"), params)
    return await fetch_rows(conn, sql("batch/pick_of_owner"), params | {"owner_id": request.owner_id})


async def list_open_items_with_reasons(
    conn: Connection, request: OpenItemListRequest, *, limit: int, after: object = None
) -> Page[RowDict]:
    if request.job_id is not None:
        grid = await read_item_list_scope(conn, request.job_id, request.owner_id)
        if request.kind not in (None, grid.kind):
            return Page([], None)
    page = await list_open_items(conn, request, limit=limit, after=after)
    briefs = await _fetch_job_briefs(conn, {item["job_id"] for item in page.items})
    live = {
        row["kind"]: row["on_demand"]
        for row in await fetch_rows(conn, sql("worker/live_kinds"), {"seconds": WORKER_LIVENESS_S})
    }
    return replace(page, items=[_describe_pending_item(item, briefs[item["job_id"]], live) for item in page.items])


async def _fetch_job_briefs(conn: Connection, job_ids: set[UUID]) -> dict[UUID, RowDict]:
    jobs = await fetch_rows(conn, sql("job/brief"), {"ids": sorted(job_ids)}) if job_ids else []
    return {job["id"]: job for job in jobs}


def _describe_pending_item(item: RowDict, job: RowDict, live: dict[str, bool]) -> RowDict:
    intent, status = Intent(job["intent"]), ItemStatus(item["status"])
    shown = derive_job_status(
        intent=intent,
        ingest_done=job["ingest_done"],
        closed_as=None if job["closed_as"] is None else JobStatus(job["closed_as"]),
        total=job["total"],
        started=job["pending"] != job["total"],
    )
    reason = explain_why_item_is_open(
        status,
        intent=intent,
        worker=item["locked_by"],
        due_at=item["due_at"],
        is_due=item["is_due"],
        has_worker=not live.get(job["kind"], True),
        has_kickoff=job["kind"] in live,
        limiter=job["limiter"],
        blocked_until=job["blocked_until"],
    )
    extra = {
        "job_key": job["key"],
        "kind": job["kind"],
        "owner_id": job["owner_id"],
        "job_status": shown,
        "why": reason,
    }
    return {name: value for name, value in item.items() if name not in ("is_due", "batch_id")} | extra


SEQ_ORDER = ListOrder("seq", (parse_number,))
FIRST_WINDOW_ITEMS = 256
_STORED_STATUSES = {ItemStatus.PROCESSING: (ItemStatus.PENDING, ItemStatus.RETRY_WAIT)}


async def list_items_by_seq(
    conn: Connection,
    grid: ItemListScope,
    statuses: Sequence[ItemStatus],
    mark: str,
    *,
    limit: int,
    start: int = 0,
    after: object = None,
    key: str | None = None,
    codes: Sequence[str] | None = None,
) -> Page[RowDict]:
    """Return a page of items. A page that exhausts its scan budget is short, although more items may follow."""
    if after is not None:
        start = SEQ_ORDER.parse_position(after, mark)[0] + 1
    if grid.purged:
        return Page([], None)
    wanted = sorted(set(statuses))
    items: list[RowDict] = []
    is_some = bool(wanted) or key is not None or codes is not None
    first = max(limit + 1, FIRST_WINDOW_ITEMS) if is_some else limit + 1
    for lo, hi in split_scan_window(start, grid.total, first, PAGE_ITEM_BUDGET):
        among = None if key is None else await find_seqs_by_key(conn, grid.id, key, lo, hi)
        which = {"lo": lo, "hi": hi, "among": among, "codes": None if codes is None else list(codes)}
        items += await _list_items_in_window(conn, grid, wanted, which | {"limit": limit + 1 - len(items)})
        start = hi
        if len(items) > limit:
            return Page(items[:limit], SEQ_ORDER.build_position(mark, items[limit - 1]["seq"]))
    return Page(items, SEQ_ORDER.build_position(mark, start - 1) if start < grid.total else None)


async def _list_items_in_window(
    conn: Connection, grid: ItemListScope, wanted: list[ItemStatus], which: SqlParams
) -> list[RowDict]:
    if which["among"] == []:
        return []
    params = {"job_id": grid.id, "sparse": grid.sparse, "statuses": wanted or None}
    stored = {"stored": _to_stored_statuses(wanted) or None}
    return await fetch_item_rows(conn, sql("item/list_seq"), params | stored | {**which})


def _to_stored_statuses(wanted: list[ItemStatus]) -> list[ItemStatus]:
    """Return the statuses that outcomes store for these; the outcome of an item in progress has its previous status."""
    return sorted({stored for status in wanted for stored in _STORED_STATUSES.get(status, (status,))})


EXCEPTIONS_ORDER = ListOrder("exceptions", (parse_cursor_timestamp, parse_number))
UNTRIED_CANCELLED_ORDER = ListOrder("cancelled", (parse_number,))
EXCEPTION_STATUSES = (ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.FAILED, ItemStatus.CANCELLED)


async def list_exceptions_then_untried_cancelled(
    conn: Connection, job_id: UUID, statuses: Sequence[ItemStatus], mark: str, *, limit: int, after: object = None
) -> Page[RowDict]:
    """Return exceptions with an outcome by time, then items cancelled before their first attempt by seq."""
    at, seq = ("-infinity", -1) if after is None else EXCEPTIONS_ORDER.parse_position(after, mark)
    params = {"job_id": job_id, "statuses": sorted({status.value for status in statuses})}
    items = await fetch_item_rows(
        conn, sql("outcome/list_exceptions"), params | {"at": at, "seq": seq, "limit": limit + 1}
    )
    if len(items) > limit:
        return Page(
            items[:limit],
            EXCEPTIONS_ORDER.build_position(mark, items[limit - 1]["updated_at"], items[limit - 1]["seq"]),
        )
    if ItemStatus.CANCELLED not in statuses:
        return Page(items, None)
    room = limit - len(items)
    untried = await _list_untried_cancelled_page(conn, job_id, mark, room, -1)
    return Page(items + untried.items, untried.after)


async def list_untried_cancelled(
    conn: Connection, job_id: UUID, mark: str, *, limit: int, after: object
) -> Page[RowDict]:
    """Return items cancelled before their first attempt. They have no outcome; their cancelled range lists them."""
    (after_seq,) = UNTRIED_CANCELLED_ORDER.parse_position(after, mark)
    return await _list_untried_cancelled_page(conn, job_id, mark, limit, after_seq)


async def list_failures_with_codes(
    conn: Connection, job_id: UUID, codes: Sequence[str], mark: str, *, limit: int, after: object = None
) -> Page[RowDict]:
    """Return failures with one of these error codes. Codes have no index, so a page may be short but not the last."""
    at, seq = ("-infinity", -1) if after is None else EXCEPTIONS_ORDER.parse_position(after, mark)
    params = {"job_id": job_id, "codes": sorted(set(codes)), "budget": PAGE_BATCH_BUDGET}
    rows = await fetch_item_rows(conn, sql("outcome/list_codes"), params | {"at": at, "seq": seq, "limit": limit + 1})
    ends = [row.pop("is_end") for row in rows]
    items = rows[:limit]
    if len(rows) > limit:
        return Page(items, EXCEPTIONS_ORDER.build_position(mark, items[-1]["updated_at"], items[-1]["seq"]))
    if not any(ends):
        return Page(items, None)
    end = rows.pop()  # the next page starts with it
    return Page(rows, EXCEPTIONS_ORDER.build_position(mark, end["updated_at"], end["seq"] - 1))


async def _list_untried_cancelled_page(
    conn: Connection, job_id: UUID, mark: str, limit: int, after_seq: int
) -> Page[RowDict]:
    params = {"job_id": job_id, "after_seq": after_seq, "limit": limit + 2}
    ranges = await fetch_rows(conn, sql("batch/pick_cancelled"), params)
    picked = [PageBatch(row["id"], row["items"], row["width"]) for row in ranges]
    begun = ranges[0]["id"] if ranges and ranges[0]["lo"] <= after_seq else None
    n = count_batches_to_open(picked, limit + 1, started_batch_id=begun, budget=PAGE_ITEM_BUDGET)
    params = {"batches": [batch.id for batch in picked[:n]], "after_seq": after_seq, "limit": limit + 1}
    items = await fetch_rows(conn, sql("item/list_cancelled"), params) if n else []
    if len(items) > limit:
        return Page(
            items[:limit], UNTRIED_CANCELLED_ORDER.build_position(mark, items[limit - 1]["seq"] if limit else after_seq)
        )
    return Page(items, UNTRIED_CANCELLED_ORDER.build_position(mark, ranges[n]["lo"] - 1) if n < len(ranges) else None)


ItemSort = Literal["seq", "updated_at"]


def get_sort_of_order(order: ListOrder) -> ItemSort:
    return "seq" if order is SEQ_ORDER else "updated_at"


@dataclass(frozen=True, slots=True)
class ItemListRequest:
    """Filters and order of a job's items. ``after`` is the previous page's cursor; the first page starts at ``seq``."""

    statuses: Sequence[ItemStatus] = ()
    after: object = None
    seq: int | None = None
    codes: Sequence[str] | None = None
    key: str | None = None
    sort: ItemSort | None = None  # by default, the fastest order for the filters

    def __post_init__(self) -> None:
        if self.codes is not None and set(self.statuses) - {ItemStatus.FAILED}:
            raise InvalidInput('Error codes can be combined only with status "failed"')
        if self.codes is not None and self.seq is not None and self.after is None:
            raise InvalidInput("Error codes cannot be combined with seq")
        if self.seq is not None and not 0 <= self.seq <= BIGINT_SAFE_MAX:
            raise InvalidInput(f"Item {self.seq} does not exist: seq starts at 0")
        if self.sort == "updated_at" and (self._default_order is SEQ_ORDER or self.seq is not None):
            raise InvalidInput(
                'Cannot sort this list by "updated_at". Select only statuses pending, processing and retry_wait, or '
                "only not_found, skipped, failed and cancelled, and set neither key nor seq."
            )
        if self.sort == "seq" and SEQ_ORDER not in self._allowed_orders:
            raise InvalidInput('Cannot sort failures with error codes by "seq"')

    def fingerprint(self, job_id: UUID) -> str:
        codes = None if self.codes is None else sorted(set(self.codes))
        return fingerprint_filters(job_id, sorted(set(self.statuses)), codes, *([] if self.key is None else [self.key]))

    @property
    def list_order(self) -> ListOrder:
        """The order of the list: that of the cursor or, on the first page, the fastest for the filters.

        Open items are listed by the time they became open, exceptions by the time of their outcome, all others by seq.
        With ``seq`` or ``key``, the order is always by seq.
        """
        if self.after is not None:
            orders = [order for order in self._allowed_orders if self.sort in (None, get_sort_of_order(order))]
            return find_order_of_position(self.after, orders)
        return self._default_order if self.seq is None and self.sort != "seq" else SEQ_ORDER

    @property
    def _default_order(self) -> ListOrder:
        statuses = set(self.statuses)
        if self.key is not None:  # keys have no index: items are scanned within the budget of a page
            return SEQ_ORDER
        if self.codes is not None or (statuses and statuses <= set(EXCEPTION_STATUSES)):
            return EXCEPTIONS_ORDER
        return OPEN_ITEMS_ORDER if statuses and statuses <= set(OPEN_STATUSES) else SEQ_ORDER

    @property
    def _allowed_orders(self) -> list[ListOrder]:
        default = self._default_order
        orders = [default] if self.codes is not None else [default, SEQ_ORDER]
        if default is EXCEPTIONS_ORDER and ItemStatus.CANCELLED in self.statuses:
            orders.append(UNTRIED_CANCELLED_ORDER)
        return orders


async def list_items(db: Database, grid: ItemListScope, request: ItemListRequest, *, limit: int) -> Page[RowDict]:
    """Return a page of items with as few round trips to the server as possible."""
    if request.list_order is SEQ_ORDER:
        return await db.read(list_page_by_seq, grid, request, limit=limit)
    if request.list_order is EXCEPTIONS_ORDER and ItemStatus.CANCELLED not in request.statuses:
        return await db.read(list_page_by_outcome_time, grid, request, limit=limit)
    return await db.read_snapshot(list_page_in_snapshot, grid, request, limit=limit)


async def list_page_by_seq(
    conn: Connection, grid: ItemListScope, request: ItemListRequest, *, limit: int
) -> Page[RowDict]:
    """Return a page of items in order of seq."""
    mark = request.fingerprint(grid.id)
    return await list_items_by_seq(
        conn,
        grid,
        request.statuses,
        mark,
        limit=limit,
        start=request.seq or 0,
        after=request.after,
        key=request.key,
        codes=request.codes,
    )


async def list_page_by_outcome_time(
    conn: Connection, grid: ItemListScope, request: ItemListRequest, *, limit: int
) -> Page[RowDict]:
    """Return a page of items with an outcome, in order of its time."""
    mark, after = request.fingerprint(grid.id), request.after
    if request.codes is not None:
        return await list_failures_with_codes(conn, grid.id, request.codes, mark, limit=limit, after=after)
    return await list_exceptions_then_untried_cancelled(conn, grid.id, request.statuses, mark, limit=limit, after=after)


async def list_page_in_snapshot(
    conn: Connection, grid: ItemListScope, request: ItemListRequest, *, limit: int
) -> Page[RowDict]:
    """Return a page that several statements read: of open items, or of exceptions and untried cancelled items."""
    after = request.after
    if request.list_order is OPEN_ITEMS_ORDER:
        page = await list_open_items(conn, OpenItemListRequest(request.statuses, grid.id), limit=limit, after=after)
        for item in page.items:
            del item["is_due"], item["batch_id"], item["job_id"]
        return page
    mark = request.fingerprint(grid.id)
    if request.list_order is UNTRIED_CANCELLED_ORDER:
        return await list_untried_cancelled(conn, grid.id, mark, limit=limit, after=after)
    return await list_exceptions_then_untried_cancelled(conn, grid.id, request.statuses, mark, limit=limit, after=after)


class PageBatch(NamedTuple):
    """A batch that has rows for a page: the number of rows, and the number of items to scan for them."""

    id: int
    items: int
    width: int


def count_batches_to_open(
    batches: Sequence[PageBatch], rows: int, *, started_batch_id: int | None = None, budget: int
) -> int:
    """Return how many of these batches to open for a page of ``rows`` rows, within the budget.

    The batch that an earlier page started is not counted, because the number of rows left in it is unknown.
    """
    items = width = 0
    for n, batch in enumerate(batches):
        if items >= rows or width > budget:
            return n
        if batch.id != started_batch_id:
            items += batch.items
            width += batch.width
    return len(batches)


def split_scan_window(lo: int, hi: int, first: int, budget: int) -> list[tuple[int, int]]:
    """Split ``[lo, hi)``, cut to the budget, into a small first window and the rest.

    If matches are frequent, the first window suffices. If they are rare, one large scan is cheaper than many queries.
    """
    end = min(hi, lo + budget)
    cut = min(lo + first, end)
    return [window for window in ((lo, cut), (cut, end)) if window[0] < window[1]]
