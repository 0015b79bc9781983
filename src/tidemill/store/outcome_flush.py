"""Writes the outcomes of a leased batch, behind the fence that proves the lease."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from tidemill.core.batch import Lease, group_retries_by_delay
from tidemill.core.decide import Tally, Verdict
from tidemill.core.status import ItemStatus
from tidemill.failpoints import failpoint
from tidemill.store.copy_rows import encode_outcome_rows
from tidemill.store.database import Connection
from tidemill.store.jsonb import encode_json
from tidemill.store.statements import sql

AfterFlush = Callable[[Connection, Lease, Sequence[Verdict]], Awaitable[None]]


class FlushResult(StrEnum):
    APPLIED = "applied"
    ALREADY = "already"  # the same flush was committed before
    STALE = "stale"  # the lease was lost: nothing was written


async def lock_leased_batch(conn: Connection, lease: Lease) -> datetime | None:
    """Check and lock the lease before a handler writes in this transaction.

    Returns when the database server started, or None if the lease was lost.
    """
    cursor = await conn.execute(sql("batch/hold"), _build_fence_params(lease))
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def flush_outcomes(
    conn: Connection,
    lease: Lease,
    verdicts: Sequence[Verdict],
    lease_s: float,
    sparse_done: int = 0,
    *,
    after_flush: AfterFlush | None = None,
) -> FlushResult:
    """Write the outcomes of a leased batch: first the fence and counts, then outcomes, the hook and retry lists.

    ``sparse_done`` counts done items of a sparse kind, which have no outcome row. ``after_flush`` is the kind's hook:
    it gets the verdicts of the done items and writes in the same transaction.
    """
    ordered = sorted(verdicts, key=lambda verdict: verdict.seq)
    is_list = lease.seqs is not None
    seqs = [verdict.seq for verdict in ordered] if is_list else None
    fence = _build_fence_params(lease) | _build_tally_params(ordered, sparse_done) | {"lease": lease_s, "seqs": seqs}
    cursor = await conn.execute(sql("batch/fence"), fence)
    row = await cursor.fetchone()
    if row is None:
        return await classify_rejected_flush(conn, lease)
    failpoint("flush.after_fence")
    # Done items of a sparse kind have no row, except in a list, where an open outcome row already exists.
    is_sparse = lease.sparse and not is_list
    stored = [verdict for verdict in ordered if not _is_done_verdict(verdict)] if is_sparse else ordered
    if stored:
        write = _upsert_outcomes if is_list else _copy_outcomes
        at, worker = row
        await write(conn, lease, at, worker, stored)
    failpoint("flush.after_outcomes")
    if after_flush is not None:
        await after_flush(conn, lease, [verdict for verdict in ordered if _is_done_verdict(verdict)])
    failpoint("flush.after_effects")
    waits = [(verdict.seq, verdict.delay) for verdict in ordered if verdict.delay is not None]
    for delay, retry_seqs in group_retries_by_delay(waits) if waits else ():
        await conn.execute(sql("batch/add_retry_list"), _build_retry_list_params(lease, retry_seqs, delay))
    failpoint("flush.before_commit")
    return FlushResult.APPLIED


def _is_done_verdict(verdict: Verdict) -> bool:
    return verdict.status is ItemStatus.DONE


def _build_fence_params(lease: Lease) -> dict[str, Any]:
    return {"batch_id": lease.batch_id, "lease_id": lease.lease_id, "flush_no": lease.flush_no}


def _build_tally_params(verdicts: Sequence[Verdict], sparse_done: int) -> dict[str, Any]:
    tally = Tally.from_verdicts(verdicts)
    terminal = tally.done + tally.not_found + tally.skipped + tally.failed
    return {
        "done": tally.done + sparse_done,
        "not_found": tally.not_found,
        "skipped": tally.skipped,
        "failed": tally.failed,
        "retried": len(verdicts) - terminal,
        "settled": len(verdicts) + sparse_done,
        "codes": Jsonb(tally.codes) if tally.codes else None,
        "further_codes": Jsonb(tally.further_codes) if tally.further_codes else None,
    }


async def classify_rejected_flush(conn: Connection, lease: Lease) -> FlushResult:
    """Whether the same flush was committed before, or the lease was lost."""
    cursor = await conn.execute(sql("batch/after_fence"), {"batch_id": lease.batch_id})
    row = await cursor.fetchone()
    if row is None:
        return FlushResult.STALE
    state, lease_id, flush_no = row
    is_same_flush = lease_id == lease.lease_id and flush_no == lease.flush_no + 1 and state in ("leased", "done")
    return FlushResult.ALREADY if is_same_flush else FlushResult.STALE


async def _copy_outcomes(conn: Connection, lease: Lease, at: Any, worker: str | None, verdicts: list[Verdict]) -> None:
    # A first attempt that settles the item has no details if the item is done or its kind sparse: the outcome itself
    # has its time and duration. Many outcomes are of this sort, and each byte of them costs time.
    time = at.isoformat()
    details = [
        None
        if verdict.status is ItemStatus.DONE
        or (lease.sparse and verdict.delay is None and verdict.exception is None)
        or not verdict.charged
        else _encode_details(verdict, time, worker)
        for verdict in verdicts
    ]
    # Build the rows before COPY starts, because only the server's timeouts apply during COPY.
    rows = encode_outcome_rows(str(lease.job_id).encode(), lease.owner_id, time.encode(), verdicts, details)
    async with conn.cursor() as cursor, cursor.copy(sql("outcome/copy")) as copy:
        await copy.write(rows)


async def _upsert_outcomes(
    conn: Connection, lease: Lease, at: Any, worker: str | None, verdicts: list[Verdict]
) -> None:
    time = at.isoformat()
    columns = {
        "seqs": [v.seq for v in verdicts],
        "statuses": [v.status.value for v in verdicts],
        "attempts": [v.attempts for v in verdicts],
        "results": [_decode_text(v.result) for v in verdicts],
        "normalized": [_decode_text(v.normalized) for v in verdicts],
        "errors": [_decode_text(v.error) for v in verdicts],
        "durations": [v.duration_ms for v in verdicts],
        "details": [_encode_details(v, time, worker).decode() if v.charged else None for v in verdicts],
    }
    await conn.execute(sql("outcome/upsert"), {"job_id": lease.job_id, "owner_id": lease.owner_id, "at": at} | columns)


def _encode_details(verdict: Verdict, at: str, worker: str | None) -> bytes:
    """Return the details of an outcome: this attempt, and the exception that it raised."""
    attempt = {
        "attempt": verdict.attempts,
        "at": at,
        "worker": worker or "",
        "duration_ms": verdict.duration_ms,
        "status": verdict.status,
        "code": verdict.code or "",
    }
    details: dict[str, Any] = {"attempts": [{name: value for name, value in attempt.items() if value != ""}]}
    if verdict.exception is not None:
        details["traceback"] = verdict.exception.traceback
    return encode_json(details)


def _decode_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _build_retry_list_params(lease: Lease, seqs: list[int], delay: float) -> dict[str, Any]:
    batch: dict[str, Any] = {"job_id": lease.job_id, "owner_id": lease.owner_id, "kind": lease.kind}
    batch |= {"lo": seqs[0], "hi": seqs[-1] + 1, "seqs": seqs, "open": len(seqs)}
    return batch | {"delay": delay, "retrying": True}
