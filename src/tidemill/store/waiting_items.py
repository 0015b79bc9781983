"""Cancels single waiting items, and makes items that wait for a retry due now."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from psycopg.types.json import Jsonb

from tidemill.core.errors import Conflict
from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.status import Intent, ItemStatus
from tidemill.failpoints import failpoint
from tidemill.store import job_records
from tidemill.store.database import Connection
from tidemill.store.item_selection import SELECTION_WINDOW_ITEMS, ItemSelection, find_selected_seqs
from tidemill.store.job_records import LockedJob, get_job, lock_job
from tidemill.store.statements import RowDict, fetch_rows, sql

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
    n = sum([await _cancel_in_batch(conn, job, batch, wanted, excluded) for batch in held])
    return n, held[-1]["id"] if len(held) == CANCEL_BATCHES_PER_STEP else None


async def _cancel_in_batch(
    conn: Connection, job: LockedJob, held: RowDict, wanted: list[int] | None, but: frozenset[int]
) -> int:
    if held["seqs"] is not None:
        return await _cancel_in_list(conn, job, held, wanted, but)
    lo, hi = held["lo"], held["hi"]
    if wanted is None:
        inside = [seq for seq in range(lo, hi) if seq not in but]
    else:
        inside = wanted[bisect_left(wanted, lo) : bisect_left(wanted, hi)]
    if len(inside) < hi - lo:
        return await _cancel_in_range(conn, job, held, inside)
    await conn.execute(sql("batch/cancel_whole"), {"batch_id": held["id"]})
    return int(held["open"])


async def _cancel_in_range(conn: Connection, job: LockedJob, held: RowDict, inside: list[int]) -> int:
    """Give the items a cancelled outcome of their own, so that workers skip them when they read the range."""
    who = {"job_id": job.id, "owner_id": job.owner_id, "status": "cancelled", "seqs": inside}
    cursor = await conn.execute(sql("outcome/add_plain"), who | {"lo": held["lo"], "hi": held["hi"]})
    n = len(await cursor.fetchall())
    if n:
        await conn.execute(sql("batch/take_out"), {"batch_id": held["id"], "n": n})
        await _add_cancelled_to_tally(conn, job, n)
    return n


async def _cancel_in_list(
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
