"""Reads jobs, items and batches, pending items and dead letters.

``owner_id`` None selects the jobs of all users. The caller must check permissions.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

from tidemill.core.errors import InvalidInput
from tidemill.core.job import Job
from tidemill.core.list_pages import PAGE_MAX_ROWS, Page, check_page_limit, check_storable_text, check_time_zones
from tidemill.core.progress import ProgressRates
from tidemill.core.result_grid import GridCell, GridColumns, GridRow, build_row_cells
from tidemill.core.row_ranges import SeqRange
from tidemill.core.status import TERMINAL_ITEM_STATUSES, ItemStatus, JobStatus
from tidemill.runtime import FindKindHooks, Runtime, return_no_kind_hooks
from tidemill.store import (
    dead_letter_lists,
    item_lists,
    item_records,
    item_selection,
    job_records,
    progress_samples,
    users,
)
from tidemill.store import item_records as store
from tidemill.store.database import Database
from tidemill.store.dead_letter_lists import (
    DeadLetterCounts,
    DeadLetterGroups,
    DeadLetterListRequest,
    RetryForecast,
)
from tidemill.store.job_lifecycle import CANCELLABLE_STATUSES
from tidemill.store.job_records import ItemListScope, JobStatusCounts, OpenItemSums, read_item_list_scope
from tidemill.telemetry.events import emit

T = TypeVar("T")
REPROCESSED_STATUSES = (ItemStatus.FAILED, ItemStatus.NOT_FOUND)  # unless a request selects others
ViewRow = dict[str, Any]


async def get_job_by_reference(db: Database, text: str, owner_id: int | None = None) -> Job:
    """Return a job by id, key or id prefix; raise UnknownJob if the owner has no such job."""
    return await db.read(job_records.get_job, await find_job_id(db, text, owner_id))


async def get_job(db: Database, job_id: UUID) -> Job:
    """Return the current state of a job; raise UnknownJob if it does not exist."""
    return await db.read(job_records.get_job, job_id)


async def find_job_id(db: Database, reference: str, owner_id: int | None) -> UUID:
    """Return the id of a job by id, key or id prefix; raise UnknownJob if the owner has no such job."""
    return await db.read(job_records.find_job_id, reference, owner_id)


async def find_owner_id(db: Database, name: str) -> int:
    """Return the id of a user by name or id; raise UnknownUser if no such user exists."""
    return (await db.run(users.get_user, name)).id


async def get_job_rates(db: Database, job: Job) -> ProgressRates:
    """Return the rate of a job and its estimated completion."""
    return await db.read(progress_samples.read_job_rates, job)


async def get_job_by_name(db: Database, name: str, owner_id: int | None) -> Job:
    """Return a job by its complete id or key."""
    return await db.read(job_records.get_job_by_id_or_key, name, owner_id)


async def list_jobs(
    db: Database,
    *,
    owner_id: int | None = None,
    statuses: Sequence[JobStatus] = (),
    kind: str | None = None,
    created_from: datetime | None = None,
    created_to: datetime | None = None,
    q: str | None = None,
    search: str | None = None,
    limit: int = 50,
    after: object = None,
) -> Page[Job]:
    """Return a page of jobs, newest first.

    ``q`` is the prefix of a key or id, ``search`` a part of a key, file name, resource or dataset in any case.
    """
    check_page_limit(limit)
    check_time_zones(created_from, created_to)
    check_storable_text("The filter", kind, q, search)
    request = job_records.JobListRequest(owner_id, statuses, kind, created_from, created_to, q, search)
    return await _await_page_and_emit_event("jobs", db.read(job_records.list_jobs, request, limit=limit, after=after))


async def list_newest_jobs(db: Database, limit: int, *, statuses: Sequence[JobStatus] = ()) -> list[Job]:
    """Return the newest jobs, at most ``limit``."""
    newest: list[Job] = []
    after: object = None
    while len(newest) < limit:
        page = await list_jobs(db, statuses=statuses, limit=min(limit - len(newest), PAGE_MAX_ROWS), after=after)
        newest += page.items
        after = page.after
        if after is None:
            break
    return newest


async def count_jobs(db: Database, owner_id: int | None = None) -> JobStatusCounts:
    """Return the number of jobs by status."""
    return await db.read(job_records.count_jobs_by_status, owner_id)


async def get_item_list_scope(db: Database, job: UUID | str, owner_id: int | None = None) -> ItemListScope:
    """Return the data of a job, by id or key, that item lists need."""
    return await db.read(read_item_list_scope, job, owner_id)


async def list_items(
    db: Database,
    job: UUID | ItemListScope,
    statuses: Sequence[ItemStatus] = (),
    *,
    limit: int,
    after: object = None,
    seq: int | None = None,
    codes: Sequence[str] | None = None,
    key: str | None = None,
    sort: item_lists.ItemSort | None = None,
) -> Page[ViewRow]:
    """Return a page of items; its ``after`` is the cursor of the next page. ``seq`` sets the first item."""
    check_page_limit(limit)
    check_storable_text("The error code", *(codes or ()))
    check_storable_text("The key", key)
    request = item_lists.ItemListRequest(statuses, after, seq, codes, key or None, sort)
    grid = job if isinstance(job, ItemListScope) else await get_item_list_scope(db, job)
    return await _await_page_and_emit_event("items", item_lists.list_items(db, grid, request, limit=limit))


async def read_inputs_shown_in_grid(db: Database, grid: ItemListScope, items: Sequence[ViewRow]) -> dict[int, Any]:
    """Return the inputs of a page by seq; empty if the grid does not show inputs."""
    if grid.columns.value_key != "input" or not items:
        return {}
    return await db.run(item_records.read_small_inputs, grid.id, [item["seq"] for item in items])


async def iterate_items(
    db: Database, job_id: UUID, status: ItemStatus | None, *, limit: int, with_details: bool = False
) -> AsyncGenerator[dict[str, Any]]:
    """Iterate over items with complete inputs and results, read page by page.

    With ``with_details``, items also have their attempts, and errors the traceback of the last attempt.
    """
    after, left = None, limit
    statuses = [] if status is None else [status]
    while left > 0:
        page = await list_items(db, job_id, statuses, limit=min(left, 500), after=after)
        inputs = await db.run(item_records.read_small_inputs, job_id, [item["seq"] for item in page.items])
        if with_details:
            details = await db.run(item_records.read_outcome_details, job_id, [item["seq"] for item in page.items])
            for item in page.items:
                item_records.add_outcome_details(item, details.get(item["seq"]))
        for item in page.items:
            if item["result_cut"] or item["seq"] not in inputs:  # too long for a page
                complete = await get_item(db, job_id, item["seq"])
                yield item | {"input": complete["input"], "result": complete["result"]}
            else:
                yield item | {"input": inputs[item["seq"]]}
        left -= len(page.items)
        after = page.after
        if after is None:
            return


async def get_item(db: Database, job_id: UUID, seq: int) -> ViewRow:
    """Return one item with all details; raise UnknownItem if it does not exist."""
    return await db.read_snapshot(store.read_item_details, job_id, seq)


async def count_eligible_items(
    db: Database,
    job_id: UUID,
    purpose: Literal["reprocess", "cancel", "export"],
    statuses: Sequence[ItemStatus] = (),
    *,
    reset_attempts: bool = True,
    seqs: Collection[int] | None = None,
    codes: Sequence[str] | None = None,
    excluded_seqs: Collection[int] = (),
    key: str | None = None,
    ranges: Sequence[SeqRange] = (),
    find_kind_hooks: FindKindHooks = return_no_kind_hooks,
) -> tuple[int, bool]:
    """Return the number of selected items that an operation would include, and whether all were counted."""
    check_storable_text("The filter", key, *(codes or ()))
    eligible: Collection[ItemStatus] = ()
    if purpose == "cancel":
        eligible = CANCELLABLE_STATUSES
    elif purpose == "reprocess":
        hooks = find_kind_hooks((await get_job(db, job_id)).kind)
        keeps_done = hooks is not None and hooks.done_refusal is not None
        eligible = TERMINAL_ITEM_STATUSES - {ItemStatus.DONE} if keeps_done else TERMINAL_ITEM_STATUSES
        statuses = statuses or REPROCESSED_STATUSES
    counted = [status for status in statuses if not eligible or status in eligible]
    if statuses and not counted:
        return 0, True
    selection = item_selection.CountSelection(
        counted or sorted(eligible),
        seqs,
        codes,
        excluded_seqs=excluded_seqs,
        key=key,
        reprocessable_only=purpose == "reprocess",
        excludes_permanent_failures=purpose == "reprocess" and not reset_attempts,
        ranges=ranges,
    )
    return await db.run(item_selection.count_items, job_id, selection)


async def get_progress_chart(db: Database, job_id: UUID) -> list[progress_samples.ProgressPoint]:
    """Return the number of settled items over time, in about 100 points."""
    return await db.read(progress_samples.read_progress_chart, job_id)


async def get_throughput(db: Database, owner_id: int | None) -> ViewRow:
    """Return open items by status, and items settled per 30 s in the last 15 minutes."""
    return await db.read_snapshot(progress_samples.read_throughput, owner_id)


async def list_batches(db: Database, job_id: UUID, *, limit: int, after: object = None) -> Page[ViewRow]:
    """Return a page of batches, newest first."""
    check_page_limit(limit)
    return await _await_page_and_emit_event(
        "batches", db.run(job_records.list_batches, job_id, limit=limit, after=after)
    )


async def list_activity(db: Database, job_id: UUID, *, limit: int, after: object = None) -> Page[ViewRow]:
    """Return a page of user actions on a job, newest first."""
    check_page_limit(limit)
    return await _await_page_and_emit_event(
        "activity", db.run(job_records.list_activity, job_id, limit=limit, after=after)
    )


async def list_pending_items(
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
) -> Page[ViewRow]:
    """Return a page of open items across jobs, longest unchanged first, each with the reason why it waits."""
    check_page_limit(limit)
    check_time_zones(from_, to)
    check_storable_text("The filter", kind)
    invalid = [status.value for status in statuses if status not in item_lists.OPEN_STATUSES]
    if invalid:
        raise InvalidInput(
            f"Items with status {', '.join(invalid)} are not waiting. Filter by pending, processing or retry_wait."
        )
    request = item_lists.OpenItemListRequest(statuses or item_lists.OPEN_STATUSES, job_id, owner_id, kind, from_, to)
    return await _await_page_and_emit_event(
        "pending", db.read_snapshot(item_lists.list_open_items_with_reasons, request, limit=limit, after=after)
    )


async def count_open_items_by_kind_and_status(db: Database, owner_id: int | None = None) -> OpenItemSums:
    """Return the number of open items by kind and status, from the counters of batches."""
    return await db.run(job_records.sum_open_items, owner_id)


def _build_dead_letter_request(
    owner_id: int | None, kind: str | None, codes: Sequence[str] | None, **filters: Any
) -> DeadLetterListRequest:
    check_time_zones(filters.get("from_"), filters.get("to"))
    check_storable_text("The filter", kind, *(codes or ()))
    return DeadLetterListRequest(owner_id, kind, codes, **filters)


async def list_dead_letters(
    db: Database,
    *,
    owner_id: int | None = None,
    kind: str | None = None,
    codes: Sequence[str] | None = None,
    job_id: UUID | None = None,
    from_: datetime | None = None,
    to: datetime | None = None,
    category: str | None = None,
    group: str | None = None,
    dismissed: bool = False,
    limit: int,
    after: object = None,
) -> Page[ViewRow]:
    """Return a page of failed items across jobs, newest first: those that are not dismissed, or the dismissed ones."""
    check_page_limit(limit)
    filters = {"job_id": job_id, "from_": from_, "to": to, "category": category, "group": group}
    request = _build_dead_letter_request(owner_id, kind, codes, **filters, dismissed=dismissed)
    return await _await_page_and_emit_event(
        "dead_letters", db.read_snapshot(dead_letter_lists.list_dead_letters, request, limit=limit, after=after)
    )


async def group_dead_letters(
    db: Database,
    *,
    owner_id: int | None = None,
    kind: str | None = None,
    job_id: UUID | None = None,
    from_: datetime | None = None,
    to: datetime | None = None,
    category: str | None = None,
    dismissed: bool = False,
) -> tuple[str, DeadLetterCounts, DeadLetterGroups]:
    """Return a category, the counts of all categories, and groups of the newest 10,000 items of this category.

    Without ``category``, the first of handler, invalid_row and dry_run that has items is used. Dismissed items of
    all categories are grouped together.
    """
    request = _build_dead_letter_request(
        owner_id, kind, None, job_id=job_id, from_=from_, to=to, category=category, dismissed=dismissed
    )
    if job_id is not None:
        await get_item_list_scope(db, job_id, owner_id)  # raises UnknownJob
    counts = await db.read(dead_letter_lists.count_dead_letters, owner_id, kind=kind, job_id=job_id)
    if category is None and not dismissed:
        filled = (name for name in dead_letter_lists.CATEGORIES if getattr(counts, name))
        request = replace(request, category=next(filled, dead_letter_lists.CATEGORIES[0]))
    groups = await db.read_snapshot(dead_letter_lists.group_dead_letters, request)
    return request.category or "dismissed", counts, groups


async def forecast_retry(
    db: Database,
    *,
    owner_id: int | None,
    items: Sequence[tuple[UUID, int]] | None,
    excluded_items: Sequence[tuple[UUID, int]] = (),
    kind: str | None = None,
    codes: Sequence[str] | None = None,
    **filters: Any,
) -> RetryForecast:
    """Classify the items that a redrive would retry by its probable result. Reads the newest 10,000 that match."""
    request = _build_dead_letter_request(owner_id, kind, codes, **filters)
    return await db.read_snapshot(dead_letter_lists.forecast_retry, request, items=items, excluded_items=excluded_items)


async def list_dead_letter_causes(
    db: Database, owner_id: int | None = None, *, kind: str | None = None, job_id: UUID | None = None
) -> list[ViewRow]:
    """Return dead letters by error code: their number, the number of jobs, and when one of these jobs last changed."""
    check_storable_text("The filter", kind)
    return await db.run(dead_letter_lists.list_dead_letter_causes, owner_id, kind=kind, job_id=job_id)


async def _await_page_and_emit_event(name: str, listing: Awaitable[Page[T]]) -> Page[T]:
    started = time.perf_counter()
    page = await listing
    ms = round((time.perf_counter() - started) * 1000, 1)
    first, last = (
        (_format_row_for_log(page.items[0]), _format_row_for_log(page.items[-1])) if page.items else (None, None)
    )
    emit("page.listed", list=name, rows=len(page.items), ms=ms, first=first, last=last)
    return page


def _format_row_for_log(row: Any) -> str:
    """Return the first or last row of a page in short form, for the log."""
    if isinstance(row, Job):
        return str(row.id)
    return f"{row['updated_at'].isoformat()}|{row['id']}" if "updated_at" in row else str(row["id"])


async def get_grid_columns(db: Database, job_id: UUID) -> GridColumns:
    """Return the columns of a job's grid and exports, in order."""
    return (await db.read(read_item_list_scope, job_id)).columns


