"""Looking at jobs, items and workers."""

import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from tidemill.domain.job import Job
from tidemill.domain.status import ItemStatus
from tidemill.store import inspect as store
from tidemill.store import jobs
from tidemill.store.database import Database
from tidemill.store.inspect import Page
from tidemill.telemetry.events import emit


async def find_job(db: Database, text: str) -> Job:
    """A job by id, key, or a beginning of its id."""
    return await db.run(jobs.get, await db.run(jobs.find, text))


async def list_items(db: Database, job_id: UUID, status: ItemStatus | None, *, limit: int, after: Any = None) -> Page:
    """A page of items; its ``after`` is what to ask with for the next one."""
    started = time.monotonic()
    page = await db.run(store.list_items, job_id, status, limit=limit, after=after)
    ms = round((time.monotonic() - started) * 1000, 1)
    first, last = (_place(page.items[0]), _place(page.items[-1])) if page.items else (None, None)
    emit("page.listed", list="items", rows=len(page.items), ms=ms, first=first, last=last)
    return page


def _place(item: dict[str, Any]) -> str:
    return f"{item['updated_at']}|{item['seq']}"


async def walk_items(
    db: Database, job_id: UUID, status: ItemStatus | None, *, most: int
) -> AsyncIterator[dict[str, Any]]:
    """Item after item, page by page."""
    after, left = None, most
    while left > 0:
        page = await list_items(db, job_id, status, limit=min(left, 500), after=after)
        for item in page.items:
            yield item
        left -= len(page.items)
        after = page.after
        if after is None:
            return
