"""Lists open items of one job or of all jobs by their batches, ordered by the time they started to wait.

A claim moves an item behind all items that waited before it, so items in progress never fill the first pages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.core.list_pages import (
    PAGE_BATCH_BUDGET,
    PAGE_ITEM_BUDGET,
    ListOrder,
    Page,
    PageBatch,
    count_batches_to_open,
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
from tidemill.store.database import Connection
from tidemill.store.job_lists import read_item_list_scope
from tidemill.store.statements import RowDict, fetch_item_rows, fetch_rows, sql

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
    conn: Connection, asked: OpenItemListRequest, since: Any, begun: int, limit: int
) -> list[RowDict]:
    """Return enough open batches to fill a page. Each has at least one item, except the batch of the cursor."""
    params: dict[str, Any] = {"since": since, "batch": begun, "until": asked.to or "infinity", "limit": limit + 2}
    if asked.job_id is not None:
        pairs = [pair for status in sorted(set(asked.statuses)) for pair in _BATCH_STATES_BY_STATUS[status]]
        states, retryings = [state for state, _ in pairs], [retrying for _, retrying in pairs]
        params |= {"job_id": asked.job_id, "states": states, "retryings": retryings}
        return await fetch_rows(conn, sql("batch/pick_of_job"), params)
    statuses = [status.value for status in asked.statuses]
    params |= {"statuses": statuses, "kind": asked.kind, "budget": PAGE_BATCH_BUDGET}
    if asked.owner_id is None:
        return await fetch_rows(conn, sql("batch/pick_of_all"), params)
    return await fetch_rows(conn, sql("batch/pick_of_owner"), params | {"owner_id": asked.owner_id})


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
