"""Requeues settled items and cancelled ranges, and adjusts the counters in the same transaction."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from tidemill.core.batch import SEQ_LIST_MAX
from tidemill.core.errors import Conflict
from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.status import Intent, ItemStatus
from tidemill.failpoints import failpoint
from tidemill.store.database import Connection
from tidemill.store.item_selection import SELECTION_WINDOW_ITEMS, ItemSelection, find_selected_seqs
from tidemill.store.job_records import LockedJob, get_job, lock_job
from tidemill.store.statements import RowDict, fetch_rows, sql


async def requeue_cancelled_ranges(
    conn: Connection, job: LockedJob, seqs: Collection[int] | None, excluded_seqs: Collection[int]
) -> int:
    """Requeue items of cancelled ranges: all except some, or the given ones. Return their number.

    Requires the lock of the job.
    """
    job_id = job.id
    await conn.execute(sql("batch/unfold_cancelled"), {"job_id": job_id})
    if seqs is not None:
        excluded = set(excluded_seqs)
        return await _requeue_cancelled_seqs(conn, job, sorted({seq for seq in seqs if seq not in excluded}))
    cursor = await conn.execute(sql("batch/revive_cancelled"), {"job_id": job_id, "but": sorted(excluded_seqs)})
    taken = sum(int(row[0]) for row in await cursor.fetchall())
    return taken + await _requeue_rest_of_split_ranges(conn, job, set(excluded_seqs)) if excluded_seqs else taken


async def _requeue_cancelled_seqs(conn: Connection, job: LockedJob, wanted: list[int]) -> int:
    if not wanted:
        return 0
    taken = 0
    for held in await _list_cancelled_ranges(conn, job, wanted[0], wanted[-1]):
        inside = wanted[bisect_left(wanted, held["lo"]) : bisect_left(wanted, held["hi"])]
        taken += await _move_to_list_batches(conn, job, held, inside)
    return taken


async def _requeue_rest_of_split_ranges(conn: Connection, job: LockedJob, stays: set[int]) -> int:
    """Requeue the other items of the ranges that contain an excluded item."""
    taken = 0
    for held in await _list_cancelled_ranges(conn, job, 0, BIGINT_SAFE_MAX):
        wanted = [seq for seq in range(held["lo"], held["hi"]) if seq not in stays]
        taken += await _move_to_list_batches(conn, job, held, wanted)
    return taken


async def _list_cancelled_ranges(conn: Connection, job: LockedJob, first: int, last: int) -> list[RowDict]:
    return await fetch_rows(conn, sql("batch/cancelled_ranges"), {"job_id": job.id, "first": first, "last": last})


async def _move_to_list_batches(conn: Connection, job: LockedJob, held: RowDict, wanted: Sequence[int]) -> int:
    """Move items of a cancelled range to lists and give each an open outcome. Ranges cover only items without one."""
    taken = 0
    who = {"job_id": job.id, "owner_id": job.owner_id}
    for begin in range(0, len(wanted), SEQ_LIST_MAX):
        part = {"seqs": wanted[begin : begin + SEQ_LIST_MAX], "status": "pending", "lo": held["lo"], "hi": held["hi"]}
        cursor = await conn.execute(sql("outcome/add_plain"), who | part)
        seqs = sorted(row[0] for row in await cursor.fetchall())
        if seqs:
            batch = {"kind": job.kind, "lo": seqs[0], "hi": seqs[-1] + 1, "seqs": seqs, "open": len(seqs)}
            await conn.execute(sql("batch/add_retry_list"), who | batch | {"delay": 0, "retrying": False})
            await conn.execute(sql("batch/take_out_cancelled"), {"batch_id": held["id"], "n": len(seqs)})
            taken += len(seqs)
    return taken


REPROCESS_MAX_WINDOWS = 25  # windows that one step may scan
DISMISS_CHUNK_ITEMS = 10_000
_TALLY_COLUMNS = ("done", "not_found", "skipped", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class ReprocessSelection(ItemSelection):
    """Items to requeue. Items without an outcome are not selected, except those of cancelled ranges."""

    statuses: Sequence[ItemStatus] = (ItemStatus.FAILED, ItemStatus.NOT_FOUND)
    since: datetime | None = None  # settled at this time or later
    until: datetime | None = None  # settled before this time
    category: str | None = None  # of a failure; see tidemill.failure_category
    group: str | None = None  # of a failure; see tidemill.failure_groups
    with_dismissed: bool = True  # whether dismissed failures match
    reset_attempts: bool = True  # without a reset, failures with a permanent error are not selected

    @property
    def has_filters_besides_status(self) -> bool:
        """Whether the selection has filters other than statuses."""
        filters = (self.seqs, self.codes, self.since, self.until, self.key, self.category, self.group)
        return bool(self.excluded_seqs) or any(part is not None for part in filters)

    @property
    def includes_cancelled_ranges(self) -> bool:
        """Whether cancelled ranges match. They have no outcomes, so filters by code or time exclude them."""
        filters = (self.codes, self.since, self.until, self.category, self.group)
        return ItemStatus.CANCELLED in self.statuses and all(part is None for part in filters)

    @property
    def includes_unread_source(self) -> bool:
        """Whether all cancelled items are selected, including the part of the source that was never read."""
        return ItemStatus.CANCELLED in self.statuses and not self.has_filters_besides_status


async def reprocess_items(
    conn: Connection,
    job_id: UUID,
    selection: ReprocessSelection,
    *,
    after_seq: int = -1,
    max_items: int = 50_000,
    is_continuation: bool = False,
) -> tuple[int, int | None]:
    """Requeue selected items and reopen the job. Return their number and the seq to continue after, or None at the end.

    With ``is_continuation``, an earlier step has reopened the job. Raises Conflict if it was cancelled or failed since.
    """
    job = await lock_job_for_requeue(conn, job_id, is_continuation=is_continuation)
    failpoint("reprocess.job_locked")
    requeue = _requeue_selected if selection.key is None and not selection.ranges else _requeue_some_windows
    taken, last = await requeue(conn, job, selection, after_seq, max_items)
    failpoint("reprocess.items_taken")
    if taken or (selection.includes_unread_source and await _has_unread_source(conn, job_id)):
        await reopen_job(conn, job_id, resume_source=selection.includes_unread_source)
    return taken, last


async def _requeue_selected(
    conn: Connection, job: LockedJob, choice: ReprocessSelection, after_seq: int, most: int
) -> tuple[int, int | None]:
    """Requeue items with an outcome first, then cancelled ranges, whose items may fail before the next step."""
    taken = 0
    last: int | None = after_seq
    while taken < most and last is not None:
        n, last = await _requeue_chunk(conn, job, choice, last)
        taken += n
    if last is None and choice.includes_cancelled_ranges:
        taken += await requeue_cancelled_ranges(conn, job, choice.seqs, choice.excluded_seqs)
    return taken, last


async def _requeue_some_windows(
    conn: Connection, job: LockedJob, choice: ReprocessSelection, after_seq: int, most: int
) -> tuple[int, int | None]:
    """Requeue entire windows, at most REPROCESS_MAX_WINDOWS of them or about ``most`` items."""
    total = (await get_job(conn, job.id)).counts.total
    taken, lo = 0, after_seq + 1
    for _ in range(REPROCESS_MAX_WINDOWS):
        if lo >= total or taken >= most:
            break
        seqs = await find_selected_seqs(conn, job.id, lo, lo + SELECTION_WINDOW_ITEMS, choice)
        if seqs:
            taken += (
                await _requeue_selected(conn, job, replace(choice, key=None, seqs=seqs, ranges=()), -1, BIGINT_SAFE_MAX)
            )[0]
        lo += SELECTION_WINDOW_ITEMS
    return taken, lo - 1 if lo < total else None


async def lock_job_for_requeue(conn: Connection, job_id: UUID, *, is_continuation: bool = False) -> LockedJob:
    """Lock a job to requeue items. Raises Conflict if its rows were purged, or it is being cancelled or failed."""
    job = await lock_job(conn, job_id)
    if job.purged_at is not None:
        raise Conflict("Cannot reprocess the job: its rows were purged")
    if job.intent in (Intent.CANCEL, Intent.FAIL) and (is_continuation or job.closed_as is None):
        known = await get_job(conn, job_id)
        if is_continuation:
            raise Conflict(f"Job {known.key} is {known.status}. It was cancelled or failed while the operation ran")
        raise Conflict(f"Job {known.key} is {known.status}. Wait until it is closed, then try again.")
    # Fold first, so that all counts to subtract are in one row, which the lock of the job protects.
    await conn.execute(sql("tally/fold"), {"job_id": job_id})
    return job


async def reopen_job(conn: Connection, job_id: UUID, *, resume_source: bool = False) -> None:
    """Reopen a job for requeued items. With ``resume_source``, also continue to ingest its source."""
    forgiven = (await get_job(conn, job_id)).counts.failed
    await conn.execute(sql("job/reopen"), {"job_id": job_id, "forgiven": forgiven, "rest": resume_source})
    await conn.execute(sql("outbox/announce"), {"job_id": job_id})


async def _has_unread_source(conn: Connection, job_id: UUID) -> bool:
    cursor = await conn.execute(sql("ingest/has_rest"), {"job_id": job_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def requeue_failed_items(
    conn: Connection, job: LockedJob, seqs: Sequence[int], *, with_dismissed: bool = True
) -> list[int]:
    """Requeue the failed ones of at most SEQ_LIST_MAX items. Return their seqs."""
    selection = ReprocessSelection((ItemStatus.FAILED,), seqs, with_dismissed=with_dismissed)
    taken = await _reset_outcome_chunk(conn, job, selection, -1)
    return await _add_list_and_adjust_tally(conn, job, taken) if taken else []


async def set_dismissed_for_chunk(
    conn: Connection, job_id: UUID, selection: ReprocessSelection, *, dismiss: bool, user_id: int, after_seq: int = -1
) -> tuple[int, int | None]:
    """Dismiss or restore a chunk of failed items. Return their number and the seq to continue after (None: the end).

    Neither the job nor its counters change, so the job is not locked.
    """
    params = _build_outcome_selection_params(job_id, selection, after_seq) | {"dismiss": dismiss, "user_id": user_id}
    cursor = await conn.execute(sql("outcome/set_dismissed"), params | {"limit": DISMISS_CHUNK_ITEMS})
    seqs = sorted(row[0] for row in await cursor.fetchall())
    return len(seqs), seqs[-1] if len(seqs) == DISMISS_CHUNK_ITEMS else None


async def _requeue_chunk(
    conn: Connection, job: LockedJob, choice: ReprocessSelection, after_seq: int
) -> tuple[int, int | None]:
    taken = await _reset_outcome_chunk(conn, job, choice, after_seq)
    if not taken:
        return 0, None
    seqs = await _add_list_and_adjust_tally(conn, job, taken)
    return len(seqs), seqs[-1] if len(seqs) == SEQ_LIST_MAX else None


async def _reset_outcome_chunk(
    conn: Connection, job: LockedJob, choice: ReprocessSelection, after_seq: int
) -> list[tuple[Any, ...]]:
    """Set a chunk of outcomes to pending. Return the items with their previous status and error codes."""
    params = _build_outcome_selection_params(job.id, choice, after_seq) | {
        "statuses": [status.value for status in choice.statuses],
        "with_dismissed": choice.with_dismissed,
        "reset_attempts": choice.reset_attempts,
        "limit": SEQ_LIST_MAX,
    }
    cursor = await conn.execute(sql("outcome/take_back"), params)
    return await cursor.fetchall()


def _build_outcome_selection_params(job_id: UUID, choice: ReprocessSelection, after_seq: int) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "seqs": None if choice.seqs is None else sorted(choice.seqs),
        "but": sorted(choice.excluded_seqs),
        "codes": None if choice.codes is None else list(choice.codes),
        "since": choice.since,
        "until": choice.until,
        "category": choice.category,
        "group": choice.group,
        "after_seq": after_seq,
    }


async def _add_list_and_adjust_tally(conn: Connection, job: LockedJob, taken: list[tuple[Any, ...]]) -> list[int]:
    """Add a list batch of the items and subtract them from the counters. Return their seqs in order."""
    job_id = job.id
    statuses = Counter(status for _, status, _, _ in taken)
    codes = Counter(code for _, status, code, _ in taken if status == ItemStatus.FAILED and code)
    further_codes = Counter(code for _, status, _, more in taken if status == ItemStatus.FAILED for code in more)
    deltas = {name: statuses[name] for name in _TALLY_COLUMNS}
    code_deltas = {
        name: Jsonb({code: -n for code, n in counts.items()})
        for name, counts in (("codes", codes), ("further_codes", further_codes))
    }
    await conn.execute(sql("tally/adjust"), {"job_id": job_id, **code_deltas, **deltas})
    seqs = sorted(row[0] for row in taken)
    batch = {
        "job_id": job_id,
        "owner_id": job.owner_id,
        "kind": job.kind,
        "lo": seqs[0],
        "hi": seqs[-1] + 1,
    }
    await conn.execute(
        sql("batch/add_retry_list"), batch | {"seqs": seqs, "open": len(seqs), "delay": 0, "retrying": False}
    )
    return seqs
