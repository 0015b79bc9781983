"""Reads, lists, counts and locks jobs, sets their intent, and records what users did to them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tidemill.core.errors import UnknownJob
from tidemill.core.job import Counts, Job
from tidemill.core.job_id_range import (
    JOB_ID_MAX,
    JOB_ID_MIN,
    JobIdRange,
    build_job_lookup_params,
    parse_complete_id_or_dated_key,
    parse_id_prefix_to_bounds,
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
from tidemill.core.result_grid import GRID_COLUMNS_MAX, GridColumns, resolve_grid_columns
from tidemill.core.status import Intent, ItemStatus, JobStatus, derive_job_status
from tidemill.store.database import Connection
from tidemill.store.jsonb import decode_input_or_text
from tidemill.store.statements import RowDict, fetch_records, fetch_rows, sql

ACTIVITY_ORDER = ListOrder("activity", (parse_number,))


async def add_activity(conn: Connection, job_id: UUID, user_id: int, verb: str, /, **details: Any) -> None:
    """Record what a user does to a job, in the same transaction."""
    params = {"job_id": job_id, "user_id": user_id, "verb": verb, "details": Jsonb(details)}
    await conn.execute(sql("activity/add"), params)


async def list_activity(conn: Connection, job_id: UUID, *, limit: int, after: object = None) -> Page[RowDict]:
    """Return a page of a job's activity, newest first."""
    mark = fingerprint_filters(job_id)
    (before,) = (BIGINT_SAFE_MAX,) if after is None else ACTIVITY_ORDER.parse_position(after, mark)
    rows = await fetch_rows(conn, sql("activity/list"), {"job_id": job_id, "before": before, "limit": limit + 1})
    return Page(rows[:limit], ACTIVITY_ORDER.build_position(mark, rows[limit - 1]["id"]) if len(rows) > limit else None)


MIN_ID_PREFIX_DIGITS = 4  # the shortest prefix of an id that identifies a job
_COUNT_COLUMNS = (
    "total",
    "pending",
    "processing",
    "retry_wait",
    "done",
    "not_found",
    "skipped",
    "failed",
    "cancelled",
)
_JOB_COLUMNS = (
    "id",
    "key",
    "kind",
    "owner_id",
    "priority",
    "failure_reason",
    "created_at",
    "updated_at",
    "started_at",
    "closed_at",
    "idle_s",
    "purged_at",
    "params",
    "policy",
    "retried",
    "file_id",
    "request_id",
    "traceparent",
)


async def get_job(conn: Connection, job_id: UUID) -> Job:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/get"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f'Unknown job "{job_id}"')
    return _parse_job(row)


async def get_job_by_id_or_key(conn: Connection, name: str, owner_id: int | None = None) -> Job:
    """Return a job by id or key. Raises UnknownJob, also for a job of another owner than ``owner_id``."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/get_named"), build_job_lookup_params(name))
        row = await cursor.fetchone()
    if row is None or owner_id not in (None, row["owner_id"]):
        raise UnknownJob(f'Unknown job "{name}"')
    return _parse_job(row)


async def read_job_event_fields(conn: Connection, job_id: UUID) -> dict[str, Any]:
    """Return the fields that every event about a job has; empty if the job was deleted."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/facts"), {"job_id": job_id})
        return await cursor.fetchone() or {}


