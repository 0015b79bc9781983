"""Lists, groups and counts failed items across jobs, newest first."""

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.core.list_pages import (
    PAGE_BATCH_BUDGET,
    ListOrder,
    Page,
    fingerprint_filters,
    parse_cursor_timestamp,
    parse_cursor_uuid,
    parse_number,
)
from tidemill.store.database import Connection
from tidemill.store.job_records import read_item_list_scope
from tidemill.store.statements import RowDict, fetch_item_rows, fetch_rows, sql
from tidemill.store.workers import list_live_kinds

DEAD_LETTERS_ORDER = ListOrder("dead_letters", (parse_number, parse_cursor_timestamp, parse_cursor_uuid, parse_number))
DEAD_LETTERS_OF_JOBS_ORDER = ListOrder(
    "dead_letters_of_jobs", (parse_cursor_uuid, parse_cursor_timestamp, parse_cursor_uuid, parse_number)
)
DEAD_LETTER_OWNERS_PER_PAGE = 50  # each owner costs an index lookup in every weekly partition
DEAD_LETTER_JOBS_PER_PAGE = 50
MAX_DEAD_LETTER_CAUSES = 1_000
MAX_GROUPED_DEAD_LETTERS = 10_000
MAX_DEAD_LETTER_GROUPS = 200
MAX_GROUPING_PAGES = 40
GROUPING_PAGE_ROWS = 5_000
CATEGORIES = ("handler", "invalid_row", "dry_run")
_NEWEST_POSITION = (datetime.max.replace(tzinfo=UTC), UUID(int=0), -1)
_LAST_JOB_ID = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class DeadLetterListRequest:
    """Filters for dead letters. None means no filter; ``group`` is the id of a group of ``group_dead_letters``."""

    owner_id: int | None = None
    kind: str | None = None
    codes: Sequence[str] | None = None
    job_id: UUID | None = None
    from_: datetime | None = None
    to: datetime | None = None
    category: str | None = None
    group: str | None = None
    dismissed: bool = False

    @property
    def fingerprint(self) -> str:
        codes = None if self.codes is None else sorted(set(self.codes))
        scope = (self.owner_id, self.kind, codes, self.job_id, self.from_, self.to)
        return fingerprint_filters(*scope, self.category, self.group, self.dismissed)

    @property
    def is_filtered(self) -> bool:
        return any(part is not None for part in (self.kind, self.codes, self.category, self.group))

    @property
    def reads_by_job(self) -> bool:
        """Whether to read job by job: the counters show which jobs have failures of a category.

        A million invalid rows of an import are then not read to find ten failures of a handler.
        """
        return self.job_id is not None or (self.category is not None and not self.dismissed)


class _PickedPage(NamedTuple):
    rows: list[RowDict]
    after: tuple[Any, ...] | None


async def list_dead_letters(
    conn: Connection, request: DeadLetterListRequest, *, limit: int, after: object = None
) -> Page[RowDict]:
    """Return a page of dead letters, newest first.

    With more than 50 owners, the order is by groups of 50 owners. With a category, it is by groups of 50 jobs.
    """
    page = await _pick_dead_letter_page(conn, request, limit, after)
    return Page(await _fetch_dead_letters(conn, page.rows), page.after)


async def _pick_dead_letter_page(
    conn: Connection, request: DeadLetterListRequest, limit: int, after: object, *, with_patterns: bool = False
) -> _PickedPage:
    order = DEAD_LETTERS_OF_JOBS_ORDER if request.reads_by_job else DEAD_LETTERS_ORDER
    newest = _LAST_JOB_ID if request.reads_by_job else -1
    first, *cursor = (
        (newest, *_get_start_position(request)) if after is None else order.parse_position(after, request.fingerprint)
    )
    find_sources = _list_jobs_with_dead_letters if request.reads_by_job else _list_owners_with_dead_letters
    sources = await find_sources(conn, request, first)
    rows = (
        await _pick_dead_letters(conn, request, sources, cursor, limit, with_patterns=with_patterns) if sources else []
    )
    ends = [row for row in rows if row["is_end"]]
    picked = [row for row in rows if not row["is_end"]]
    if len(picked) > limit:
        ends = picked[limit - 1 : limit]
    if ends:
        return _PickedPage(
            picked[:limit], order.build_position(request.fingerprint, first, *_get_row_position(ends[0]))
        )
    following = _get_next_owner_or_job(request, sources)
    if following is None:
        return _PickedPage(picked, None)
    return _PickedPage(picked, order.build_position(request.fingerprint, following, *_get_start_position(request)))


