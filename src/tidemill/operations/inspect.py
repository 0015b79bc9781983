"""Looking at jobs, items and batches, at what waits and what failed.

``owner_id`` None is everybody: the caller says who may ask so.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from tidemill.domain.errors import InvalidInput
from tidemill.domain.job import Job
from tidemill.domain.page import MAX_PAGE, Page, check_limit, check_moments, check_text
from tidemill.domain.status import ItemStatus, JobStatus
from tidemill.store import activity, jobs, results
from tidemill.store import inspect as store
from tidemill.store.database import Database
from tidemill.store.lists import batches, dead_letters, items, job_counts, open_items, pending
from tidemill.store.lists import jobs as job_lists
from tidemill.store.lists.batches import OpenSums
from tidemill.store.lists.grid import Grid, find_grid
from tidemill.store.lists.job_counts import JobCounts
from tidemill.telemetry.events import emit

T = TypeVar("T")
Row = dict[str, Any]


async def find_job(db: Database, text: str, owner_id: int | None = None) -> Job:
    """A job by id, key, or a beginning of its id. One of another owner is as unknown as one that never was."""
    return await db.run(jobs.get, await db.run(jobs.find, text, owner_id))


async def list_jobs(
    db: Database,
    *,
    owner_id: int | None = None,
    statuses: Sequence[JobStatus] = (),
    kind: str | None = None,
    created_from: datetime | None = None,
    created_to: datetime | None = None,
    q: str | None = None,
    limit: int = 50,
    after: object = None,
) -> Page[Job]:
    """The newest first; ``q`` is the beginning of a key or of an id."""
    check_limit(limit)
    check_moments(created_from, created_to)
    check_text("a filter", kind, q)
    asked = job_lists.Asked(owner_id, statuses, kind, created_from, created_to, q)
    return await _listed("jobs", db.run(job_lists.list_jobs, asked, limit=limit, after=after))


async def newest_jobs(db: Database, most: int, *, statuses: Sequence[JobStatus] = ()) -> list[Job]:
    """So many of the newest jobs, over as many pages as it takes."""
    found: list[Job] = []
    after: object = None
    while len(found) < most:
        page = await list_jobs(db, statuses=statuses, limit=min(most - len(found), MAX_PAGE), after=after)
        found += page.items
        after = page.after
        if after is None:
            break
    return found


async def count_jobs(db: Database, owner_id: int | None = None) -> JobCounts:
    """How many jobs are what."""
    return await db.run(job_counts.count_jobs, owner_id)


async def grid(db: Database, job: UUID | str, owner_id: int | None = None) -> Grid:
    """What lists need to know of a job, by id or key."""
    return await db.run(find_grid, job, owner_id)


async def list_items(
    db: Database,
    job: UUID | Grid,
    statuses: Sequence[ItemStatus] = (),
    *,
    limit: int,
    after: object = None,
    seq: int | None = None,
    codes: Sequence[str] | None = None,
    key: str | None = None,
) -> Page[Row]:
    """A page of items; its ``after`` is what to ask with for the next one. ``seq`` begins anywhere."""
    check_limit(limit)
    check_text("an error code", *(codes or ()))
    check_text("a key", key)
    asked = items.Asked(statuses, after, seq, codes, key or None)
    found = job if isinstance(job, Grid) else await grid(db, job)
    return await _listed("items", items.list_items(db, found, asked, limit=limit))


async def shown_inputs(db: Database, grid: Grid, items: Sequence[Row]) -> dict[int, Any]:
    """The inputs of a page's items by seq, where it is those that the grid shows."""
    if grid.columns.of != "input" or not items:
        return {}
    return await db.run(results.shown_inputs, grid.id, [item["seq"] for item in items])


