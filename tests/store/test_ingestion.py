"""Tests of ingestion: one reader at a time, every chunk once, no seq missing."""

from uuid import UUID, uuid4

import pytest

from store.scenes import at_once, held_up
from support import add_rows, assert_sound, close_job_as, job_of, rows, settle, take, verdict
from tidemill.core.input_source import InputBlock, InputDefect, SourceReference, resolve_line_number
from tidemill.core.job import Counts
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.jobs import job_control
from tidemill.store import ingestion
from tidemill.store.database import Database
from tidemill.store.ingestion import IngestChunk, IngestLease
from tidemill.store.item_records import read_unsettled_items
from tidemill.store.outcome_flush import FlushResult


async def source_job(db: Database) -> UUID:
    return await add_rows(db, [], source=SourceReference(blob="somewhere"))


async def lease_it(db: Database, lease: float = 30.0, worker: str = "w1") -> tuple[UUID, IngestLease | None]:
    lease_id = uuid4()
    return lease_id, await db.run(ingestion.take_ingest_lease, ["test"], lease_id=lease_id, lease=lease, worker=worker)


def chunk(lo: int, n: int = 10) -> IngestChunk:
    return IngestChunk(lo, InputBlock([b'{"n": 1}'] * n, {"at": lo + n}))


async def append(db: Database, job_id: UUID, lease_id: UUID, part: IngestChunk) -> FlushResult:
    return await db.run(ingestion.append_chunk, job_id, lease_id, part, lease=30.0, batch_size=5)


async def test_source_is_leased_to_one_reader_at_a_time(db: Database) -> None:
    await source_job(db)
    _, first = await lease_it(db)
    _, second = await lease_it(db, worker="w2")
    assert first is not None
    assert second is None


async def test_ingest_priority_applies_only_among_jobs_of_owner(db: Database) -> None:
    source = SourceReference(blob="somewhere")
    for _ in range(20):
        await add_rows(db, [], source=source, owner_id=1, priority=100)
    low = await add_rows(db, [], source=source, owner_id=2)
    high = await add_rows(db, [], source=source, owner_id=2, priority=1)
    taken = [(await lease_it(db))[1] for _ in range(22)]
    order = [lease.job_id for lease in taken if lease is not None]
    assert order.index(high) < order.index(low)
    assert order.index(low) < 21, "with a fair choice the probability of this order is one in a million"


async def test_ingest_append_after_lease_takeover_is_stale(db: Database) -> None:
    job_id = await source_job(db)
    zombie, _ = await lease_it(db, lease=-1)
    heir, taken = await lease_it(db, worker="w2")
    assert taken is not None
    assert taken.losses == 0, "a lost host is not a fault of the source"
    assert await append(db, job_id, zombie, chunk(0)) is FlushResult.STALE
    assert await append(db, job_id, heir, chunk(0)) is FlushResult.APPLIED
    assert await append(db, job_id, zombie, chunk(10)) is FlushResult.STALE
    await db.run(ingestion.finish_ingest, job_id, zombie)
    job = await job_of(db, job_id)
    assert (job.ingest_complete, job.counts.total) == (False, 10)
    await assert_sound(db)


async def test_stale_ingest_append_does_not_wait_for_new_reader(db: Database) -> None:
    job_id = await source_job(db)
    zombie, _ = await lease_it(db, lease=-1)
    heir, _ = await lease_it(db, worker="w2")
    async with db.transaction() as conn:
        await ingestion.append_chunk(conn, job_id, heir, chunk(0), lease=30, batch_size=5)
        assert await at_once(append(db, job_id, zombie, chunk(0))) is FlushResult.STALE
    assert (await job_of(db, job_id)).counts == Counts(total=10, pending=10)
    await assert_sound(db)


async def test_ingest_chunk_appended_twice_is_stored_once(db: Database) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    assert await append(db, job_id, lease_id, chunk(0)) is FlushResult.APPLIED
    assert await append(db, job_id, lease_id, chunk(0)) is FlushResult.ALREADY
    assert await append(db, job_id, lease_id, chunk(10)) is FlushResult.APPLIED
    assert (await job_of(db, job_id)).counts == Counts(total=20, pending=20)
    await assert_sound(db)


async def test_ingest_chunk_appended_concurrently_is_stored_once(db: Database) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    async with db.transaction() as conn:
        await ingestion.append_chunk(conn, job_id, lease_id, chunk(0), lease=30, batch_size=5)
        replay = await held_up(db, append(db, job_id, lease_id, chunk(0)))
    assert await at_once(replay) is FlushResult.ALREADY
    assert (await job_of(db, job_id)).counts.total == 10
    await assert_sound(db)


