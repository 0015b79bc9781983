"""Leases of batches: claiming, extending, releasing, splitting, and reclaiming expired ones."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg import errors
from psycopg.rows import class_row, dict_row

from tidemill.core.batch import SEQ_LIST_MAX, BatchPart, Lease, choose_claim_method
from tidemill.core.child_exit import ISOLATE_AFTER_LOST_LEASES
from tidemill.failpoints import failpoint
from tidemill.store.database import Connection
from tidemill.store.statements import sql

POSTPONE_AFTER_EXPIRY_MAX_S = 300


@dataclass(frozen=True, slots=True)
class ClaimableJob:
    """A job with batches that are due."""

    id: UUID
    owner_id: int
    kind: str
    priority: int
    turning: bool
    owner_turning: int = 0


async def list_claimable_jobs(
    conn: Connection, kinds: Sequence[str], hinted: Collection[UUID] = (), missing: Collection[str] = ()
) -> list[ClaimableJob]:
    """Return jobs with due batches, without those that require something that is missing here."""
    params = {"kinds": list(kinds), "hinted": list(hinted), "missing": list(missing)}
    async with conn.cursor(row_factory=class_row(ClaimableJob)) as cursor:
        await cursor.execute(sql("job/runnable"), params)
        return await cursor.fetchall()


@dataclass(slots=True)
class BatchClaim:
    """A request to lease about ``item_count`` items of a job, with a lease id from the caller.

    ``may_be_leased`` says that an earlier attempt may have committed although its answer was lost. It is set after the
    first attempt.
    """

    job_id: UUID
    lease_id: UUID
    worker: str
    item_count: int
    lease_seconds: float
    may_run: Callable[[Lease], bool] | None = None
    may_be_leased: bool = True


async def claim_batch(conn: Connection, claim: BatchClaim) -> Lease | None:
    """Lease a due batch of a job or a part of it. Return None if nothing is due or it may not run here."""
    if claim.may_be_leased:
        leased = await find_leased_batch(conn, claim.worker, claim.lease_id)
        if leased is not None:
            return leased
    claim.may_be_leased = True
    ready = await _lock_next_ready_batch(conn, claim.job_id, claim.lease_id)
    if ready is None:
        return None
    if claim.may_run is not None and (ready.limiter or ready.requires) and not claim.may_run(ready):
        return None
    holder = {"lease_id": claim.lease_id, "lease": claim.lease_seconds, "worker": claim.worker}
    item_count = 1 if ready.isolated else claim.item_count
    match choose_claim_method(ready, item_count):
        case "carve":
            lease = await _lease_carved_range(conn, ready, item_count, holder)
        case "slice":
            lease = await _lease_carved_list(conn, ready, item_count, holder)
        case "merge":
            lease = await _lease_merged_lists(conn, ready, min(item_count, SEQ_LIST_MAX), holder)
        case "whole":
            lease = await _lease_entire_batch(conn, ready, holder)
    failpoint("claim.leased")
    return lease


async def find_leased_batch(conn: Connection, worker: str, lease_id: UUID) -> Lease | None:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("batch/by_lease"), {"worker": worker, "lease_id": lease_id})
        row = await cursor.fetchone()
    if row is None:
        return None
    row.pop("state")
    return _parse_lease(row, lease_id)


async def _lock_next_ready_batch(conn: Connection, job_id: UUID, lease_id: UUID) -> Lease | None:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("batch/peek"), {"job_id": job_id})
        row = await cursor.fetchone()
        if row is None:
            await conn.execute(b"SET LOCAL lock_timeout = '50ms'", prepare=False)
            try:
                await cursor.execute(sql("batch/peek_waiting"), {"job_id": job_id})
                row = await cursor.fetchone()
            except errors.LockNotAvailable:
                return None  # the transaction is aborted, but it has written nothing
    return None if row is None else _parse_lease(row, lease_id)


def _parse_lease(row: dict[str, Any], lease_id: UUID) -> Lease:
    seqs = row.pop("seqs")
    return Lease(seqs=None if seqs is None else tuple(seqs), lease_id=lease_id, **row)


async def _lease_entire_batch(conn: Connection, ready: Lease, holder: dict[str, Any]) -> Lease:
    range_ = {"batch_id": ready.batch_id, "lo": ready.lo, "hi": ready.hi, "open": ready.open}
    await conn.execute(sql("batch/lease"), holder | range_ | {"seqs": ready.seqs and list(ready.seqs)})
    return replace(ready, flush_no=0)


async def _lease_carved_range(conn: Connection, ready: Lease, n: int, holder: dict[str, Any]) -> Lease:
    await conn.execute(sql("batch/carve_range"), {"n": n, "batch_id": ready.batch_id})
    return await _add_leased_batch(conn, replace(ready, hi=ready.lo + n, open=n), holder)


async def _lease_carved_list(conn: Connection, ready: Lease, n: int, holder: dict[str, Any]) -> Lease:
    taken = (ready.seqs or ())[:n]
    await conn.execute(sql("batch/carve_list"), {"n": n, "batch_id": ready.batch_id})
    return await _add_leased_batch(conn, _copy_lease_with_seqs(ready, taken), holder)


async def _lease_merged_lists(conn: Connection, ready: Lease, most: int, holder: dict[str, Any]) -> Lease:
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
    return await _lease_entire_batch(conn, _copy_lease_with_seqs(ready, tuple(sorted(seqs))), holder)


async def _add_leased_batch(conn: Connection, part: Lease, holder: dict[str, Any]) -> Lease:
    names = (
        "job_id",
        "owner_id",
        "kind",
        "lo",
        "hi",
        "open",
        "isolated",
        "crashes",
        "losses",
        "disconnects",
        "retrying",
        "half",
    )
    columns = {name: getattr(part, name) for name in names}
    cursor = await conn.execute(sql("batch/add_leased"), columns | holder | {"seqs": part.seqs and list(part.seqs)})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    return replace(part, batch_id=row[0], flush_no=0)


def _copy_lease_with_seqs(lease: Lease, seqs: tuple[int, ...]) -> Lease:
    return replace(lease, seqs=seqs, lo=seqs[0], hi=seqs[-1] + 1, open=len(seqs))


async def extend_leases(conn: Connection, worker: str, lease_ids: Sequence[UUID], seconds: float) -> int:
    """Extend batch leases and ingest leases of a worker. Return the number of extended batch leases."""
    params = {"worker": worker, "lease_ids": list(lease_ids), "lease": seconds}
    await conn.execute(sql("ingest/heartbeat"), params)
    cursor = await conn.execute(sql("batch/heartbeat"), params)
    failpoint("heartbeat.extended")
    return cursor.rowcount


async def release_rest_of_batch(
    conn: Connection, lease: Lease, *, after_crash: bool = False, losses: int = 0
) -> tuple[int, int] | None:
    """Release the rest of a batch. Return its crashes and open items, or None if the lease was lost."""
    params = _build_held_lease_params(lease, after_crash) | {
        "losses": losses,
        "isolate_at": ISOLATE_AFTER_LOST_LEASES,
    }
    cursor = await conn.execute(sql("batch/release"), params)
    failpoint("release.released")
    return await cursor.fetchone()


async def split_batch(
    conn: Connection,
    lease: Lease,
    parts: Sequence[BatchPart],
    *,
    after_crash: bool = False,
    crashes: int = 0,
    disconnects: int = 0,
    delay_s: float = 0.0,
) -> bool:
    """Close a batch and move its open items to new batches, due after ``delay_s``. Return False if the lease was lost.

    ``disconnects`` is for parts with several items; an item that is alone starts to count again.
    """
    cursor = await conn.execute(sql("batch/close_split"), _build_held_lease_params(lease, after_crash))
    if await cursor.fetchone() is None:
        return False
    job: dict[str, Any] = {"job_id": lease.job_id, "owner_id": lease.owner_id, "kind": lease.kind}
    for piece in parts:
        params = job | {"lo": piece.lo, "hi": piece.hi, "isolated": piece.isolated, "delay": delay_s}
        params["crashes"] = crashes if piece.isolated else 0
        params["disconnects"] = 0 if piece.hi - piece.lo == 1 else disconnects
        if piece.seqs is None:
            await conn.execute(sql("batch/add_range_piece"), params)
        else:
            params |= {
                "seqs": list(piece.seqs),
                "open": len(piece.seqs),
                "retrying": lease.retrying,
                "half": piece.half,
            }
            await conn.execute(sql("batch/add_list_piece"), params)
    return True


async def postpone_batch(conn: Connection, lease: Lease, *, disconnects: int, delay_s: float) -> bool:
    """Release a batch whose transaction lost its connection; it is due after ``delay_s``. Return False if stale."""
    params = _build_held_lease_params(lease, after_crash=False) | {"disconnects": disconnects, "delay": delay_s}
    cursor = await conn.execute(sql("batch/postpone"), params)
    return await cursor.fetchone() is not None


async def terminate_sessions_stuck_in_copy(conn: Connection, seconds: float) -> int:
    """Terminate Tidemill sessions whose COPY has waited for its client longer than ``seconds``. Return their number.

    No server timeout ends them. A worker suspended during COPY holds the lock of its batch, so its lease could never be
    reclaimed.
    """
    cursor = await conn.execute(sql("batch/end_stuck_copies"), {"seconds": seconds})
    return cursor.rowcount


async def reclaim_expired_leases(conn: Connection) -> list[tuple[int, UUID, int]]:
    """Reclaim expired leases. Return (batch, job, losses in a row) for each."""
    limits = {"isolate_at": ISOLATE_AFTER_LOST_LEASES, "postpone_max_s": POSTPONE_AFTER_EXPIRY_MAX_S}
    cursor = await conn.execute(sql("batch/sweep"), limits)
    reclaimed = await cursor.fetchall()
    if reclaimed:
        failpoint("sweep.reclaimed")
    return reclaimed


def _build_held_lease_params(lease: Lease, after_crash: bool) -> dict[str, Any]:
    flush_no = None if after_crash else lease.flush_no
    return {"batch_id": lease.batch_id, "lease_id": lease.lease_id, "flush_no": flush_no}