def _get_next_owner_or_job(request: DeadLetterListRequest, sources: Sequence[Any]) -> Any:
    """Return where the next group of owners or jobs begins; None if this group is the last."""
    if request.job_id is not None:
        return None
    if not request.reads_by_job:
        return sources[-1] + 1 if len(sources) == DEAD_LETTER_OWNERS_PER_PAGE else None
    return UUID(int=sources[-1].int - 1) if len(sources) == DEAD_LETTER_JOBS_PER_PAGE else None


@dataclass(frozen=True, slots=True)
class DeadLetterGroups:
    """Groups of the newest failed items, largest first. ``grouped`` is the number of items in all groups."""

    groups: list[RowDict]
    grouped: int
    is_complete: bool  # whether these are all failed items, not only the newest


async def group_dead_letters(conn: Connection, request: DeadLetterListRequest) -> DeadLetterGroups:
    """Group the newest 10,000 matching dead letters by kind, error type and message without values.

    A row of an import is in the group of each of its errors.
    """
    rows, is_complete = await _pick_newest_dead_letters(conn, request, with_patterns=True)
    groups: dict[tuple[str, str, str], RowDict] = {}
    for row, (type_, pattern) in [(one, cause) for one in rows for cause in one["causes"]]:
        key = (row["kind"], type_, pattern)
        group = groups.setdefault(
            key,
            {
                "id": _compute_group_id(*key),
                "kind": row["kind"],
                "type": type_,
                "message": pattern,
                "count": 0,
                "first_at": row["updated_at"],
                "last_at": row["updated_at"],
                "example": row,
            },
        )
        group["count"] += 1
        group["first_at"] = min(group["first_at"], row["updated_at"])
        if row["updated_at"] > group["last_at"]:
            group |= {"last_at": row["updated_at"], "example": row}
    largest = sorted(groups.values(), key=lambda group: (-group["count"], group["type"], group["message"]))
    shown = largest[:MAX_DEAD_LETTER_GROUPS]
    examples = {
        (item["job_id"], item["seq"]): item
        for item in await _fetch_dead_letters(conn, [group["example"] for group in shown])
    }
    for group in shown:
        example = group["example"]
        group["example"] = examples.get((example["job_id"], example["seq"]))
    return DeadLetterGroups(shown, len(rows), is_complete)


def _compute_group_id(*parts: str) -> str:
    """Return the same id as the SQL function tidemill.failure_group."""
    return hashlib.md5("\x1f".join(parts).encode(), usedforsecurity=False).hexdigest()


async def _pick_newest_dead_letters(
    conn: Connection, request: DeadLetterListRequest, *, with_patterns: bool = False
) -> tuple[list[RowDict], bool]:
    """Return the newest matching items, at most 10,000, and whether they are all."""
    rows: list[RowDict] = []
    after: object = None
    for _ in range(MAX_GROUPING_PAGES):
        wanted = min(GROUPING_PAGE_ROWS, MAX_GROUPED_DEAD_LETTERS - len(rows))
        page = await _pick_dead_letter_page(conn, request, wanted, after, with_patterns=with_patterns)
        rows += page.rows
        after = page.after
        if after is None or len(rows) >= MAX_GROUPED_DEAD_LETTERS:
            break
    return rows, after is None


@dataclass(frozen=True, slots=True)
class DeadLetterCounts:
    """The number of failed items by category without dismissed ones, and the number of dismissed ones."""

    handler: int
    invalid_row: int
    dry_run: int
    dismissed: int
    is_exact: bool  # False if there are more dismissed items than were counted


async def count_dead_letters(
    conn: Connection, owner_id: int | None, *, kind: str | None = None, job_id: UUID | None = None
) -> DeadLetterCounts:
    """Count dead letters from counters, and at most 10,000 dismissed items."""
    params = {"owner_id": owner_id, "kind": kind, "job_id": job_id, "limit": MAX_GROUPED_DEAD_LETTERS + 1}
    failed = {row["category"]: row["items"] for row in await fetch_rows(conn, sql("job/dead_letter_counts"), params)}
    dismissed = {
        row["category"]: row["items"] for row in await fetch_rows(conn, sql("outcome/count_dismissed"), params)
    }
    n = sum(dismissed.values())
    left = {name: max(0, failed.get(name, 0) - dismissed.get(name, 0)) for name in CATEGORIES}
    return DeadLetterCounts(**left, dismissed=min(n, MAX_GROUPED_DEAD_LETTERS), is_exact=n <= MAX_GROUPED_DEAD_LETTERS)


@dataclass(frozen=True, slots=True)
class RetryForecast:
    """What a retry of failed items will probably do. Each item counts once, under the first reason that applies."""

    dry_run: int = 0
    invalid_row: int = 0
    no_worker: int = 0
    poison: int = 0
    not_retryable: int = 0
    retryable: int = 0
    is_complete: bool = True


