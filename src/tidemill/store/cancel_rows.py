"""Cancelling single items that wait: what is in hand is left alone, and the rest of the job goes on."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from tidemill.domain.errors import Conflict
from tidemill.domain.numbers import Range
from tidemill.domain.page import MAX_NUMBER
from tidemill.domain.status import Intent, ItemStatus
from tidemill.store.database import Connection
from tidemill.store.jobs import get, lock
from tidemill.store.keys import WINDOW, chosen
from tidemill.store.lists.fetch import Row, rows
from tidemill.store.statements import sql

WAITING = (ItemStatus.PENDING, ItemStatus.RETRY_WAIT)
AT_A_TIME = 200  # batches that are held
_NOTHING = {"done": 0, "not_found": 0, "skipped": 0, "failed": 0, "codes": Jsonb({})}


@dataclass(frozen=True, slots=True)
class Waiting:
    """Which items that wait: of some statuses, all or those that are named, but some."""

    statuses: Sequence[ItemStatus] = WAITING
    seqs: Sequence[int] | None = None
    but: frozenset[int] = field(default_factory=frozenset)
    key: str | None = None
    ranges: Sequence[Range] = ()  # beside the seqs


Place = dict[str, Any]


async def begin(conn: Connection, job_id: UUID) -> dict[str, Any]:
    """The lock of a job of which items are cancelled; Conflict when none of it waits, or all of it is to end."""
    job = await lock(conn, job_id)
    if job["closed_as"] is not None or job["intent"] in (Intent.CANCEL, Intent.FAIL):
        known = await get(conn, job_id)
        raise Conflict(f"job {known.key} is {known.status}: nothing of it waits")
    return job


async def cancel_rows(conn: Connection, job_id: UUID, waiting: Waiting, place: Place) -> tuple[int, Place | None]:
    """A step: how many, and where to go on if there may be more. A retry that is put off meanwhile is not meant."""
    job = await begin(conn, job_id)
    place = place or {"until": await _newest(conn, job_id)}
    if waiting.key is None and not waiting.ranges:
        n, after = await _cancel(conn, job, waiting, place.get("after", 0), place["until"])
        following = None if after is None else place | {"after": after}
    else:
        n, following = await _cancel_in_window(conn, job, waiting, place)
    if n:
        await conn.execute(sql("job/touch"), {"job_id": job_id})
    return n, following


async def _cancel_in_window(
    conn: Connection, job: dict[str, Any], waiting: Waiting, place: Place
) -> tuple[int, Place | None]:
    """The chosen items of one window."""
    lo = place.get("lo", 0)
    wanted: dict[str, Any] = {"key": waiting.key, "seqs": waiting.seqs, "ranges": waiting.ranges}
    total = (await get(conn, job["id"])).counts.total
    seqs = await chosen(conn, job["id"], lo, lo + WINDOW, **wanted)
    while not seqs and waiting.key is None and lo + WINDOW < total:  # a look at numbers costs no step of its own
        lo += WINDOW
        seqs = await chosen(conn, job["id"], lo, lo + WINDOW, **wanted)
    after: int | None = 0 if seqs else None
    n = 0
    while after is not None:
        some, after = await _cancel(conn, job, Waiting(waiting.statuses, seqs, waiting.but), after, place["until"])
        n += some
    return n, place | {"lo": lo + WINDOW} if lo + WINDOW < total else None


async def _cancel(
    conn: Connection, job: dict[str, Any], waiting: Waiting, after: int, until: int
) -> tuple[int, int | None]:
    """In some batches: how many items, and behind which batch to go on."""
    wanted = None if waiting.seqs is None else sorted({seq for seq in waiting.seqs if seq not in waiting.but})
    if wanted == []:
        return 0, None
    first, last = (0, MAX_NUMBER) if wanted is None else (wanted[0], wanted[-1])
    asked = {"job_id": job["id"], "after": after, "until": until, "first": first, "last": last, "limit": AT_A_TIME}
    asked["retrying"] = [status is ItemStatus.RETRY_WAIT for status in waiting.statuses]
    held = await rows(conn, "batch/hold_ready", asked)
    n = sum([await _cancel_in(conn, job, one, wanted, waiting.but) for one in held])
    return n, held[-1]["id"] if len(held) == AT_A_TIME else None


async def _cancel_in(
    conn: Connection, job: dict[str, Any], held: Row, wanted: list[int] | None, but: frozenset[int]
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


async def _cancel_in_range(conn: Connection, job: dict[str, Any], held: Row, inside: list[int]) -> int:
    """They leave the range with an outcome of their own: who reads it then passes over them."""
    who = {"job_id": job["id"], "owner_id": job["owner_id"], "status": "cancelled", "seqs": inside}
    cursor = await conn.execute(sql("outcome/add_plain"), who | {"lo": held["lo"], "hi": held["hi"]})
    n = len(await cursor.fetchall())
    if n:
        await conn.execute(sql("batch/take_out"), {"batch_id": held["id"], "n": n})
        await _count(conn, job, n)
    return n


async def _cancel_in_list(
    conn: Connection, job: dict[str, Any], held: Row, wanted: list[int] | None, but: frozenset[int]
) -> int:
    among = None if wanted is None else set(wanted)
    chosen = [seq for seq in held["seqs"] if seq not in but and (among is None or seq in among)]
    if not chosen:
        return 0
    await conn.execute(sql("outcome/cancel_list"), {"job_id": job["id"], "seqs": chosen})
    rest = sorted(set(held["seqs"]) - set(chosen))
    if rest:
        span = {"seqs": rest, "lo": rest[0], "hi": rest[-1] + 1, "open": len(rest)}
        await conn.execute(sql("batch/keep_rest"), {"batch_id": held["id"]} | span)
    else:
        await conn.execute(sql("batch/empty_list"), {"batch_id": held["id"]})
    await _count(conn, job, len(chosen))
    return len(chosen)


async def _count(conn: Connection, job: dict[str, Any], n: int) -> None:
    """Into the sums of the job, not of the range: a range gives back what it has cancelled when it is revived whole."""
    await conn.execute(sql("tally/adjust"), {"job_id": job["id"], "cancelled": -n} | _NOTHING)


async def _newest(conn: Connection, job_id: UUID) -> int:
    cursor = await conn.execute(sql("batch/newest_ready"), {"job_id": job_id})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0