async def walk_items(
    db: Database, job_id: UUID, status: ItemStatus | None, *, most: int
) -> AsyncIterator[dict[str, Any]]:
    """Item after item, page by page, with input and result whole: for who reads them one by one."""
    after, left = None, most
    statuses = [] if status is None else [status]
    while left > 0:
        page = await list_items(db, job_id, statuses, limit=min(left, 500), after=after)
        inputs = await db.run(results.shown_inputs, job_id, [item["seq"] for item in page.items])
        for item in page.items:
            if item["result_cut"] or item["seq"] not in inputs:  # too long for a page
                whole = await get_item(db, job_id, item["seq"])
                yield item | {"input": whole["input"], "result": whole["result"]}
            else:
                yield item | {"input": inputs[item["seq"]]}
        left -= len(page.items)
        after = page.after
        if after is None:
            return


async def get_item(db: Database, job_id: UUID, seq: int) -> Row:
    """One item, whole; UnknownItem if there is none."""
    return await db.run(store.get_item, job_id, seq)


async def list_batches(db: Database, job_id: UUID, *, limit: int, after: object = None) -> Page[Row]:
    """The newest first."""
    check_limit(limit)
    return await _listed("batches", db.run(batches.list_batches, job_id, limit=limit, after=after))


async def list_activity(db: Database, job_id: UUID, *, limit: int, after: object = None) -> Page[Row]:
    """What people did to a job, the newest first."""
    check_limit(limit)
    return await _listed("activity", db.run(activity.list_activity, job_id, limit=limit, after=after))


async def list_pending(
    db: Database,
    *,
    owner_id: int | None = None,
    statuses: Sequence[ItemStatus] = (),
    kind: str | None = None,
    job_id: UUID | None = None,
    from_: datetime | None = None,
    to: datetime | None = None,
    limit: int,
    after: object = None,
) -> Page[Row]:
    """Open items across jobs, those that have been as they are for longest first, each with why it waits."""
    check_limit(limit)
    check_moments(from_, to)
    check_text("a filter", kind)
    wrong = [status.value for status in statuses if status not in open_items.OPEN]
    if wrong:
        raise InvalidInput(f"items that are {', '.join(wrong)} do not wait: ask for pending, processing or retry_wait")
    asked = open_items.Asked(statuses or open_items.OPEN, job_id, owner_id, kind, from_, to)
    return await _listed("pending", db.run(pending.list_pending, asked, limit=limit, after=after))


async def open_sums(db: Database, owner_id: int | None = None) -> OpenSums:
    """How many items are open, now, by kind and status; never by counting items."""
    return await db.run(batches.sum_open, owner_id)


async def list_dead_letters(
    db: Database,
    *,
    owner_id: int | None = None,
    kind: str | None = None,
    codes: Sequence[str] | None = None,
    job_id: UUID | None = None,
    from_: datetime | None = None,
    to: datetime | None = None,
    limit: int,
    after: object = None,
) -> Page[Row]:
    """Failed items across jobs, the newest first."""
    check_limit(limit)
    check_moments(from_, to)
    check_text("a filter", kind, *(codes or ()))
    asked = dead_letters.Asked(owner_id, kind, codes, job_id, from_, to)
    return await _listed("dead_letters", db.run(dead_letters.list_dead_letters, asked, limit=limit, after=after))


async def dead_letter_causes(
    db: Database, owner_id: int | None = None, *, kind: str | None = None, job_id: UUID | None = None
) -> list[Row]:
    """Dead letters by error code: how many, in how many jobs, and when such a job last changed."""
    check_text("a filter", kind)
    return await db.run(dead_letters.list_causes, owner_id, kind=kind, job_id=job_id)


async def _listed(name: str, listing: Awaitable[Page[T]]) -> Page[T]:
    started = time.perf_counter()
    page = await listing
    ms = round((time.perf_counter() - started) * 1000, 1)
    first, last = (_bound(page.items[0]), _bound(page.items[-1])) if page.items else (None, None)
    emit("page.listed", list=name, rows=len(page.items), ms=ms, first=first, last=last)
    return page


def _bound(row: Any) -> str:
    """Where a page begins or ends."""
    if isinstance(row, Job):
        return str(row.id)
    return f"{row['updated_at'].isoformat()}|{row['id']}" if "updated_at" in row else str(row["id"])
