"""Ingests a source into items, chunk by chunk. A fence checks the ingest lease before each chunk."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import kwargs_row
from psycopg.types.json import Jsonb

from tidemill.core.batch import BatchCutter
from tidemill.core.input_source import Checkpoint, InputBlock, SourceReference
from tidemill.failpoints import failpoint
from tidemill.store.copy_rows import encode_block_rows
from tidemill.store.database import Connection
from tidemill.store.outcome_flush import FlushResult
from tidemill.store.statements import fetch_records, sql


@dataclass(frozen=True, slots=True)
class IngestLease:
    """The right of one worker to ingest a job's source from its checkpoint."""

    job_id: UUID
    next_seq: int
    checkpoint: Checkpoint
    source: SourceReference
    losses: int
    kind: str
    owner_id: int
    request_id: str | None = None
    traceparent: str | None = None
    requires: Sequence[str] = ()

    @property
    def event_fields(self) -> dict[str, Any]:
        """The fields that every event about this ingest has."""
        return {
            "job": self.job_id,
            "kind": self.kind,
            "request_id": self.request_id,
            "traceparent": self.traceparent,
        }


@dataclass(frozen=True, slots=True)
class FetchState:
    """The download of a job's source."""

    is_complete: bool
    is_active: bool
    bytes: int
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class IngestChunk:
    """The records of a block as items lo, lo+1, …; ``first_line`` is the line of the file's first record."""

    lo: int
    block: InputBlock
    first_line: int = 1
    duplicate_rows: Sequence[tuple[int, int, int]] = ()  # (losing seq, winning seq, number of the key)
    rows_wait_for_end: bool = False  # no row may start before the source is read completely
    bounded: bool = False  # limited by its bytes, not by the number of rows

    @property
    def hi(self) -> int:
        return self.lo + len(self.block.inputs)


def _make_ingest_lease(source: Mapping[str, Any], **columns: Any) -> IngestLease:
    return IngestLease(source=SourceReference.from_json(source), **columns)


async def take_ingest_lease(
    conn: Connection,
    kinds: Sequence[str],
    *,
    lease_id: UUID,
    lease: float,
    worker: str,
    job_id: UUID | None = None,
    missing: Collection[str] = (),
    busy_owners: Collection[int] = (),
) -> IngestLease | None:
    """Lease the source of a job that waits for ingest, or of the given job. Return None if no source is free.

    Jobs that require something of ``missing`` and jobs of ``busy_owners`` are left to others.
    """
    params = {"kinds": list(kinds), "lease_id": lease_id, "lease": lease, "worker": worker, "job_id": job_id}
    params |= {"missing": list(missing), "busy_owners": list(busy_owners)}
    async with conn.cursor(row_factory=kwargs_row(_make_ingest_lease)) as cursor:
        await cursor.execute(sql("ingest/lease" if job_id is None else "ingest/lease_of_job"), params)
        return await cursor.fetchone()


async def take_fetch_lease(
    conn: Connection,
    kinds: Sequence[str],
    *,
    lease_id: UUID,
    lease: float,
    worker: str,
    per_user: int,
    job_id: UUID | None = None,
) -> IngestLease | None:
    """Lease a source that must be downloaded, of any job or of the given one. Return None if there is none."""
    params = {"kinds": list(kinds), "lease_id": lease_id, "lease": lease, "worker": worker}
    async with conn.cursor(row_factory=kwargs_row(_make_ingest_lease)) as cursor:
        await cursor.execute(sql("ingest/lease_fetch"), params | {"per_user": per_user, "job_id": job_id})
        return await cursor.fetchone()


async def record_fetch_progress(
    conn: Connection, job_id: UUID, lease_id: UUID, *, fetched_bytes: int, total_bytes: int | None, lease: float
) -> bool:
    """Record the progress of a download and extend its lease. Return False if the lease was lost or must end."""
    params = {"job_id": job_id, "lease_id": lease_id, "fetched_bytes": fetched_bytes, "total_bytes": total_bytes}
    return bool((await conn.execute(sql("ingest/record_fetch"), params | {"lease": lease})).rowcount)


async def finish_fetch(conn: Connection, job_id: UUID, lease_id: UUID, fetched_bytes: int | None) -> None:
    """Record that the source is stored, and wake the workers. ``fetched_bytes``: None if it was stored before."""
    params = {"job_id": job_id, "lease_id": lease_id, "fetched_bytes": fetched_bytes}
    if (await conn.execute(sql("ingest/finish_fetch"), params)).rowcount:
        await conn.execute(sql("outbox/announce"), {"job_id": job_id})


