"""Scenes for list tests: jobs with items in every status, and helpers that read all pages."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from store.scenes import send_round
from support import DONE, FAILED, RETRY, add_job, rows, settle, take, verdict
from tidemill.core.list_pages import Page
from tidemill.core.status import ItemStatus
from tidemill.jobs import queries
from tidemill.store import batch_leases
from tidemill.store.database import Database
from tidemill.store.job_lifecycle import CancelSelection, cancel_waiting_items_step
from tidemill.store.reprocess_items import ReprocessSelection

T = TypeVar("T")
NOT_FOUND, SKIPPED, CANCELLED = ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.CANCELLED
PENDING, PROCESSING = ItemStatus.PENDING, ItemStatus.PROCESSING
MANY_PAGES = 1_000


async def walk(page_after: Callable[[Any], Awaitable[Page[T]]], limit: int = 1_000) -> list[T]:
    """Return all rows of a list, page by page."""
    found: list[T] = []
    after: Any = None
    for _ in range(MANY_PAGES):
        page = await page_after(after)
        assert len(page.items) <= limit
        found += page.items
        after = page.after
        if after is None:
            return found
    raise AssertionError("the list never ends")


async def walk_items(db: Database, job_id: UUID, *statuses: ItemStatus, limit: int = 7, **asked: Any) -> list[Any]:
    return await walk(
        lambda after: queries.list_items(db, job_id, statuses, limit=limit, after=after, **asked), limit=limit
    )


async def truth(db: Database, job_id: UUID) -> dict[int, ItemStatus]:
    """Return the status of every item, read one by one."""
    found = await rows(db, "SELECT seq, status FROM tidemill.item_status WHERE job_id = %s ORDER BY seq", job_id)
    return {seq: ItemStatus(status) for seq, status in found}


async def varied_job(db: Database, *, sparse: bool = False) -> UUID:
    """Create a job of 120 items in every status, in range and list batches, some of them with retries."""
    job_id = await add_job(db, 120, batch_size=10, sparse=sparse)
    await settle(db, await take(db, job_id))  # 0 … 9
    lease = await take(db, job_id)  # 10 … 19
    ends = (DONE, FAILED, NOT_FOUND, SKIPPED, RETRY)
    await settle(
        db,
        lease,
        [verdict(n, ends[n % 5], delay=60 if ends[n % 5] is RETRY else None) for n in range(lease.lo, lease.hi)],
    )
    begun = await take(db, job_id)  # 20 … 29, leased
    if not sparse:
        await settle(db, begun, [verdict(seq) for seq in (20, 22, 24)])
    await take(db, job_id, worker="w2")  # 30 … 39, leased
    given_back = await take(db, job_id)  # 40 … 49, partly settled
    await settle(db, given_back, [verdict(seq, FAILED) for seq in (41, 43)])
    await db.run(batch_leases.release_rest_of_batch, given_back.with_flushed(2))
    failing = await take(db, job_id)  # 50 … 59
    await settle(db, failing, [verdict(seq, FAILED) for seq in range(50, 60)])
    partly = await take(db, job_id)  # 60 … 69
    await settle(db, partly, [verdict(seq, FAILED) for seq in (60, 69)])
    await db.run(batch_leases.release_rest_of_batch, partly.with_flushed(2))
    # The rest of 40 … 49 and 60 … 119, and the two items that wait for a retry.
    await db.run(cancel_waiting_items_step, job_id, CancelSelection([ItemStatus.PENDING, ItemStatus.RETRY_WAIT]), {})
    await send_round(db, job_id, ReprocessSelection(seqs=range(50, 56)))
    again = await take(db, job_id, worker="w3")
    await settle(db, again, [verdict(50, RETRY, delay=60), verdict(51, RETRY, delay=60), verdict(52)])
    await send_round(db, job_id, ReprocessSelection(seqs=[12]))
    return job_id
