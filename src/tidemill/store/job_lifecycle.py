"""Changes the intent of jobs, cancels their batches, folds their counters and closes them."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tidemill.core.errors import Conflict, UnknownJob
from tidemill.core.job import Job
from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.policies import FailurePolicy
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.core.status import Intent, ItemStatus, JobStatus, derive_closing_status
from tidemill.failpoints import failpoint
from tidemill.store import job_records
from tidemill.store.database import Connection
from tidemill.store.item_selection import SELECTION_WINDOW_ITEMS, ItemSelection, find_selected_seqs
from tidemill.store.job_records import LockedJob, compute_duration_s, get_job, lock_job
from tidemill.store.statements import RowDict, fetch_rows, sql

CANCEL_RANGES_PER_STEP = 5_000
CANCEL_LISTS_PER_STEP = 100  # full lists need 100,000 outcomes


async def cancel_some_ready_batches(conn: Connection, job_id: UUID | None = None) -> int:
    """Cancel some ready batches of jobs with intent cancel or fail. Return their number; 0 means none is left."""
    ranges = await _cancel_next_ready_batches(conn, job_id, lists=False, limit=CANCEL_RANGES_PER_STEP)
    emptied = await _cancel_next_ready_batches(conn, job_id, lists=True, limit=CANCEL_LISTS_PER_STEP)
    lists: dict[UUID, list[int]] = defaultdict(list)
    for _, job, seqs in emptied:
        lists[job] += seqs
    for job in sorted(lists):
        await conn.execute(sql("outcome/cancel_list"), {"job_id": job, "seqs": sorted(lists[job])})
    if ranges or emptied:
        failpoint("cancel.batches_cancelled")
    return len(ranges) + len(emptied)


async def _cancel_next_ready_batches(conn: Connection, job_id: UUID | None, *, lists: bool, limit: int) -> list[Any]:
    cursor = await conn.execute(sql("batch/cancel_ready"), {"job_id": job_id, "lists": lists, "limit": limit})
    return await cursor.fetchall()


async def list_jobs_to_fold(conn: Connection, least: int) -> list[UUID]:
    cursor = await conn.execute(sql("tally/to_fold"), {"least": least})
    return [row[0] for row in await cursor.fetchall()]


async def fold_tally(conn: Connection, job_id: UUID) -> int:
    await lock_job(conn, job_id)
    cursor = await conn.execute(sql("tally/fold"), {"job_id": job_id})
    failpoint("fold.folded")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def pause_job(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER_ID) -> None:
    """Run -> pause. Batches are not changed; workers finish items that have started and release the others."""
    await _change_intent_and_record_activity(conn, job_id, Intent.PAUSE, by, allowed=(Intent.RUN, Intent.PAUSE))


async def resume_job(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER_ID, may_be_resumed: bool = False) -> None:
    """Pause -> run. ``may_be_resumed``: an earlier attempt may have committed although its answer was lost."""
    allowed = (Intent.PAUSE, Intent.RUN) if may_be_resumed else (Intent.PAUSE,)
    await _change_intent_and_record_activity(conn, job_id, Intent.RUN, by, allowed=allowed)
    await conn.execute(sql("outbox/announce"), {"job_id": job_id})


async def cancel_job(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER_ID) -> None:
    """-> cancel. Items that have started finish and keep their results; maintenance cancels the rest."""
    await _change_intent_and_record_activity(
        conn, job_id, Intent.CANCEL, by, allowed=(Intent.RUN, Intent.PAUSE, Intent.CANCEL)
    )


async def stop_job_for_deletion(conn: Connection, job_id: UUID) -> None:
    """-> cancel, so that workers end the transactions whose locks a deletion would wait for."""
    job = await lock_job(conn, job_id)
    if job.closed_as is None and job.intent in (Intent.RUN, Intent.PAUSE):
        await conn.execute(sql("job/set_intent"), {"job_id": job_id, "intent": Intent.CANCEL, "reason": None})


async def fail_job(conn: Connection, job_id: UUID, reason: str) -> bool:
    """-> fail, with a reason. Return False if the job is already closed, cancelled or failed."""
    job = await lock_job(conn, job_id)
    if job.closed_as is not None or job.intent in (Intent.CANCEL, Intent.FAIL):
        return False
    await conn.execute(sql("job/set_intent"), {"job_id": job_id, "intent": Intent.FAIL, "reason": reason})
    return True


async def enforce_failure_policy(conn: Connection, job_id: UUID) -> str | None:
    """Fail the job if its failures exceed its failure policy. Return the reason, or None."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/police"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None or row["intent"] in (Intent.CANCEL, Intent.FAIL):
        return None
    reason = FailurePolicy.from_json(row["policy"]).find_failure_reason(failed=row["failed"], settled=row["settled"])
    if reason is None or not await fail_job(conn, job_id, reason):
        return None
    return reason


