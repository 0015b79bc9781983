"""Writing what became of items, behind the fence."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from tidemill.domain.batch import Lease, retry_buckets
from tidemill.domain.decide import Verdict
from tidemill.domain.distribution import KIND as DISTRIBUTE
from tidemill.domain.status import ItemStatus
from tidemill.domain.tally import Tally
from tidemill.store import artifacts
from tidemill.store.database import Connection
from tidemill.store.rows import outcome_lines
from tidemill.store.statements import sql

# What else is written of the done items of a kind: whoever flushes them, the parent of a dead child too.
_BESIDE: dict[str, Callable[[Connection, Lease, Sequence[Verdict]], Awaitable[None]]] = {DISTRIBUTE: artifacts.note}


class Flushed(StrEnum):
    APPLIED = "applied"
    ALREADY = "already"  # the COMMIT of this very flush had arrived
    STALE = "stale"  # the lease was lost: nothing was written


async def hold(conn: Connection, lease: Lease) -> bool:
    """Prove the lease before a handler's effects are written in this transaction."""
    cursor = await conn.execute(sql("batch/hold"), _fence_key(lease))
    return await cursor.fetchone() is not None


async def flush(conn: Connection, lease: Lease, verdicts: Sequence[Verdict], seconds: float, plain: int = 0) -> Flushed:
    """Settle items of a leased batch: fence and counts first, then outcomes and what goes with them, then retry lists.

    ``plain`` is how many more are done without a trace, of a sparse kind.
    """
    ordered = sorted(verdicts, key=lambda verdict: verdict.seq)
    gone = [verdict.seq for verdict in ordered] if lease.is_list else None
    fence = _fence_key(lease) | _deltas(ordered, plain) | {"lease": seconds, "seqs": gone}
    cursor = await conn.execute(sql("batch/fence"), fence)
    row = await cursor.fetchone()
    if row is None:
        return await why_refused(conn, lease)
    # Sparse: who is done leaves no row, unless there is one that says otherwise.
    is_sparse = lease.sparse and not lease.is_list
    stored = [verdict for verdict in ordered if not _is_plain(verdict)] if is_sparse else ordered
    if stored:
        write = _upsert if lease.is_list else _copy
        await write(conn, lease, row[0], stored)
    if lease.kind in _BESIDE:
        await _BESIDE[lease.kind](conn, lease, [verdict for verdict in ordered if _is_plain(verdict)])
    waits = [(verdict.seq, verdict.delay) for verdict in ordered if verdict.delay is not None]
    for delay, seqs in retry_buckets(waits):
        await conn.execute(sql("batch/add_retry_list"), _list(lease, seqs, delay))
    return Flushed.APPLIED


def _is_plain(verdict: Verdict) -> bool:
    return verdict.status is ItemStatus.DONE


def _fence_key(lease: Lease) -> dict[str, Any]:
    return {"batch_id": lease.batch_id, "lease_id": lease.lease_id, "flush_no": lease.flush_no}


def _deltas(verdicts: Sequence[Verdict], plain: int) -> dict[str, Any]:
    tally = Tally.of(verdicts)
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


async def why_refused(conn: Connection, lease: Lease) -> Flushed:
    """My own flush that had arrived after all, or a lost lease."""
    cursor = await conn.execute(sql("batch/after_fence"), {"batch_id": lease.batch_id})
    row = await cursor.fetchone()
    if row is None:
        return Flushed.STALE
    state, lease_id, flush_no = row
    mine = lease_id == lease.lease_id and flush_no == lease.flush_no + 1 and state in ("leased", "done")
    return Flushed.ALREADY if mine else Flushed.STALE


async def _copy(conn: Connection, lease: Lease, at: Any, verdicts: list[Verdict]) -> None:
    # The rows are built before COPY begins: while it runs, only the server's timeouts watch us.
    rows = outcome_lines(str(lease.job_id).encode(), lease.owner_id, at.isoformat().encode(), verdicts)
    async with conn.cursor() as cursor, cursor.copy(sql("outcome/copy")) as copy:
        await copy.write(rows)


async def _upsert(conn: Connection, lease: Lease, at: Any, verdicts: list[Verdict]) -> None:
    columns = {
        "seqs": [v.seq for v in verdicts],
        "statuses": [v.status.value for v in verdicts],
        "attempts": [v.attempts for v in verdicts],
        "results": [_text(v.result) for v in verdicts],
        "normalized": [_text(v.normalized) for v in verdicts],
        "errors": [_text(v.error) for v in verdicts],
        "durations": [v.duration_ms for v in verdicts],
    }
    await conn.execute(sql("outcome/upsert"), {"job_id": lease.job_id, "owner_id": lease.owner_id, "at": at} | columns)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _list(lease: Lease, seqs: list[int], delay: float) -> dict[str, Any]:
    place: dict[str, Any] = {"job_id": lease.job_id, "owner_id": lease.owner_id, "kind": lease.kind}
    place |= {"lo": seqs[0], "hi": seqs[-1] + 1, "seqs": seqs, "open": len(seqs)}
    return place | {"delay": delay, "retrying": True}