async def forecast_retry(
    conn: Connection,
    request: DeadLetterListRequest,
    *,
    items: Sequence[tuple[UUID, int]] | None,
    excluded_items: Collection[tuple[UUID, int]] = (),
) -> RetryForecast:
    """Classify the given failed items, or the newest 10,000 that match, by the probable result of a retry."""
    if items is None:
        rows, is_complete = await _pick_newest_dead_letters(conn, request)
    else:
        keys = {"job_ids": [job_id for job_id, _ in items], "seqs": [seq for _, seq in items]}
        params = keys | {"owner_id": request.owner_id}
        rows, is_complete = await fetch_rows(conn, sql("outcome/describe_dead_letters"), params), True
    live, excluded = await list_live_kinds(conn), set(excluded_items)
    reasons = Counter(_classify_retry_result(row, live) for row in rows if (row["job_id"], row["seq"]) not in excluded)
    return RetryForecast(**reasons, is_complete=is_complete)


def _classify_retry_result(row: RowDict, live_kinds: set[str]) -> str:
    if row["category"] != "handler":
        return str(row["category"])
    if row["kind"] not in live_kinds:
        return "no_worker"
    if row["code"] == "poison":
        return "poison"
    return "retryable" if row["is_retryable"] else "not_retryable"


async def list_dead_letter_causes(
    conn: Connection, owner_id: int | None, *, kind: str | None = None, job_id: UUID | None = None
) -> list[RowDict]:
    """Return the error codes of dead letters with the number of items and jobs and the time of the last change."""
    if job_id is not None:
        await read_item_list_scope(conn, job_id, owner_id)
    params = {"owner_id": owner_id, "kind": kind, "job_id": job_id, "limit": MAX_DEAD_LETTER_CAUSES}
    return await fetch_rows(conn, sql("job/causes"), params)


async def _list_owners_with_dead_letters(conn: Connection, request: DeadLetterListRequest, first: int) -> list[int]:
    if request.owner_id is not None:
        return [request.owner_id]
    name = "outcome/owners_of_dismissed" if request.dismissed else "outcome/owners_of_dead_letters"
    params = {"owner_id": first, "limit": DEAD_LETTER_OWNERS_PER_PAGE}
    return [row["owner_id"] for row in await fetch_rows(conn, sql(name), params)]


async def _list_jobs_with_dead_letters(conn: Connection, request: DeadLetterListRequest, last: UUID) -> list[UUID]:
    if request.job_id is not None:
        return [(await read_item_list_scope(conn, request.job_id, request.owner_id)).id]
    params = {"owner_id": request.owner_id, "kind": request.kind, "category": request.category, "last_job": last}
    params |= {"limit": DEAD_LETTER_JOBS_PER_PAGE}
    return [row["id"] for row in await fetch_rows(conn, sql("job/with_dead_letters"), params)]


async def _pick_dead_letters(
    conn: Connection,
    request: DeadLetterListRequest,
    sources: Sequence[Any],
    place: Sequence[Any],
    limit: int,
    *,
    with_patterns: bool,
) -> list[RowDict]:
    at, job, seq = place
    is_limited = request.is_filtered or request.reads_by_job or len(sources) > 1
    each = PAGE_BATCH_BUDGET // len(sources) if is_limited else limit + 1
    codes = None if request.codes is None else sorted(set(request.codes))
    params = {"at": at, "job": job, "seq": seq, "from": request.from_ or "-infinity", "kind": request.kind}
    params |= {"codes": codes, "each": max(each, 2), "limit": limit + 1, "category": request.category}
    params |= {"group": request.group, "with_patterns": with_patterns}
    if request.reads_by_job:
        by_job = {"job_ids": list(sources), "dismissed": request.dismissed}
        return await fetch_rows(conn, sql("outcome/pick_dead_letters_of_jobs"), params | by_job)
    name = "outcome/pick_dismissed_of_owners" if request.dismissed else "outcome/pick_dead_letters_of_owners"
    return await fetch_rows(conn, sql(name), params | {"owners": list(sources)})


async def _fetch_dead_letters(conn: Connection, picked: list[RowDict]) -> list[RowDict]:
    keys = {"job_ids": [row["job_id"] for row in picked], "seqs": [row["seq"] for row in picked]}
    return await fetch_item_rows(conn, sql("outcome/list_dead_letters"), keys) if picked else []


def _get_start_position(request: DeadLetterListRequest) -> tuple[datetime, UUID, int]:
    return _NEWEST_POSITION if request.to is None else (request.to, UUID(int=0), -1)


def _get_row_position(row: RowDict) -> tuple[datetime, UUID, int]:
    return row["updated_at"], row["job_id"], row["seq"]