async def list_jobs_with_failure_policy(conn: Connection) -> list[UUID]:
    cursor = await conn.execute(sql("job/to_police"))
    return [row[0] for row in await cursor.fetchall()]


async def close_job_if_drained(conn: Connection, job_id: UUID) -> Job | None:
    """Close a job that has no open work. Return the closed job, or None if it stays open.

    The check is a separate statement after the lock. In one statement it would use a snapshot older than a reprocess
    that the lock waited for, and could close a job with open work.
    """
    try:
        job = await lock_job(conn, job_id)
    except UnknownJob:
        return None
    intent = Intent(job.intent)
    may_close = job.closed_as is None and (job.ingest_done or intent in (Intent.CANCEL, Intent.FAIL))
    if not may_close or not await has_no_open_batch(conn, job_id):
        return None
    await conn.execute(sql("tally/fold"), {"job_id": job_id})
    drained = await get_job(conn, job_id)
    counts = drained.counts
    if counts.failed and await enforce_failure_policy(conn, job_id):  # the last items may have exceeded the policy
        intent, drained = Intent.FAIL, await get_job(conn, job_id)
    closed_as = derive_closing_status(intent=intent, failed=counts.failed)
    processed = counts.total - counts.cancelled  # no item is open
    params = {"job_id": job_id, "closed_as": closed_as, "settled": processed, "failed": counts.failed}
    cursor = await conn.execute(sql("job/close"), params)
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  this transaction holds the lock of the job
    if closed_as is JobStatus.CANCELLED:  # the job may have completed a file just before
        await conn.execute(sql("file/condemn_made"), {"job_id": job_id})
    failpoint("close.before_commit")
    duration_s = compute_duration_s(drained.started_at, row[0], drained.idle_s)
    return replace(drained, status=closed_as, closed_at=row[0], duration_s=duration_s)


async def list_stopped_jobs(conn: Connection, job_ids: Sequence[UUID]) -> list[UUID]:
    """Return those of these jobs that may not run now: paused, cancelled, failed or deleted."""
    cursor = await conn.execute(sql("job/stopped"), {"job_ids": list(job_ids)})
    return [row[0] for row in await cursor.fetchall()]


async def list_jobs_that_may_be_drained(conn: Connection) -> list[UUID]:
    cursor = await conn.execute(sql("job/drained_candidates"))
    return [row[0] for row in await cursor.fetchall()]