async def read_fetch_progress(conn: Connection, job_id: UUID) -> FetchState | None:
    """Return how much of the source of a job is downloaded; None if the source has no URL."""
    states = await fetch_records(conn, FetchState, sql("ingest/fetch_progress"), {"job_id": job_id})
    return states[0] if states else None


async def append_chunk(
    conn: Connection, job_id: UUID, lease_id: UUID, chunk: IngestChunk, *, lease: float, batch_size: int
) -> FlushResult:
    """Append a chunk: items, their ready batches and the checkpoint, in one transaction."""
    cursor = await conn.execute(sql("job/share_running"), {"job_id": job_id})
    job = await cursor.fetchone()
    if job is None:
        return FlushResult.STALE
    fence = {"job_id": job_id, "lease_id": lease_id, "lo": chunk.lo, "hi": chunk.hi, "lease": lease}
    progress = {
        "checkpoint": Jsonb(chunk.block.checkpoint),
        "first_line": chunk.first_line,
        "rows_wait_for_end": chunk.rows_wait_for_end,
    }
    cursor = await conn.execute(sql("ingest/fence"), fence | progress)
    row = await cursor.fetchone()
    if row is None:
        return await _classify_rejected_chunk(conn, job_id, lease_id, chunk)
    failpoint("ingest.after_fence")
    if chunk.block.inputs:
        head, tail = f"{job_id}\t".encode(), f"\t{row[0].isoformat()}\n".encode()
        async with conn.cursor() as copying, copying.copy(sql("item/copy")) as copy:
            await copy.write(encode_block_rows(head, chunk.lo, chunk.block, tail))
        if chunk.duplicate_rows:
            await _store_duplicate_pairs(conn, job_id, chunk.duplicate_rows)
        cutter = BatchCutter(chunk.lo, batch_size)
        cutter.add_items(list(map(len, chunk.block.inputs)))
        los, his = cutter.close_and_get_starts_and_ends()
        batches = {"job_id": job_id, "owner_id": job[0], "kind": job[1]}
        await conn.execute(sql("batch/add_ranges"), batches | {"los": los, "his": his})
        await conn.execute(sql("outbox/announce"), {"job_id": job_id})
    return FlushResult.APPLIED


async def _store_duplicate_pairs(conn: Connection, job_id: UUID, repeats: Sequence[tuple[int, int, int]]) -> None:
    lines = [b"%s\t%d\t%d\t%d\n" % (str(job_id).encode(), *repeat) for repeat in repeats]
    async with conn.cursor() as copying, copying.copy(sql("repeat/copy")) as copy:
        await copy.write(b"".join(lines))


async def finish_ingest(conn: Connection, job_id: UUID, lease_id: UUID) -> bool:
    """Record that the source is read completely. Return False if the lease was lost.

    It locks the job first, as append_chunk does, to avoid a deadlock.
    """
    await conn.execute(sql("job/lock"), {"job_id": job_id})
    cursor = await conn.execute(sql("ingest/release"), {"job_id": job_id, "lease_id": lease_id})
    if cursor.rowcount:
        await conn.execute(sql("job/finish_ingest"), {"job_id": job_id})
        if (await conn.execute(sql("batch/end_wait_for_source"), {"job_id": job_id})).rowcount:
            await conn.execute(sql("outbox/announce"), {"job_id": job_id})
    failpoint("ingest.finished")
    return bool(cursor.rowcount)


async def release_ingest_lease(conn: Connection, job_id: UUID, lease_id: UUID) -> None:
    await conn.execute(sql("ingest/release"), {"job_id": job_id, "lease_id": lease_id})


async def release_crashed_ingest_lease(
    conn: Connection, worker: str, lease_id: UUID, *, losses: int
) -> tuple[UUID, int] | None:
    """Release the ingest lease of a dead child process. Return the job and its losses in a row, or None."""
    cursor = await conn.execute(sql("ingest/release_lease"), {"worker": worker, "lease_id": lease_id, "losses": losses})
    return await cursor.fetchone()


async def _classify_rejected_chunk(conn: Connection, job_id: UUID, lease_id: UUID, chunk: IngestChunk) -> FlushResult:
    cursor = await conn.execute(sql("ingest/look"), {"job_id": job_id})
    row = await cursor.fetchone()
    return FlushResult.ALREADY if row is not None and row == (chunk.hi, lease_id) else FlushResult.STALE
