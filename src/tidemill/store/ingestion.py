"""Reading a source into items, chunk by chunk, behind a fence of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import kwargs_row
from psycopg.types.json import Jsonb

from tidemill.core.batch import BatchCutter
from tidemill.core.input_source import Checkpoint, InputBlock, SourceReference
from tidemill.store.copy_rows import encode_block_rows
from tidemill.store.database import Connection
from tidemill.store.outcome_flush import FlushResult
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class IngestLease:
    """The right to read one job's source from its checkpoint on."""

    job_id: UUID
    next_seq: int
    checkpoint: Checkpoint
    source: SourceReference
    losses: int
    kind: str
    request_id: str | None = None
    traceparent: str | None = None

    @property
    def event_fields(self) -> dict[str, Any]:
        """What every event about it says."""
        return {
            "job": self.job_id,
            "kind": self.kind,
            "request_id": self.request_id,
            "traceparent": self.traceparent,
        }


@dataclass(frozen=True, slots=True)
class IngestChunk:
    """Items lo, lo+1, …: the records of a block, and the line in their file that the first of all stands on."""

    lo: int
    block: InputBlock
    first_line: int = 1
    duplicate_rows: Sequence[tuple[int, int, int]] = ()  # who loses to whom, in which key
    rows_wait_for_end: bool = False  # no row may start before the source is read to its end
    bounded: bool = False  # by its bytes: there could have been more rows

    @property
    def hi(self) -> int:
        return self.lo + len(self.block.inputs)


def _make_ingest_lease(source: Mapping[str, Any], **columns: Any) -> IngestLease:
    return IngestLease(source=SourceReference.from_json(source), **columns)


async def take_ingest_lease(
    conn: Connection, kinds: Sequence[str], *, lease_id: UUID, lease: float, worker: str, job_id: UUID | None = None
) -> IngestLease | None:
    """The right to read the source of one job that waits for it, or of this very job."""
    params = {"kinds": list(kinds), "lease_id": lease_id, "lease": lease, "worker": worker, "job_id": job_id}
    async with conn.cursor(row_factory=kwargs_row(_make_ingest_lease)) as cursor:
        await cursor.execute(sql("ingest/lease" if job_id is None else "ingest/lease_of_job"), params)
        return await cursor.fetchone()


async def append_chunk(
    conn: Connection, job_id: UUID, lease_id: UUID, chunk: IngestChunk, *, lease: float, batch_size: int
) -> FlushResult:
    """One chunk: items, their ready batches and the checkpoint, all or nothing."""
    cursor = await conn.execute(sql("job/share_running"), {"job_id": job_id})
    job = await cursor.fetchone()
    if job is None:
        return FlushResult.STALE
    fence = {"job_id": job_id, "lease_id": lease_id, "lo": chunk.lo, "hi": chunk.hi, "lease": lease}
    place = {
        "checkpoint": Jsonb(chunk.block.checkpoint),
        "first_line": chunk.first_line,
        "rows_wait_for_end": chunk.rows_wait_for_end,
    }
    cursor = await conn.execute(sql("ingest/fence"), fence | place)
    row = await cursor.fetchone()
    if row is None:
        return await _classify_rejected_chunk(conn, job_id, lease_id, chunk)
    if chunk.block.inputs:
        head, tail = f"{job_id}\t".encode(), f"\t{row[0].isoformat()}\n".encode()
        async with conn.cursor() as copying, copying.copy(sql("item/copy")) as copy:
            await copy.write(encode_block_rows(head, chunk.lo, chunk.block, tail))
        if chunk.duplicate_rows:
            await _store_duplicate_pairs(conn, job_id, chunk.duplicate_rows)
        cutter = BatchCutter(chunk.lo, batch_size)
        cutter.add_items(list(map(len, chunk.block.inputs)))
        los, his = cutter.finish_ranges()
        batches = {"job_id": job_id, "owner_id": job[0], "kind": job[1]}
        await conn.execute(sql("batch/add_ranges"), batches | {"los": los, "his": his})
        await conn.execute(sql("outbox/announce"), {"job_id": job_id})
    return FlushResult.APPLIED


async def _store_duplicate_pairs(conn: Connection, job_id: UUID, repeats: Sequence[tuple[int, int, int]]) -> None:
    lines = [b"%s\t%d\t%d\t%d\n" % (str(job_id).encode(), *repeat) for repeat in repeats]
    async with conn.cursor() as copying, copying.copy(sql("repeat/copy")) as copy:
        await copy.write(b"".join(lines))


async def finish_ingest(conn: Connection, job_id: UUID, lease_id: UUID) -> bool:
    """The source is read to its end; False if that was not ours to say any more.

    The job's lock first: a chunk holds it shared, and would wait for us.
    """
    await conn.execute(sql("job/lock"), {"job_id": job_id})
    cursor = await conn.execute(sql("ingest/release"), {"job_id": job_id, "lease_id": lease_id})
    if cursor.rowcount:
        await conn.execute(sql("job/finish_ingest"), {"job_id": job_id})
        if (await conn.execute(sql("batch/end_wait_for_source"), {"job_id": job_id})).rowcount:
            await conn.execute(sql("outbox/announce"), {"job_id": job_id})
    return bool(cursor.rowcount)


async def release_ingest_lease(conn: Connection, job_id: UUID, lease_id: UUID) -> None:
    await conn.execute(sql("ingest/release"), {"job_id": job_id, "lease_id": lease_id})


async def release_crashed_ingest_lease(
    conn: Connection, worker: str, lease_id: UUID, *, losses: int
) -> tuple[UUID, int] | None:
    """A dead child's right to read goes back: the job, and how often in a row reading it was to blame."""
    cursor = await conn.execute(sql("ingest/release_lease"), {"worker": worker, "lease_id": lease_id, "losses": losses})
    return await cursor.fetchone()


async def _classify_rejected_chunk(conn: Connection, job_id: UUID, lease_id: UUID, chunk: IngestChunk) -> FlushResult:
    cursor = await conn.execute(sql("ingest/look"), {"job_id": job_id})
    row = await cursor.fetchone()
    return FlushResult.ALREADY if row is not None and row == (chunk.hi, lease_id) else FlushResult.STALE
