"""Lists jobs and their batches, newest first; counts jobs by status and open items."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tidemill.core.errors import UnknownJob
from tidemill.core.job import Job
from tidemill.core.job_id_range import (
    JobIdRange,
    build_job_lookup_params,
    parse_complete_id_or_dated_key,
    parse_job_prefix,
)
from tidemill.core.list_pages import (
    BIGINT_SAFE_MAX,
    PAGE_BATCH_BUDGET,
    PAGE_SEARCH_BUDGET,
    ListOrder,
    Page,
    fingerprint_filters,
    parse_cursor_uuid,
    parse_number,
)
from tidemill.core.result_grid import GridColumns, resolve_grid_columns
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.store.database import Connection
from tidemill.store.job_records import get_jobs
from tidemill.store.jsonb import decode_input_or_text
from tidemill.store.statements import RowDict, fetch_rows, sql


@dataclass(frozen=True, slots=True)
class ItemListScope:
    """What a list of a job's items needs: the job, its number of items, and the columns to show."""

    id: UUID
    owner_id: int
    kind: str
    sparse: bool
    purged: bool
    total: int
    columns: GridColumns


async def read_item_list_scope(conn: Connection, job: UUID | str, owner_id: int | None = None) -> ItemListScope:
    """Find a job by id or key. Raises UnknownJob, also for a job of another owner."""
    rows = await fetch_rows(conn, sql("job/grid"), build_job_lookup_params(job))
    if not rows or owner_id not in (None, rows[0]["owner_id"]):
        raise UnknownJob(f'Unknown job "{job}"')
    row = rows[0]
    first_input = row.pop("first_input")
    names = row.pop("result_columns")
    return ItemListScope(
        **row, columns=resolve_grid_columns(names, None if first_input is None else decode_input_or_text(first_input))
    )


JOBS_ORDER = ListOrder("jobs", (parse_cursor_uuid,))


@dataclass(frozen=True, slots=True)
class JobListRequest:
    """Filters for jobs: ``q`` is a prefix of a key or id, ``search`` a part of a key, file name, resource or dataset.

    A search for a complete id, or for the start of a key with its day, reads only the jobs of that day.
    """

    owner_id: int | None = None
    statuses: Sequence[JobStatus] = ()
    kind: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    q: str | None = None
    search: str | None = None

    @property
    def fingerprint(self) -> str:
        created = (self.created_from, self.created_to)
        return fingerprint_filters(self.owner_id, sorted(set(self.statuses)), self.kind, *created, self.q, self.search)

    @property
    def id_range(self) -> JobIdRange | None:
        ids = JobIdRange() if self.q is None else parse_job_prefix(self.q)
        searched = None if self.search is None else parse_complete_id_or_dated_key(self.search)
        if ids is not None and searched is not None:
            ids = ids.intersect(searched.lo, searched.hi)
        return None if ids is None else ids.limit_to_created(self.created_from, self.created_to)

    @property
    def searched_text(self) -> str | None:
        """The text that the key or a name must contain; None if the range of ids is enough."""
        if self.search is None:
            return None
        ids = parse_complete_id_or_dated_key(self.search)
        return None if ids is not None and ids.lo == ids.hi else self.search.strip()

    @property
    def candidate_statuses(self) -> list[str] | None:
        """The preliminary statuses that may match. Only the counts show whether a running job is still pending."""
        words = {status.value for status in self.statuses if status is not JobStatus.PENDING}
        if JobStatus.PENDING in self.statuses:
            words |= {JobStatus.RUNNING, JobStatus.INGESTING}
        return sorted(words) or None


