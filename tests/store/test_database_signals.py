"""Tests of the database metrics that a process measures."""

import asyncio

from psycopg import errors

from support import until
from tidemill.store.database import Connection, Database

HELD_S = 0.05


async def nothing(conn: Connection) -> None:
    await conn.execute(b"SELECT 1")


async def hold(db: Database, held: asyncio.Event, let_go: asyncio.Event) -> None:
    async with db.transaction():
        held.set()
        await until(let_go)


async def beside_a_held_connection(db: Database) -> None:
    """Run an action while another task holds a connection and releases it shortly after."""
    held, let_go = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(db, held, let_go))
        await until(held)
        asyncio.get_running_loop().call_later(HELD_S, let_go.set)
        await db.run(nothing)


async def test_transaction_latency_is_a_moving_average(db: Database) -> None:
    assert db.stats.latency_ms is None
    await db.run(nothing)
    first = db.stats.latency_ms
    assert first is not None
    assert first > 0

    async def slow(conn: Connection) -> None:
        await conn.execute(b"SELECT pg_sleep(0.1)")

    ran = await db.run_measured(slow)
    assert ran.ms >= 100
    assert ran.failed == 0
    assert min(first, ran.ms) < db.stats.latency_ms < max(first, ran.ms)


async def test_pool_wait_is_measured_and_decays(tidemill_database: str) -> None:
    async with Database(tidemill_database, size=1) as db:
        await db.run(nothing)
        assert db.stats.pool_waited_ms == 0
        await beside_a_held_connection(db)
        assert db.stats.pool_wait_ms > 1
        waited = db.stats.pool_waited_ms
        assert waited >= HELD_S * 1000 / 2
        for _ in range(100):
            await db.run(nothing)
        assert db.stats.pool_wait_ms < 1
        assert db.stats.pool_waited_ms < 2 * waited


async def test_pool_growth_is_not_measured_as_wait(tidemill_database: str) -> None:
    async with Database(tidemill_database, size=4) as db:
        await beside_a_held_connection(db)
        assert db.stats.pool_waited_ms == 0


async def test_run_measured_counts_failed_attempts(db: Database) -> None:
    tries = iter([errors.SerializationFailure("first"), errors.DeadlockDetected("second"), None])

    async def troubled(conn: Connection) -> str:
        trouble = next(tries)
        if trouble is not None:
            raise trouble
        return "done"

    ran = await db.run_measured(troubled)
    assert (ran.value, ran.failed) == ("done", 2)
    assert db.stats.failures == 2


async def test_pool_keeps_configured_number_of_idle_connections(tidemill_database: str) -> None:
    async with Database(tidemill_database, size=4, idle=3, lifetime=60) as db:
        stats = db._pool.get_stats()
        assert (stats["pool_min"], stats["pool_max"], stats["pool_size"]) == (3, 4, 3)
        assert db._pool.max_lifetime == 60
