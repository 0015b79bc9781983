"""Keeping leases, giving them back, and taking back the ones that ran out."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tidemill.domain.batch import Lease, Piece
from tidemill.domain.crash import ISOLATE_LOSSES
from tidemill.store.database import Connection, relaxed
from tidemill.store.statements import sql


@relaxed
async def heartbeat(conn: Connection, worker: str, lease_ids: Sequence[UUID], seconds: float) -> int:
    """Extend these leases of a worker, of batches and of sources; how many batches."""
    params = {"worker": worker, "lease_ids": list(lease_ids), "lease": seconds}
    await conn.execute(sql("ingest/heartbeat"), params)
    cursor = await conn.execute(sql("batch/heartbeat"), params)
    return cursor.rowcount


async def release(
    conn: Connection, lease: Lease, *, speaking_for_the_dead: bool = False, losses: int = 0
) -> tuple[int, int] | None:
    """Give the rest of a batch back; its crashes and open items, or None if the lease was lost."""
    params = _key(lease, speaking_for_the_dead) | {
        "losses": losses,
        "isolate_at": ISOLATE_LOSSES,
    }
    cursor = await conn.execute(sql("batch/release"), params)
    return await cursor.fetchone()


async def split(
    conn: Connection,
    lease: Lease,
    pieces: Sequence[Piece],
    *,
    speaking_for_the_dead: bool = False,
    crashes: int = 0,
) -> bool:
    """Close a batch and put its open items into pieces; False if the lease was lost."""
    cursor = await conn.execute(sql("batch/close_split"), _key(lease, speaking_for_the_dead))
    if await cursor.fetchone() is None:
        return False
    place: dict[str, Any] = {"job_id": lease.job_id, "owner_id": lease.owner_id, "kind": lease.kind}
    for piece in pieces:
        params = place | {"lo": piece.lo, "hi": piece.hi, "isolated": piece.isolated}
        params["crashes"] = crashes if piece.isolated else 0
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


async def end_stuck_copies(conn: Connection, seconds: float) -> int:
    """End our sessions that wait for a client in mid-COPY for longer than that: no timeout of the server does.

    A worker that was stopped there holds the lock of its batch, and a sweep would pass over it for ever.
    """
    cursor = await conn.execute(sql("batch/end_stuck_copies"), {"seconds": seconds})
    return cursor.rowcount


async def sweep(conn: Connection) -> list[tuple[int, UUID, int]]:
    """Take back leases that ran out: (batch, job, losses in a row)."""
    cursor = await conn.execute(sql("batch/sweep"), {"isolate_at": ISOLATE_LOSSES})
    return await cursor.fetchall()


def _key(lease: Lease, speaking_for_the_dead: bool) -> dict[str, Any]:
    flush_no = None if speaking_for_the_dead else lease.flush_no
    return {"batch_id": lease.batch_id, "lease_id": lease.lease_id, "flush_no": flush_no}
