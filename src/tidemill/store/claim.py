"""Taking a batch: job first, then one due batch of it, whole or in part."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg import errors
from psycopg.rows import class_row, dict_row

from tidemill.domain.batch import LIST_MAX, Lease, how_to_cut
from tidemill.store.database import Connection, relaxed
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class Runnable:
    """A job with something to claim."""

    id: UUID
    owner_id: int
    kind: str
    priority: int
    turning: bool
    owner_turning: int = 0


@relaxed
async def runnable(conn: Connection, kinds: Sequence[str], hinted: Collection[UUID] = ()) -> list[Runnable]:
    async with conn.cursor(row_factory=class_row(Runnable)) as cursor:
        await cursor.execute(sql("job/runnable"), {"kinds": list(kinds), "hinted": list(hinted)})
        return await cursor.fetchall()


@relaxed
async def claim(
    conn: Connection,
    job_id: UUID,
    *,
    wanted: int,
    lease_id: UUID,
    lease: float,
    worker: str,
    adopt: bool = True,
    is_shut: Callable[[str], bool] | None = None,
) -> Lease | None:
    """Lease about ``wanted`` items of a job, or None when nothing is due. ``lease_id`` is the caller's own.

    With ``adopt``, look first whether an earlier try succeeded whose COMMIT answer was lost. ``is_shut`` says of the
    job's limiter that it lets nobody begin.
    """
    adopted = await by_lease(conn, worker, lease_id) if adopt else None
    if adopted is not None:
        return adopted
    ready = await _peek(conn, job_id, lease_id)
    if ready is None or (is_shut is not None and ready.limiter is not None and is_shut(ready.limiter)):
        return None
    hold = {"lease_id": lease_id, "lease": lease, "worker": worker}
    match how_to_cut(ready, wanted):
        case "carve":
            return await _carve_range(conn, ready, 1 if ready.isolated else wanted, hold)
        case "slice":
            return await _carve_list(conn, ready, 1 if ready.isolated else wanted, hold)
        case "merge":
            return await _merge(conn, ready, min(wanted, LIST_MAX), hold)
        case "whole":
            return await _lease_whole(conn, ready, hold)


async def by_lease(conn: Connection, worker: str, lease_id: UUID) -> Lease | None:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("batch/by_lease"), {"worker": worker, "lease_id": lease_id})
        row = await cursor.fetchone()
    if row is None:
        return None
    row.pop("state")
    return _lease(row, lease_id)


async def _peek(conn: Connection, job_id: UUID, lease_id: UUID) -> Lease | None:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("batch/peek"), {"job_id": job_id})
        row = await cursor.fetchone()
        if row is None:
            await conn.execute(b"SET LOCAL lock_timeout = '50ms'", prepare=False)
            try:
                await cursor.execute(sql("batch/peek_waiting"), {"job_id": job_id})
                row = await cursor.fetchone()
            except errors.LockNotAvailable:
                return None  # the transaction is over; there was nothing in it
    return None if row is None else _lease(row, lease_id)


def _lease(row: dict[str, Any], lease_id: UUID) -> Lease:
    seqs = row.pop("seqs")
    return Lease(seqs=None if seqs is None else tuple(seqs), lease_id=lease_id, **row)


async def _lease_whole(conn: Connection, ready: Lease, hold: dict[str, Any]) -> Lease:
    place = {"batch_id": ready.batch_id, "lo": ready.lo, "hi": ready.hi, "open": ready.open}
    await conn.execute(sql("batch/lease"), hold | place | {"seqs": _array(ready.seqs)})
    return replace(ready, flush_no=0)


async def _carve_range(conn: Connection, ready: Lease, n: int, hold: dict[str, Any]) -> Lease:
    await conn.execute(sql("batch/carve_range"), {"n": n, "batch_id": ready.batch_id})
    return await _add_leased(conn, replace(ready, hi=ready.lo + n, open=n), hold)


async def _carve_list(conn: Connection, ready: Lease, n: int, hold: dict[str, Any]) -> Lease:
    taken = (ready.seqs or ())[:n]
    await conn.execute(sql("batch/carve_list"), {"n": n, "batch_id": ready.batch_id})
    return await _add_leased(conn, _of_seqs(ready, taken), hold)


async def _merge(conn: Connection, ready: Lease, most: int, hold: dict[str, Any]) -> Lease:
    seqs = list(ready.seqs or ())
    absorbed = []
    cursor = await conn.execute(
        sql("batch/peek_lists"),
        {"job_id": ready.job_id, "batch_id": ready.batch_id, "retrying": ready.retrying},
    )
    for batch_id, more in await cursor.fetchall():
        if len(seqs) + len(more) <= most:
            absorbed.append(batch_id)
            seqs += more
    if absorbed:
        await conn.execute(sql("batch/absorb"), {"ids": sorted(absorbed)})
    return await _lease_whole(conn, _of_seqs(ready, tuple(sorted(seqs))), hold)


async def _add_leased(conn: Connection, part: Lease, hold: dict[str, Any]) -> Lease:
    names = ("job_id", "owner_id", "kind", "lo", "hi", "open", "isolated", "crashes", "losses", "retrying", "half")
    columns = {name: getattr(part, name) for name in names}
    cursor = await conn.execute(sql("batch/add_leased"), columns | hold | {"seqs": _array(part.seqs)})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    return replace(part, batch_id=row[0], flush_no=0)


def _of_seqs(lease: Lease, seqs: tuple[int, ...]) -> Lease:
    return replace(lease, seqs=seqs, lo=seqs[0], hi=seqs[-1] + 1, open=len(seqs))


def _array(seqs: tuple[int, ...] | None) -> list[int] | None:
    return None if seqs is None else list(seqs)