async def test_ingest_resumes_at_checkpoint_after_reader_crash(db: Database) -> None:
    job_id = await source_job(db)
    first, _ = await lease_it(db)
    await append(db, job_id, first, chunk(0, 25))
    assert await db.run(ingestion.release_crashed_ingest_lease, "w1", first, losses=1) == (job_id, 1)
    second, taken = await lease_it(db, worker="w2")
    assert taken is not None
    assert (taken.next_seq, taken.checkpoint, taken.losses) == (25, {"at": 25}, 1)
    await append(db, job_id, second, chunk(25, 5))
    await db.run(ingestion.finish_ingest, job_id, second)
    job = await job_of(db, job_id)
    assert (job.ingest_complete, job.counts.total) == (True, 30)
    await assert_sound(db)


async def test_ingest_chunk_items_and_batches_become_visible_together(db: Database) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    async with db.transaction() as conn:
        await ingestion.append_chunk(conn, job_id, lease_id, chunk(0), lease=30, batch_size=5)
        assert await rows(db, "SELECT count(*) FROM tidemill.batch") == [(0,)]
        assert (await job_of(db, job_id)).counts.total == 0
    first = await take(db, job_id)
    assert [item.seq for item in await db.run_async_commit(read_unsettled_items, first)] == [0, 1, 2, 3, 4]
    await assert_sound(db)


async def test_ingest_stores_bad_record_as_item_with_defect(db: Database) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    defect: InputDefect = {"line": 2, "code": "invalid", "reason": "rubbish", "value": "\\x\t"}
    bad = IngestChunk(0, InputBlock([b"1", b'"\\\\x\\t"', b"3"], {}, {1: defect}))
    await append(db, job_id, lease_id, bad)
    lease = await take(db, job_id)
    found = [(item.seq, item.input, item.defect) for item in await db.run_async_commit(read_unsettled_items, lease)]
    assert found == [(0, 1, None), (1, "\\x\t", defect), (2, 3, None)]
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome") == [(0,)]
    await settle(db, lease, [verdict(0), verdict(1, ItemStatus.FAILED), verdict(2)])
    await assert_sound(db)


async def test_pause_stops_ingest_and_resume_continues_it(db: Database) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    await append(db, job_id, lease_id, chunk(0))
    await job_control.pause_job(db, job_id)
    assert await append(db, job_id, lease_id, chunk(10)) is FlushResult.STALE
    await db.run(ingestion.release_ingest_lease, job_id, lease_id)
    assert (await lease_it(db))[1] is None
    assert (await job_of(db, job_id)).status is JobStatus.PAUSED
    await job_control.resume_job(db, job_id)
    assert (await job_of(db, job_id)).status is JobStatus.INGESTING
    again, taken = await lease_it(db)
    assert taken is not None
    assert await append(db, job_id, again, chunk(taken.next_seq)) is FlushResult.APPLIED
    await assert_sound(db)


async def test_finalize_does_not_close_job_before_ingest_is_complete(db: Database) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    await append(db, job_id, lease_id, chunk(0, 5))
    await settle(db, await take(db, job_id))
    assert await db.run(close_job_as, job_id) is None
    await db.run(ingestion.finish_ingest, job_id, lease_id)
    assert await db.run(close_job_as, job_id) is JobStatus.COMPLETED
    await assert_sound(db)


@pytest.mark.parametrize("worker", ["w1", "w2"])
async def test_crashed_ingest_lease_is_released_only_by_its_own_worker(db: Database, worker: str) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    found = await db.run(ingestion.release_crashed_ingest_lease, worker, lease_id, losses=1)
    assert found == ((job_id, 1) if worker == "w1" else None)


async def test_ingest_stores_source_line_numbers_of_items(db: Database) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    await append(db, job_id, lease_id, IngestChunk(0, InputBlock([b"1", b"2"], {}), first_line=2))
    await append(db, job_id, lease_id, IngestChunk(2, InputBlock([b"3", b"4"], {}, {}, [4, 6]), first_line=2))
    query = "SELECT i.seq, i.line, g.first_line FROM tidemill.item i JOIN tidemill.ingest g USING (job_id) ORDER BY seq"
    found = await rows(db, query)
    assert [line for _, line, _ in found] == [None, None, 4, 6]
    assert [resolve_line_number(seq + 1, line, first) for seq, line, first in found] == [2, 3, 4, 6]
