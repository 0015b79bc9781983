"""The clock that tests move."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from support import eventually, rows, shift_clock, until
from tidemill.store.database import Database


async def test_shift_clock_applies_to_connection_that_is_still_opening(db: Database) -> None:
    pool, configure = db._pool, db._pool._configure
    is_opening, may_end = asyncio.Event(), asyncio.Event()

    async def configure_slowly(conn: AsyncConnection[Any]) -> None:
        if configure is not None:
            await configure(conn)
        is_opening.set()
        await until(may_end)

    async with AsyncExitStack() as held:
        for _ in range(pool.get_stats()["pool_available"]):
            await held.enter_async_context(pool.connection())
        pool._configure = configure_slowly
        waiting = asyncio.create_task(rows(db, "SELECT 1"))  # so the pool grows
        await until(is_opening)
    await waiting
    await shift_clock(db, "1 hour")
    may_end.set()
    await eventually(lambda: _is_all_there(db))

    async with AsyncExitStack() as held:
        taken = [await held.enter_async_context(pool.connection()) for _ in range(pool.get_stats()["pool_size"])]
        clocks = [await (await conn.execute("SELECT tidemill.now() - clock_timestamp()")).fetchone() for conn in taken]
    assert len(clocks) > 1
    assert all(row is not None and row[0] > timedelta(minutes=59) for row in clocks)


async def _is_all_there(db: Database) -> bool:
    stats = db._pool.get_stats()
    return bool(stats["pool_available"] == stats["pool_size"])