async def get_jobs(conn: Connection, job_ids: Sequence[UUID]) -> list[Job]:
    """Return the jobs that exist, newest first."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/get_many"), {"ids": list(job_ids)})
        return [_parse_job(row) for row in await cursor.fetchall()]


async def list_open_or_changed_jobs(
    conn: Connection,
    job_ids: Sequence[UUID],
    owner_ids: Sequence[int],
    *,
    all_owners: bool,
    since: datetime,
    limit: int = 100,
) -> list[Job]:
    """Return the named jobs, and the jobs of some or all owners that are open or changed after ``since``."""
    params = {"job_ids": list(job_ids), "owner_ids": list(owner_ids), "all": all_owners}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/watched"), params | {"since": since, "limit": limit})
        return [_parse_job(row) for row in await cursor.fetchall()]


async def find_job_id(conn: Connection, text: str, owner_id: int | None = None) -> UUID:
    """Find a job by its id, its key, or a unique prefix of its id.

    Raises UnknownJob if there is no such job, more than one, or only jobs of another owner than ``owner_id``.
    """
    unknown = UnknownJob(f'Unknown job "{text}"')
    if not text.isprintable():  # not a key or id, and PostgreSQL may reject the text
        raise unknown
    ids = parse_id_prefix_to_bounds(text) if len(text.replace("-", "")) >= MIN_ID_PREFIX_DIGITS else None
    lo, hi = ids or (JOB_ID_MAX, JOB_ID_MIN)
    name = "job/find" if owner_id is None else "job/find_of_owner"
    cursor = await conn.execute(sql(name), {"text": text.upper(), "lo": lo, "hi": hi, "owner_id": owner_id})
    ids_found = {row[0] for row in await cursor.fetchall()}
    if len(ids_found) > 1:
        raise UnknownJob(f'More than one job ID starts with "{text}". Use more digits.')
    if not ids_found:
        raise unknown
    return ids_found.pop()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class LockedJob:
    """The columns of a job that decide what may be done with it, read under its lock."""

    id: UUID
    owner_id: int
    kind: str
    intent: str
    ingest_done: bool
    closed_as: str | None
    purged_at: datetime | None


async def lock_job(conn: Connection, job_id: UUID) -> LockedJob:
    """Lock a job: the first step of every change to the job itself."""
    jobs = await fetch_records(conn, LockedJob, sql("job/lock"), {"job_id": job_id})
    if not jobs:
        raise UnknownJob(f'Unknown job "{job_id}"')
    return jobs[0]


def _parse_job(row: dict[str, Any]) -> Job:
    counts = Counts(**{name: int(row[name]) for name in _COUNT_COLUMNS})
    status = derive_job_status(
        intent=Intent(row["intent"]),
        ingest_done=row["ingest_done"],
        closed_as=JobStatus(row["closed_as"]) if row["closed_as"] else None,
        total=counts.total,
        started=counts.pending != counts.total,
    )
    return Job(
        status=status,
        counts=counts,
        duration_s=compute_duration_s(row["started_at"], row["closed_at"], row["idle_s"]),
        ingest_complete=row["ingest_done"],
        codes={code: int(n) for code, n in row["codes"].items()},
        intent=Intent(row["intent"]),
        source=None if row["source"] is None else row["source"].get("format"),
        file_name=None if row["source"] is None else row["source"].get("name") or None,
        result_columns=tuple(row["result_columns"]),
        ip_address=None if row["ip_address"] is None else str(row["ip_address"]),
        **{name: row[name] for name in _JOB_COLUMNS},
    )


def compute_duration_s(started_at: datetime | None, closed_at: datetime | None, idle_s: float) -> float | None:
    """Return the seconds from start to close, without ``idle_s``; None if the job has not started or is open."""
    if started_at is None or closed_at is None:
        return None
    return max(0.0, (closed_at - started_at).total_seconds() - idle_s)


async def read_job_params(conn: Connection, job_id: UUID) -> dict[str, Any]:
    """Return the parameters of a job."""
    cursor = await conn.execute(sql("job/params"), {"job_id": job_id})
    row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f'Unknown job "{job_id}"')
    return row[0]  # type: ignore[no-any-return]


async def find_active_job_ids(conn: Connection, job_ids: Sequence[UUID]) -> set[UUID]:
    """Return the jobs that exist and are neither cancelled nor failed."""
    cursor = await conn.execute(sql("job/going_on"), {"ids": list(job_ids)})
    return {row[0] for row in await cursor.fetchall()}


async def set_job_params(conn: Connection, job_id: UUID, params: dict[str, Any]) -> None:
    """Replace the parameters of a job, for example with facts from its source."""
    await conn.execute(sql("job/set_params"), {"job_id": job_id, "params": Jsonb(params)})


async def list_targets_of_owner(conn: Connection, owner_id: int, kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Return (kind, name) of the resources and datasets that an owner's jobs of these kinds read or write."""
    cursor = await conn.execute(sql("job/targets"), {"owner_id": owner_id, "kinds": list(kinds)})
    return await cursor.fetchall()


async def add_result_columns(conn: Connection, job_id: UUID, names: list[str]) -> list[str] | None:
    """Add new result columns to a job. Return all its columns, or None if the job was deleted."""
    known = await _fetch_result_columns_of_job(conn, job_id)
    if known is None or set(names) <= set(known):
        return known
    cursor = await conn.execute(sql("job/learn_columns"), {"job_id": job_id, "names": names, "most": GRID_COLUMNS_MAX})
    row = await cursor.fetchone()
    return row[0] if row is not None else await _fetch_result_columns_of_job(conn, job_id)


async def _fetch_result_columns_of_job(conn: Connection, job_id: UUID) -> list[str] | None:
    cursor = await conn.execute(sql("job/columns"), {"job_id": job_id})
    row = await cursor.fetchone()
    return None if row is None else row[0]


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
