"""Writing what became of items, behind the fence."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from tidemill.core.batch import Lease, group_retries_by_delay
from tidemill.core.decide import Tally, Verdict
from tidemill.core.status import ItemStatus
from tidemill.store.copy_rows import encode_outcome_rows
from tidemill.store.database import Connection
from tidemill.store.statements import sql

AfterFlush = Callable[[Connection, Lease, Sequence[Verdict]], Awaitable[None]]


class FlushResult(StrEnum):
    APPLIED = "applied"
    ALREADY = "already"  # the COMMIT of this very flush had arrived
    STALE = "stale"  # the lease was lost: nothing was written


async def lock_leased_batch(conn: Connection, lease: Lease) -> bool:
    """Prove the lease before a handler's effects are written in this transaction."""
    cursor = await conn.execute(sql("batch/hold"), _build_fence_params(lease))
    return await cursor.fetchone() is not None


async def flush_outcomes(
    conn: Connection,
    lease: Lease,
    verdicts: Sequence[Verdict],
    lease_s: float,
    sparse_done: int = 0,
    *,
    after_flush: AfterFlush | None = None,
) -> FlushResult:
    """Settle items of a leased batch: fence and counts first, then outcomes and what goes with them, then retry lists.

    ``sparse_done`` counts items of a sparse kind that are done and leave no outcome row. ``after_flush`` is the hook of
    the kind: it writes in the same transaction, and gets the verdicts of the items that are done.
    """
    ordered = sorted(verdicts, key=lambda verdict: verdict.seq)
    gone = [verdict.seq for verdict in ordered] if lease.is_list else None
    fence = _build_fence_params(lease) | _count_tally_deltas(ordered, sparse_done) | {"lease": lease_s, "seqs": gone}
    cursor = await conn.execute(sql("batch/fence"), fence)
    row = await cursor.fetchone()
    if row is None:
        return await explain_rejected_flush(conn, lease)
    # Sparse: who is done leaves no row, unless there is one that says otherwise.
    is_sparse = lease.sparse and not lease.is_list
    stored = [verdict for verdict in ordered if not _is_done(verdict)] if is_sparse else ordered
    if stored:
        write = _upsert_outcomes if lease.is_list else _copy_outcomes
        await write(conn, lease, row[0], stored)
    if after_flush is not None:
        await after_flush(conn, lease, [verdict for verdict in ordered if _is_done(verdict)])
    waits = [(verdict.seq, verdict.delay) for verdict in ordered if verdict.delay is not None]
    for delay, seqs in group_retries_by_delay(waits):
        await conn.execute(sql("batch/add_retry_list"), _build_retry_list_params(lease, seqs, delay))
    return FlushResult.APPLIED


def _is_done(verdict: Verdict) -> bool:
    return verdict.status is ItemStatus.DONE


def _build_fence_params(lease: Lease) -> dict[str, Any]:
    return {"batch_id": lease.batch_id, "lease_id": lease.lease_id, "flush_no": lease.flush_no}


def _count_tally_deltas(verdicts: Sequence[Verdict], plain: int) -> dict[str, Any]:
    tally = Tally.from_verdicts(verdicts)
    terminal = tally.done + tally.not_found + tally.skipped + tally.failed
    return {
        "done": tally.done + plain,
        "not_found": tally.not_found,
        "skipped": tally.skipped,
        "failed": tally.failed,
        "retried": len(verdicts) - terminal,
        "settled": len(verdicts) + plain,
        "codes": Jsonb(tally.codes) if tally.codes else None,
    }


async def explain_rejected_flush(conn: Connection, lease: Lease) -> FlushResult:
    """My own flush that had arrived after all, or a lost lease."""
    cursor = await conn.execute(sql("batch/after_fence"), {"batch_id": lease.batch_id})
    row = await cursor.fetchone()
    if row is None:
        return FlushResult.STALE
    state, lease_id, flush_no = row
    mine = lease_id == lease.lease_id and flush_no == lease.flush_no + 1 and state in ("leased", "done")
    return FlushResult.ALREADY if mine else FlushResult.STALE


async def _copy_outcomes(conn: Connection, lease: Lease, at: Any, verdicts: list[Verdict]) -> None:
    # The rows are built before COPY begins: while it runs, only the server's timeouts watch us.
    rows = encode_outcome_rows(str(lease.job_id).encode(), lease.owner_id, at.isoformat().encode(), verdicts)
    async with conn.cursor() as cursor, cursor.copy(sql("outcome/copy")) as copy:
        await copy.write(rows)


async def _upsert_outcomes(conn: Connection, lease: Lease, at: Any, verdicts: list[Verdict]) -> None:
    columns = {
        "seqs": [v.seq for v in verdicts],
        "statuses": [v.status.value for v in verdicts],
        "attempts": [v.attempts for v in verdicts],
        "results": [_decode_text(v.result) for v in verdicts],
        "normalized": [_decode_text(v.normalized) for v in verdicts],
        "errors": [_decode_text(v.error) for v in verdicts],
        "durations": [v.duration_ms for v in verdicts],
    }
    await conn.execute(sql("outcome/upsert"), {"job_id": lease.job_id, "owner_id": lease.owner_id, "at": at} | columns)


def _decode_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _build_retry_list_params(lease: Lease, seqs: list[int], delay: float) -> dict[str, Any]:
    place: dict[str, Any] = {"job_id": lease.job_id, "owner_id": lease.owner_id, "kind": lease.kind}
    place |= {"lo": seqs[0], "hi": seqs[-1] + 1, "seqs": seqs, "open": len(seqs)}
    return place | {"delay": delay, "retrying": True}