async def has_no_open_batch(conn: Connection, job_id: UUID) -> bool:
    """Whether the job has no open work. Without the job's lock, the answer may be outdated."""
    cursor = await conn.execute(sql("job/is_drained"), {"job_id": job_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def _change_intent_and_record_activity(
    conn: Connection, job_id: UUID, intent: Intent, by: int, *, allowed: tuple[Intent, ...]
) -> None:
    row = await lock_job(conn, job_id)
    if row.closed_as is not None or row.intent not in allowed:
        job = await get_job(conn, job_id)
        raise Conflict(f"Job {job.key} is {job.status} and cannot be {_INTENT_PARTICIPLES[intent]}")
    await conn.execute(sql("job/set_intent"), {"job_id": job_id, "intent": intent, "reason": None})
    failpoint("intent.changed")
    if row.intent != intent:
        await job_records.add_activity(conn, job_id, by, _INTENT_ACTIVITY_VERBS[intent])


_INTENT_ACTIVITY_VERBS = {Intent.RUN: "resume", Intent.PAUSE: "pause", Intent.CANCEL: "cancel"}


_INTENT_PARTICIPLES = {Intent.RUN: "resumed", Intent.PAUSE: "paused", Intent.CANCEL: "cancelled", Intent.FAIL: "failed"}


CANCELLABLE_STATUSES = (ItemStatus.PENDING, ItemStatus.RETRY_WAIT)
CANCEL_BATCHES_PER_STEP = 200  # batches locked at a time
_NO_CODES = Jsonb({})
_NO_TALLY_CHANGES = {"done": 0, "not_found": 0, "skipped": 0, "failed": 0} | {
    "codes": _NO_CODES,
    "further_codes": _NO_CODES,
}


@dataclass(frozen=True, slots=True)
class CancelSelection(ItemSelection):
    """Waiting items to cancel."""

    statuses: Sequence[ItemStatus] = CANCELLABLE_STATUSES


CancelCursor = Mapping[str, int]  # until: the newest batch at the start; after: a batch; lo: the start of a window


async def lock_job_for_cancel(conn: Connection, job_id: UUID) -> LockedJob:
    """Lock a job to cancel items. Raises Conflict if it is closed, or is being cancelled or failed as a whole."""
    job = await lock_job(conn, job_id)
    if job.closed_as is not None or job.intent in (Intent.CANCEL, Intent.FAIL):
        known = await get_job(conn, job_id)
        raise Conflict(f"Job {known.key} is {known.status} and has no waiting items")
    return job


async def cancel_waiting_items_step(
    conn: Connection, job_id: UUID, waiting: CancelSelection, place: CancelCursor
) -> tuple[int, CancelCursor | None]:
    """Run one step. Return the number of cancelled items and the next cursor, or None at the end.

    Batches created after the first step are excluded, for example new retries.
    """
    job = await lock_job_for_cancel(conn, job_id)
    place = place or {"until": await _find_newest_ready_batch(conn, job_id)}
    if waiting.key is None and not waiting.ranges:
        n, after = await _cancel_in_next_batches(conn, job, waiting, place.get("after", 0), place["until"])
        following: CancelCursor | None = None if after is None else {**place, "after": after}
    else:
        n, following = await _cancel_in_next_window(conn, job, waiting, place)
    if n:
        failpoint("cancel.items_cancelled")
        await conn.execute(sql("job/touch"), {"job_id": job_id})
    return n, following


async def _cancel_in_next_window(
    conn: Connection, job: LockedJob, waiting: CancelSelection, place: CancelCursor
) -> tuple[int, CancelCursor | None]:
    """Cancel the selected items of one window."""
    lo = place.get("lo", 0)
    total = (await get_job(conn, job.id)).counts.total
    seqs = await find_selected_seqs(conn, job.id, lo, lo + SELECTION_WINDOW_ITEMS, waiting)
    # Windows without a selected number are cheap and need no separate step.
    while not seqs and waiting.key is None and lo + SELECTION_WINDOW_ITEMS < total:
        lo += SELECTION_WINDOW_ITEMS
        seqs = await find_selected_seqs(conn, job.id, lo, lo + SELECTION_WINDOW_ITEMS, waiting)
    after: int | None = 0 if seqs else None
    n = 0
    while after is not None:
        some, after = await _cancel_in_next_batches(
            conn, job, replace(waiting, seqs=seqs, key=None, ranges=()), after, place["until"]
        )
        n += some
    return n, {**place, "lo": lo + SELECTION_WINDOW_ITEMS} if lo + SELECTION_WINDOW_ITEMS < total else None


async def _cancel_in_next_batches(
    conn: Connection, job: LockedJob, waiting: CancelSelection, after: int, until: int
) -> tuple[int, int | None]:
    """Cancel items in some batches. Return their number and the batch to continue after, or None at the end."""
    excluded = frozenset(waiting.excluded_seqs)
    wanted = None if waiting.seqs is None else sorted(set(waiting.seqs) - excluded)
    if wanted == []:
        return 0, None
    first, last = (0, BIGINT_SAFE_MAX) if wanted is None else (wanted[0], wanted[-1])
    params = {
        "job_id": job.id,
        "after": after,
        "until": until,
        "first": first,
        "last": last,
        "limit": CANCEL_BATCHES_PER_STEP,
    }
    params["retrying"] = [status is ItemStatus.RETRY_WAIT for status in waiting.statuses]
    held = await fetch_rows(conn, sql("batch/hold_ready"), params)
    n = sum([await _cancel_items_in_batch(conn, job, batch, wanted, excluded) for batch in held])
    return n, held[-1]["id"] if len(held) == CANCEL_BATCHES_PER_STEP else None


async def _cancel_items_in_batch(
    conn: Connection, job: LockedJob, held: RowDict, wanted: list[int] | None, but: frozenset[int]
) -> int:
    if held["seqs"] is not None:
        return await _cancel_items_in_list(conn, job, held, wanted, but)
    lo, hi = held["lo"], held["hi"]
    if wanted is None:
        inside = [seq for seq in range(lo, hi) if seq not in but]
    else:
        inside = wanted[bisect_left(wanted, lo) : bisect_left(wanted, hi)]
    if len(inside) < hi - lo:
        return await _cancel_items_in_range(conn, job, held, inside)
    await conn.execute(sql("batch/cancel_whole"), {"batch_id": held["id"]})
    return int(held["open"])


async def _cancel_items_in_range(conn: Connection, job: LockedJob, held: RowDict, inside: list[int]) -> int:
    """Give the items a cancelled outcome of their own, so that workers skip them when they read the range."""
    who = {"job_id": job.id, "owner_id": job.owner_id, "status": "cancelled", "seqs": inside}
    cursor = await conn.execute(sql("outcome/add_plain"), who | {"lo": held["lo"], "hi": held["hi"]})
    n = len(await cursor.fetchall())
    if n:
        await conn.execute(sql("batch/take_out"), {"batch_id": held["id"], "n": n})
        await _add_cancelled_to_tally(conn, job, n)
    return n


async def _cancel_items_in_list(
    conn: Connection, job: LockedJob, held: RowDict, wanted: list[int] | None, but: frozenset[int]
) -> int:
    among = None if wanted is None else set(wanted)
    chosen = [seq for seq in held["seqs"] if seq not in but and (among is None or seq in among)]
    if not chosen:
        return 0
    await conn.execute(sql("outcome/cancel_list"), {"job_id": job.id, "seqs": chosen})
    rest = sorted(set(held["seqs"]) - set(chosen))
    if rest:
        span = {"seqs": rest, "lo": rest[0], "hi": rest[-1] + 1, "open": len(rest)}
        await conn.execute(sql("batch/keep_rest"), {"batch_id": held["id"]} | span)
    else:
        await conn.execute(sql("batch/empty_list"), {"batch_id": held["id"]})
    await _add_cancelled_to_tally(conn, job, len(chosen))
    return len(chosen)


async def _add_cancelled_to_tally(conn: Connection, job: LockedJob, n: int) -> None:
    """Count the items in the job, not in the range: when a range is requeued, all items it counts as cancelled run."""
    await conn.execute(sql("tally/adjust"), {"job_id": job.id, "cancelled": -n} | _NO_TALLY_CHANGES)


async def _find_newest_ready_batch(conn: Connection, job_id: UUID) -> int:
    cursor = await conn.execute(sql("batch/newest_ready"), {"job_id": job_id})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True)
class RunNowCounts:
    """Counts of the items of a request to run now."""

    due: int = 0  # waited for a retry and are due now
    in_hand: int = 0  # leased by a worker
    others: int = 0  # already due, or settled

    def __add__(self, other: "RunNowCounts") -> "RunNowCounts":
        return RunNowCounts(self.due + other.due, self.in_hand + other.in_hand, self.others + other.others)


async def make_items_due(conn: Connection, job_id: UUID, seqs: Sequence[int], *, by: int) -> RunNowCounts:
    """Make the given items due that wait for a retry. Other items of their lists keep waiting."""
    await lock_job(conn, job_id)
    wanted = sorted(set(seqs))
    params = {"job_id": job_id, "seqs": wanted, "first": wanted[0], "last": wanted[-1]}
    lists = await fetch_rows(conn, sql("batch/take_waiting"), params)
    entire = [batch["id"] for batch in lists if len(batch["chosen"]) == len(batch["seqs"])]
    await conn.execute(sql("batch/make_due"), {"ids": entire})
    for batch in lists:
        if batch["id"] not in entire:
            await _split_waiting_list(conn, job_id, batch)
    due = sum(len(batch["chosen"]) for batch in lists)
    cursor = await conn.execute(sql("batch/count_in_hand"), params)
    in_hand = int((await cursor.fetchone() or (0,))[0])
    if due:
        await job_records.add_activity(conn, job_id, by, "run_now", items=due)
        await conn.execute(sql("outbox/announce"), {"job_id": job_id})
    return RunNowCounts(due, in_hand, len(wanted) - due - in_hand)


async def _split_waiting_list(conn: Connection, job_id: UUID, waiting: RowDict) -> None:
    """Move the chosen items to a separate list that is due now."""
    chosen = waiting["chosen"]
    rest = sorted(set(waiting["seqs"]) - set(chosen))
    await conn.execute(sql("batch/keep_rest"), {"batch_id": waiting["id"]} | _build_list_params(rest))
    like = {name: waiting[name] for name in ("owner_id", "kind", "isolated", "crashes")}
    await conn.execute(
        sql("batch/add_list_piece"),
        {"job_id": job_id, "retrying": True, "half": False, "disconnects": 0, "delay": 0.0}
        | like
        | _build_list_params(chosen),
    )


def _build_list_params(seqs: Sequence[int]) -> dict[str, object]:
    return {"seqs": seqs, "lo": seqs[0], "hi": seqs[-1] + 1, "open": len(seqs)}
