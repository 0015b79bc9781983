"""Tests of concurrent claims: each claim gets work if there is any, and no item is leased twice."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from store.scenes import at_once, batches, retry_some
from support import add_job, assert_sound, job_of, rows, settle, take, try_take
from tidemill.core.batch import Lease
from tidemill.jobs import job_control
from tidemill.store.batch_leases import BatchClaim, claim_batch, list_claimable_jobs
from tidemill.store.database import Database
from tidemill.store.outcome_flush import FlushResult

CLAIMERS = 16


@pytest.fixture
async def crowd(tidemill_database: str) -> AsyncIterator[Database]:
    """A database with one connection per claim."""
    async with Database(tidemill_database, size=CLAIMERS) as database:
        yield database


async def claim_all(db: Database, job_id: UUID, most: int, wanted: int) -> list[Lease | None]:
    return [await try_take(db, job_id, wanted) for _ in range(most)]


async def test_concurrent_claims_of_ready_batches_never_return_none(crowd: Database) -> None:
    job_id = await add_job(crowd, CLAIMERS * 8 * 10, batch_size=10)
    taken = await asyncio.gather(*(claim_all(crowd, job_id, 8, 10) for _ in range(CLAIMERS)))
    leases = [lease for some in taken for lease in some]
    assert None not in leases
    assert len({lease.lo for lease in leases if lease is not None}) == CLAIMERS * 8
    assert await try_take(crowd, job_id) is None
    await assert_sound(crowd)


async def test_concurrent_carving_claims_each_item_once(crowd: Database) -> None:
    job_id = await add_job(crowd, 1_000)

    async def carve_until_all_is_taken() -> int:
        n = 0
        while (await job_of(crowd, job_id)).counts.pending:
            lease = await try_take(crowd, job_id, 10)
            n += lease.open if lease is not None else 0
        return n

    assert sum(await asyncio.gather(*(carve_until_all_is_taken() for _ in range(CLAIMERS)))) == 1_000
    await assert_sound(crowd)


async def test_claim_waits_briefly_for_concurrent_carve(db: Database) -> None:
    job_id = await add_job(db, 100)
    async with db.transaction() as conn:
        await claim_batch(conn, BatchClaim(job_id, uuid4(), "w1", item_count=10, lease_seconds=30))
        second = asyncio.ensure_future(try_take(db, job_id, 10, "w2"))
        await asyncio.sleep(0)  # let it start, so that it finds the row locked
    got = await at_once(second)
    assert got is not None
    assert (got.lo, got.hi) == (10, 20)
    await assert_sound(db)


async def test_claim_returns_none_when_carve_lock_is_held_too_long(db: Database) -> None:
    job_id = await add_job(db, 100)
    async with db.transaction() as conn:
        assert await claim_batch(conn, BatchClaim(job_id, uuid4(), "w1", item_count=10, lease_seconds=30)) is not None
        assert await at_once(try_take(db, job_id, 10, "w2")) is None
    assert await try_take(db, job_id, 10, "w2") is not None
    await assert_sound(db)


async def test_claim_skips_retry_list_locked_by_another_claim(db: Database) -> None:
    job_id = await add_job(db, 40, batch_size=10)
    await retry_some(db, job_id, range(10))
    async with db.transaction() as conn:
        await claim_batch(conn, BatchClaim(job_id, uuid4(), "w1", item_count=10, lease_seconds=30))
        others = [await at_once(take(db, job_id, 10, "w2")) for _ in range(2)]
    assert len({lease.batch_id for lease in others}) == 2
    await assert_sound(db)


async def test_claim_repeated_with_same_lease_id_returns_same_batch(db: Database) -> None:
    job_id, lease_id = await add_job(db, 100), uuid4()
    asked = {"item_count": 10, "lease_id": lease_id, "lease_seconds": 30.0, "worker": "w1"}
    first = await db.run_async_commit(claim_batch, BatchClaim(job_id, **asked))  # type: ignore[arg-type]
    again = await db.run_async_commit(claim_batch, BatchClaim(job_id, **asked))  # type: ignore[arg-type]
    assert first == again
    assert await batches(db, job_id, "state, open") == [("ready", 90), ("leased", 10)]
    assert again is not None
    assert await settle(db, again) is FlushResult.APPLIED
    await assert_sound(db)


async def test_list_merge_repeated_with_same_lease_id_returns_same_batch(db: Database) -> None:
    job_id, lease_id = await add_job(db, 20, batch_size=10), uuid4()
    await retry_some(db, job_id, [1])
    await retry_some(db, job_id, [1, 11])
    asked = {"item_count": 10, "lease_id": lease_id, "lease_seconds": 30.0, "worker": "w1"}
    first = await db.run_async_commit(claim_batch, BatchClaim(job_id, **asked))  # type: ignore[arg-type]
    assert await db.run_async_commit(claim_batch, BatchClaim(job_id, **asked)) == first  # type: ignore[arg-type]
    await assert_sound(db)


async def test_job_is_runnable_only_while_items_are_due_and_not_paused(db: Database) -> None:
    job_id, other = await add_job(db, 10), await add_job(db, 10, kind="other")
    assert [job.id for job in await db.run_async_commit(list_claimable_jobs, ["test"])] == [job_id]
    await retry_some(db, job_id, [1], delay=60)
    assert await db.run_async_commit(list_claimable_jobs, ["test"]) == []
    await job_control.pause_job(db, other)
    assert await db.run_async_commit(list_claimable_jobs, ["test", "other"]) == []
    await job_control.resume_job(db, other)
    assert [job.id for job in await db.run_async_commit(list_claimable_jobs, ["test", "other"])] == [other]


async def test_runnable_jobs_are_sorted_by_priority_and_marked_when_leased(db: Database) -> None:
    low, high = await add_job(db, 20, batch_size=10), await add_job(db, 20, batch_size=10, priority=5)
    await take(db, low)
    found = [(job.id, job.turning) for job in await db.run_async_commit(list_claimable_jobs, ["test"])]
    assert found == [(high, False), (low, True)]


async def test_claims_have_unique_lease_ids(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    for _ in range(10):
        await settle(db, await take(db, job_id, 10))
    assert await rows(db, "SELECT count(DISTINCT lease_id) FROM tidemill.batch") == [(10,)]
