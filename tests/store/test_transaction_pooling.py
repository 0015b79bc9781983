"""Tests that sessions have no state, so that a transaction-pooling proxy can be used."""

import asyncio
from contextlib import AsyncExitStack
from uuid import uuid4

import psycopg
import pytest

from store.scenes import at_once, held_up
from support import add_job, add_rows, assert_sound, close_job_as, rows, settle, take, try_take
from support.poolers import PROTOCOL_PREPARE_VERSION, read_pgbouncer_version, run_pgbouncer
from tidemill.core.errors import IdempotencyKeyReused
from tidemill.store.batch_leases import BatchClaim, claim_batch
from tidemill.store.database import Database, is_transient
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async

SETTINGS = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name NOT IN (%s, %s)"
DRIVERS_OWN = ("application_name", "client_encoding")
PRINT = b"the same"


async def test_claim_leaves_no_session_settings_or_advisory_locks(tidemill_database: str) -> None:
    async with Database(tidemill_database, size=1) as db:
        job_id = await add_job(db, 10)
        assert await try_take(db, job_id) is not None
        assert await try_take(db, job_id) is None  # it queries twice, the second time with a lock_timeout
        assert await rows(db, SETTINGS, *DRIVERS_OWN) == []
        assert await rows(db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


async def test_database_without_prepare_creates_no_prepared_statements(tidemill_database: str) -> None:
    async with Database(tidemill_database, size=1, prepare=False) as db:
        job_id = await add_job(db, 100, batch_size=10)
        for _ in range(10):
            await settle(db, await take(db, job_id))
        assert await rows(db, "SELECT count(*) FROM pg_prepared_statements") == [(0,)]
        await assert_sound(db)


async def test_database_run_retries_after_connection_is_terminated(db: Database) -> None:
    job_id, lease_id, tries = await add_job(db, 10), uuid4(), 0

    async def ended_the_first_time(conn: psycopg.AsyncConnection[object]) -> object:
        nonlocal tries
        tries += 1
        lease = await claim_batch(conn, BatchClaim(job_id, lease_id, "w1", item_count=10, lease_seconds=30))
        if tries == 1:
            await rows(db, "SELECT pg_terminate_backend(%s)", conn.info.backend_pid)
        return lease

    assert await at_once(db.run(ended_the_first_time)) is not None
    assert tries == 2
    await assert_sound(db)


@pytest.mark.parametrize(
    "state", ["40001", "40P01", "55P03", "57014", "57P01", "57P03", "08006", "53300", "25P03", "25P04"]
)
def test_transient_sqlstate_is_detected_as_transient(state: str) -> None:
    assert is_transient(psycopg.errors.lookup(state)())


@pytest.mark.parametrize("state", ["23505", "23514", "42601", "22P02", "25P02"])
def test_permanent_sqlstate_is_not_transient(state: str) -> None:
    assert not is_transient(psycopg.errors.lookup(state)())


def keyed(print_: bytes = PRINT) -> Submission:
    return Submission("test", idem_key="once", idem_print=print_)


async def test_submission_blocked_by_same_idempotency_key_returns_first_job(db: Database) -> None:
    async def again() -> tuple[object, bool]:
        async with db.transaction() as conn:
            return await run_steps_async(conn, build_submission_steps(keyed(), [b"1", b"2"]))

    async with db.transaction() as conn:
        first, is_new = await run_steps_async(conn, build_submission_steps(keyed(), [b"1", b"2"]))
        second = await held_up(db, again())
    assert is_new
    assert await at_once(second) == (first, False)
    assert await rows(db, "SELECT count(*) FROM tidemill.item") == [(2,)]
    await assert_sound(db)


async def test_concurrent_submissions_with_same_idempotency_key_create_one_job(db: Database) -> None:
    made = await asyncio.gather(
        *(add_rows(db, [b"1"], idem_key="once", idem_print=PRINT) for _ in range(20)),
    )
    assert len(set(made)) == 1
    assert await rows(db, "SELECT count(*) FROM tidemill.job") == [(1,)]
    await assert_sound(db)


async def test_idempotency_key_reused_for_other_submission_is_rejected(db: Database) -> None:
    await add_rows(db, [b"1"], idem_key="once", idem_print=PRINT)
    with pytest.raises(IdempotencyKeyReused, match="different submission"):
        await add_rows(db, [b"2"], idem_key="once", idem_print=b"another")
    assert await rows(db, "SELECT count(*) FROM tidemill.job") == [(1,)]


async def test_idempotency_key_of_rolled_back_submission_is_available(db: Database) -> None:
    async def again() -> tuple[object, bool]:
        async with db.transaction() as conn:
            return await run_steps_async(conn, build_submission_steps(keyed(), [b"1"]))

    async with db.transaction() as conn:
        first, _ = await run_steps_async(conn, build_submission_steps(keyed(), [b"1"]))
        second = await held_up(db, again())
        await conn.rollback()
        await conn.execute(b"BEGIN")
    found, is_new = await at_once(second)
    assert is_new
    assert found != first
    await assert_sound(db)


@pytest.mark.parametrize("max_prepared_statements", [None, 100])
async def test_transactions_behind_pgbouncer_use_no_prepared_statements(
    max_prepared_statements: int | None, db: Database
) -> None:
    if max_prepared_statements and read_pgbouncer_version() < PROTOCOL_PREPARE_VERSION:
        pytest.skip("This version of PgBouncer has no max_prepared_statements.")
    with run_pgbouncer(db.url, max_prepared_statements=max_prepared_statements) as url:
        async with AsyncExitStack() as stack:
            pooled = [await stack.enter_async_context(Database(url, size=2)) for _ in range(4)]
            failures = await asyncio.gather(*(run_job_to_end(one) for one in pooled))
    assert failures == [0] * 4, "transactions failed and were retried"
    assert await rows(db, "SELECT count(*) FROM tidemill.job WHERE closed_as = 'completed'") == [(4,)]
    await assert_sound(db)


async def run_job_to_end(db: Database) -> int:
    """Run a job in the steps of a worker. Return the number of failed transactions."""
    job_id = await add_job(db, 200, batch_size=10)
    for _ in range(20):
        await settle(db, await take(db, job_id, 10))
    await db.run(close_job_as, job_id)
    return db.stats.failures


async def test_direct_connection_uses_prepared_statements(tidemill_database: str) -> None:
    async with Database(tidemill_database, size=1) as db:
        await run_job_to_end(db)
        [(prepared,)] = await rows(db, "SELECT count(*) FROM pg_prepared_statements")
    assert prepared > 0