async def list_jobs(conn: Connection, request: JobListRequest, *, limit: int, after: object = None) -> Page[Job]:
    """Return a page of jobs. A page may be short but not the last, because the number of scanned jobs is limited."""
    before = None if after is None else JOBS_ORDER.parse_position(after, request.fingerprint)[0]
    ids = request.id_range
    if ids is not None and before is not None:
        ids = ids.limit_to_before(before)
    if ids is None or ids.is_empty:
        return Page([], None)
    rows = await _fetch_candidate_job_rows(conn, request, ids, limit)
    picked: list[UUID] = [row["id"] for row in rows[:limit] if not row["is_end"]]
    jobs = await get_jobs(conn, picked)
    shown = [job for job in jobs if not request.statuses or job.status in request.statuses]
    if len(rows) > limit:
        return Page(shown, JOBS_ORDER.build_position(request.fingerprint, picked[-1]))
    if rows and rows[-1]["is_end"]:
        return Page(shown, JOBS_ORDER.build_position(request.fingerprint, UUID(int=rows[-1]["id"].int + 1)))
    return Page(shown, None)


async def _fetch_candidate_job_rows(
    conn: Connection, asked: JobListRequest, ids: JobIdRange, limit: int
) -> list[RowDict]:
    params = {
        "lo": ids.lo,
        "hi": ids.hi,
        "prefix": ids.prefix,
        "words": asked.candidate_statuses,
        "kind": asked.kind,
        "created_from": asked.created_from,
        "created_to": asked.created_to,
        "search": asked.searched_text,
        "budget": PAGE_BATCH_BUDGET if asked.search is None else PAGE_SEARCH_BUDGET,
        "limit": limit + 1,
    }
    if asked.owner_id is None:
        return await fetch_rows(conn, sql("job/pick_of_all"), params)
    return await fetch_rows(conn, sql("job/pick_of_owner"), params | {"owner_id": asked.owner_id})


JOB_COUNT_BUDGET = 10_000  # the newest jobs
JOB_COUNT_MAX_REFINED = 500  # running jobs whose counts are read to find the pending ones


@dataclass(frozen=True, slots=True)
class JobStatusCounts:
    """Number of jobs by status; ``is_complete`` is false if there are more jobs than were read."""

    counts: dict[str, int]
    is_complete: bool


async def count_jobs_by_status(conn: Connection, owner_id: int | None) -> JobStatusCounts:
    name = "job/words_of_all" if owner_id is None else "job/words_of_owner"
    rows = await fetch_rows(conn, sql(name), {"owner_id": owner_id, "budget": JOB_COUNT_BUDGET})
    seen = sum(row["n"] for row in rows)
    counts = Counter({row["word"]: row["n"] for row in rows})
    are_refined = True
    for row in rows:
        ids = row["ids"] or []
        are_refined &= len(ids) <= JOB_COUNT_MAX_REFINED
        for job in await get_jobs(conn, ids[:JOB_COUNT_MAX_REFINED]):
            counts[row["word"]] -= 1
            counts[job.status.value] += 1
    return JobStatusCounts(
        {status.value: counts[status.value] for status in JobStatus}, are_refined and seen < JOB_COUNT_BUDGET
    )


BATCHES_ORDER = ListOrder("batches", (parse_number,))
OpenItemSums = dict[tuple[str, ItemStatus], int]  # by kind and status


async def list_batches(conn: Connection, job_id: UUID, *, limit: int, after: object = None) -> Page[RowDict]:
    """Return a page of a job's batches, newest first."""
    mark = fingerprint_filters(job_id)
    (before,) = (BIGINT_SAFE_MAX,) if after is None else BATCHES_ORDER.parse_position(after, mark)
    await read_item_list_scope(conn, job_id)
    rows = await fetch_rows(conn, sql("batch/list"), {"job_id": job_id, "before": before, "limit": limit + 1})
    return Page(rows[:limit], BATCHES_ORDER.build_position(mark, rows[limit - 1]["id"]) if len(rows) > limit else None)


async def sum_open_items(conn: Connection, owner_id: int | None) -> OpenItemSums:
    """Count open items by kind and status, reading one row per batch."""
    name = "batch/sum_open_of_all" if owner_id is None else "batch/sum_open_of_owner"
    cursor = await conn.execute(sql(name), {"owner_id": owner_id})
    return {(kind, ItemStatus(status)): items for kind, status, items in await cursor.fetchall()}