async def load_grid_cells_of_items(
    db: Database, job_id: UUID, items: Sequence[GridRow]
) -> tuple[GridColumns, list[list[GridCell]]]:
    """Return the cells of a page of items, in the same form as an export.

    Lists omit results and inputs above 16 kB; ``get_item`` returns them.
    """
    columns = await get_grid_columns(db, job_id)
    if columns.value_key == "input":
        inputs = await db.run(item_records.read_small_inputs, job_id, [item["seq"] for item in items])
        items = [{**item, "input": inputs.get(item["seq"])} for item in items]
    return columns, [build_row_cells(columns, item) for item in items]


PENDING_COUNT_CACHE_S = 30.0
PENDING_COUNT_OWNERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class PendingCount:
    """The number of open items, and the age of this number."""

    count: int
    age_s: float


class PendingCountCache:
    """Caches the number of open items per owner for 30 s. Concurrent requests share one query."""

    def __init__(
        self, db: Database, *, cache_s: float = PENDING_COUNT_CACHE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._db = db
        self._cache_s = cache_s
        self._clock = clock
        self._summed: dict[int | None, tuple[float, asyncio.Future[OpenItemSums]]] = {}

    async def get(
        self, owner_id: int | None = None, *, statuses: Collection[ItemStatus] = (), kind: str | None = None
    ) -> PendingCount:
        """Return the number of open items, optionally with these statuses and this kind."""
        at, sum_ = self._summed.get(owner_id, (float("-inf"), None))
        if sum_ is None or self._clock() - at >= self._cache_s:
            at, sum_ = self._clock(), asyncio.ensure_future(count_open_items_by_kind_and_status(self._db, owner_id))
            self._evict_expired()
            self._summed[owner_id] = (at, sum_)
        try:
            sums = await asyncio.shield(sum_)
        except Exception:
            self._summed.pop(owner_id, None)  # the next request queries again
            raise
        matching = (
            n for (of, status), n in sums.items() if kind in (None, of) and (not statuses or status in statuses)
        )
        return PendingCount(sum(matching), self._clock() - at)

    def _evict_expired(self) -> None:
        if len(self._summed) >= PENDING_COUNT_OWNERS_MAX:
            now = self._clock()
            self._summed = {owner: entry for owner, entry in self._summed.items() if now - entry[0] < self._cache_s}


def make_pending_count_cache(runtime: Runtime) -> PendingCountCache:
    return PendingCountCache(runtime.db)
