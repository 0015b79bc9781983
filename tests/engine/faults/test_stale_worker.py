"""Tests of a worker that resumes after its lease expired: its late results are rejected."""

import asyncio
import os
import signal
import subprocess
from typing import Any
from uuid import UUID

import pytest

from support import Workers, add_job, assert_sound, closed, eventually, fates, job_of, rows
from tidemill import Item, Mill
from tidemill.config import Settings
from tidemill.core.batch import Lease
from tidemill.core.input_source import SourceReference
from tidemill.core.status import JobStatus
from tidemill.files.blobs import open_blob_store
from tidemill.store import batch_leases, item_records
from tidemill.store.database import Connection, Database
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async
from tidemill.testing.drain import drain

# The first worker is slow until it is stopped; the second is fast.
APP = """
    @mill.handler("test", concurrency=20)
    async def run(item):
        if os.environ.get("WHO") == "first":
            open("in-hand", "w").close()
            await asyncio.sleep(1.5)
            return "late"
        return "in time"
"""


def signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    os.killpg(process.pid, number)


async def dump(db: Database, job_id: UUID) -> list[Any]:
    """Return all outcomes and counters of the job."""
    outcomes = await rows(db, "SELECT * FROM tidemill.outcome WHERE job_id = %s ORDER BY seq", job_id)
    items = await rows(db, "SELECT seq, input::text FROM tidemill.item WHERE job_id = %s ORDER BY seq", job_id)
    return [outcomes, items, (await job_of(db, job_id)).counts]


async def stale(db: Database, pid: int) -> int:
    found = await rows(db, "SELECT (info->>'stale')::int FROM tidemill.worker WHERE pid = %s", pid)
    return found[0][0] or 0 if found else 0


async def stop_in_mid_batch(workers: Workers, db: Database, first: "subprocess.Popen[bytes]") -> None:
    async def first_has_items() -> bool:
        return (workers._folder / "in-hand").exists()

    await eventually(first_has_items)
    signal_group(first, signal.SIGSTOP)
    # The first worker may do the maintenance; that duty expires too, after ten seconds.
    await rows(db, "UPDATE tidemill.duty SET until = '-infinity'")


async def test_worker_frozen_past_lease_changes_nothing_and_reports_stale_flush(
    workers: Workers, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.app(APP)
    monkeypatch.setenv("WHO", "first")
    first = workers.start()
    job_id = await add_job(db, 20)
    await stop_in_mid_batch(workers, db, first)
    monkeypatch.setenv("WHO", "second")
    second = workers.start()
    await closed(db, job_id)
    before = await dump(db, job_id)
    signal_group(first, signal.SIGCONT)

    async def refused() -> int:
        return await stale(db, first.pid)

    assert 1 <= await eventually(refused, 20.0) <= 20  # the first rejected flush ends the batch
    assert await dump(db, job_id) == before
    assert await rows(db, "SELECT DISTINCT result FROM tidemill.outcome") == [("in time",)]
    assert await fates(db, job_id) == {("done", None, 1): 20}
    second.terminate()
    assert await asyncio.to_thread(second.wait, 20) == 0
    later = await add_job(db, 20)
    await closed(db, later)
    assert await fates(db, later) == {("done", None, 1): 20}
    await assert_sound(db)


async def test_worker_frozen_past_lease_leaves_no_effect_of_flush_transaction(
    workers: Workers, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rows(db, "CREATE TABLE effect (n int, who text)")
    workers.app("""
        @mill.batch_handler("test", timeout=3)
        async def run(items, conn):
            who = os.environ["WHO"]
            await conn.execute("INSERT INTO effect SELECT n, %s FROM unnest(%s::int[]) n",
                               (who, [item.input["n"] for item in items]))
            if who == "first":
                open("in-hand", "w").close()
                time.sleep(1)
    """)
    monkeypatch.setenv("WHO", "first")
    first = workers.start()
    job_id = await add_job(db, 100)

    await stop_in_mid_batch(workers, db, first)
    monkeypatch.setenv("WHO", "second")
    workers.start()
    await closed(db, job_id)
    before = await dump(db, job_id)
    signal_group(first, signal.SIGCONT)
    later = await add_job(db, 10)
    await closed(db, later)
    assert await dump(db, job_id) == before
    assert await rows(db, "SELECT who, count(*) FROM effect WHERE n >= 10 GROUP BY 1") == [("second", 90)]
    assert await rows(db, "SELECT count(*) FROM effect") == [(110,)]
    await assert_sound(db)


async def test_lease_lost_before_flush_transaction_leaves_no_effect(
    mill: Mill, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rows(db, "CREATE TABLE effect (n int)")
    reads = 0

    @mill.batch_handler("test")
    async def run(items: list[Item], conn: Connection) -> None:
        await conn.execute(b"INSERT INTO effect SELECT unnest(%s::int[])", [[item.input["n"] for item in items]])

    async def read_and_lose_lease(conn: Connection, lease: Lease, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads == 1:
            await rows(db, "UPDATE tidemill.batch SET lease_until = '2000-01-01' WHERE id = %s", lease.batch_id)
            assert await db.run(batch_leases.reclaim_expired_leases)
        return await read_items(conn, lease, **options)

    read_items = item_records.read_unsettled_items_fast
    monkeypatch.setattr(item_records, "read_unsettled_items_fast", read_and_lose_lease)
    job_id = await add_job(db, 10)
    await drain(mill, db=db)
    assert reads == 2
    assert (await job_of(db, job_id)).status is JobStatus.COMPLETED
    assert await rows(db, "SELECT count(*), count(DISTINCT n) FROM effect") == [(10, 10)]
    await assert_sound(db)


async def test_reader_frozen_past_lease_adds_no_rows(workers: Workers, db: Database, settings: Settings) -> None:
    n = 60_000
    blob = open_blob_store(settings.blobs).put(b'{"n": %d}\n' % i for i in range(n))
    workers.app("""
        @mill.handler("test")
        async def run(item):
            return item.input["n"]
    """)
    first = workers.start(ingest_max_rows=500)
    async with db.transaction() as conn:
        source = SourceReference(blob=blob.id, format="ndjson")
        job_id = (await run_steps_async(conn, build_submission_steps(Submission("test", source=source), ())))[0]

    async def reading() -> int:
        return (await job_of(db, job_id)).counts.total

    await eventually(reading)
    signal_group(first, signal.SIGSTOP)
    assert not (await job_of(db, job_id)).ingest_complete
    await rows(db, "UPDATE tidemill.duty SET until = '-infinity'")
    workers.start()
    job = await closed(db, job_id)
    before = await dump(db, job_id)
    signal_group(first, signal.SIGCONT)
    await closed(db, await add_job(db, 1_000))
    assert await dump(db, job_id) == before
    assert (job.counts.total, job.counts.done) == (n, n)
    wrong = "SELECT count(*) FROM tidemill.outcome WHERE job_id = %s AND result::text::bigint <> seq"
    assert await rows(db, wrong, job_id) == [(0,)]
    await assert_sound(db)
