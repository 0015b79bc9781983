"""Cancels single waiting items, and makes items that wait for a retry due now."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from psycopg.types.json import Jsonb

from tidemill.core.errors import Conflict
from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.status import Intent, ItemStatus
from tidemill.store import job_records
from tidemill.store.database import Connection
from tidemill.store.item_selection import SELECTION_WINDOW_ITEMS, ItemSelection, find_selected_seqs
from tidemill.store.job_records import LockedJob, get_job, lock_job
from tidemill.store.statements import RowDict, fetch_rows, sql

CANCELLABLE_STATUSES = (ItemStatus.PENDING, ItemStatus.RETRY_WAIT)
CANCEL_BATCHES_PER_STEP = 200  # batches that are held
_NO_TALLY_CHANGES = {"done": 0, "not_found": 0, "skipped": 0, "failed": 0, "codes": Jsonb({})}


@dataclass(frozen=True, slots=True)
class CancelSelection(ItemSelection):
    """Waiting items to cancel."""

    statuses: Sequence[ItemStatus] = CANCELLABLE_STATUSES


CancelCursor = Mapping[str, int]  # until: the newest batch at the start; after: a batch; lo: the start of a window


async def lock_job_for_cancel(conn: Connection, job_id: UUID) -> LockedJob:
    """The lock of a job of which items are cancelled; Conflict when none of it waits, or all of it is to end."""
    job = await lock_job(conn, job_id)
    if job.closed_as is not None or job.intent in (Intent.CANCEL, Intent.FAIL):
        known = await get_job(conn, job_id)
        raise Conflict(f"job {known.key} is {known.status}: nothing of it waits")
    return job


async def cancel_waiting_items(
    conn: Connection, job_id: UUID, waiting: CancelSelection, place: CancelCursor
) -> tuple[int, CancelCursor | None]:
    """A step: how many, and where to go on if there may be more. A retry that is put off meanwhile is not meant."""
    job = await lock_job_for_cancel(conn, job_id)
    place = place or {"until": await _find_newest_ready_batch(conn, job_id)}
    if waiting.key is None and not waiting.ranges:
        n, after = await _cancel_in_next_batches(conn, job, waiting, place.get("after", 0), place["until"])
        following: CancelCursor | None = None if after is None else {**place, "after": after}
    else:
        n, following = await _cancel_in_next_window(conn, job, waiting, place)
    if n:
        await conn.execute(sql("job/touch"), {"job_id": job_id})
    return n, following


async def _cancel_in_next_window(
    conn: Connection, job: LockedJob, waiting: CancelSelection, place: CancelCursor
) -> tuple[int, CancelCursor | None]:
    """The chosen items of one window."""
    lo = place.get("lo", 0)
    total = (await get_job(conn, job.id)).counts.total
    seqs = await find_selected_seqs(conn, job.id, lo, lo + SELECTION_WINDOW_ITEMS, waiting)
    while (
        not seqs and waiting.key is None and lo + SELECTION_WINDOW_ITEMS < total
    ):  # a look at numbers costs no step of its own
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
    """In some batches: how many items, and behind which batch to go on."""
    excluded = frozenset(waiting.excluded_seqs)
    wanted = None if waiting.seqs is None else sorted(set(waiting.seqs) - excluded)
    if wanted == []:
        return 0, None
    first, last = (0, BIGINT_SAFE_MAX) if wanted is None else (wanted[0], wanted[-1])
    asked = {
        "job_id": job.id,
        "after": after,
        "until": until,
        "first": first,
        "last": last,
        "limit": CANCEL_BATCHES_PER_STEP,
    }
    asked["retrying"] = [status is ItemStatus.RETRY_WAIT for status in waiting.statuses]
    held = await fetch_rows(conn, sql("batch/hold_ready"), asked)
    n = sum([await _cancel_in_batch(conn, job, one, wanted, excluded) for one in held])
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
    """They leave the range with an outcome of their own: who reads it then passes over them."""
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
    """Into the sums of the job, not of the range: a range gives back what it has cancelled when it is revived whole."""
    await conn.execute(sql("tally/adjust"), {"job_id": job.id, "cancelled": -n} | _NO_TALLY_CHANGES)


async def _find_newest_ready_batch(conn: Connection, job_id: UUID) -> int:
    cursor = await conn.execute(sql("batch/newest_ready"), {"job_id": job_id})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True)
class RunNowCounts:
    """What became of items that somebody wants to run now."""

    due: int = 0  # waited for a retry, and do not any more
    in_hand: int = 0  # a worker has them
    others: int = 0  # wait for their turn already, or are settled

    def __add__(self, other: "RunNowCounts") -> "RunNowCounts":
        return RunNowCounts(self.due + other.due, self.in_hand + other.in_hand, self.others + other.others)


async def make_items_due(conn: Connection, job_id: UUID, seqs: Sequence[int], *, by: int) -> RunNowCounts:
    """Make those of some items due that wait for a retry. Their neighbours in a list go on waiting."""
    await lock_job(conn, job_id)
    wanted = sorted(set(seqs))
    asked = {"job_id": job_id, "seqs": wanted, "first": wanted[0], "last": wanted[-1]}
    lists = await fetch_rows(conn, sql("batch/take_waiting"), asked)
    whole = [one["id"] for one in lists if len(one["chosen"]) == len(one["seqs"])]
    await conn.execute(sql("batch/make_due"), {"ids": whole})
    for one in lists:
        if one["id"] not in whole:
            await _split_waiting_list(conn, job_id, one)
    due = sum(len(one["chosen"]) for one in lists)
    cursor = await conn.execute(sql("batch/count_in_hand"), asked)
    in_hand = int((await cursor.fetchone() or (0,))[0])
    if due:
        await job_records.add_activity(conn, job_id, by, "run_now", items=due)
        await conn.execute(sql("outbox/announce"), {"job_id": job_id})
    return RunNowCounts(due, in_hand, len(wanted) - due - in_hand)


async def _split_waiting_list(conn: Connection, job_id: UUID, waiting: RowDict) -> None:
    """A list of its own for those that are chosen."""
    chosen = waiting["chosen"]
    rest = sorted(set(waiting["seqs"]) - set(chosen))
    await conn.execute(sql("batch/keep_rest"), {"batch_id": waiting["id"]} | _build_list_params(rest))
    like = {name: waiting[name] for name in ("owner_id", "kind", "isolated", "crashes")}
    await conn.execute(
        sql("batch/add_list_piece"),
        {"job_id": job_id, "retrying": True, "half": False} | like | _build_list_params(chosen),
    )


def _build_list_params(seqs: Sequence[int]) -> dict[str, object]:
    return {"seqs": seqs, "lo": seqs[0], "hi": seqs[-1] + 1, "open": len(seqs)}
