"""Transactions that are handed on: nobody is left in one."""

import asyncio

import pytest

from support import eventually, rows
from tidemill.store.database import Database
from tidemill.store.readers import Readers

OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%%'"


async def test_a_transaction_is_handed_on_while_somebody_waits_and_ended_when_nobody_does(db: Database) -> None:
    readers, seen = Readers(db, at_once=1, seconds=5), []

    async def look() -> None:
        async with readers.reader() as conn:
            cursor = await conn.execute(b"SELECT pg_backend_pid(), xact_start::text FROM pg_stat_activity"
                                        b" WHERE pid = pg_backend_pid()")  # fmt: skip
            seen.append(await cursor.fetchone())

    await asyncio.gather(*(look() for _ in range(5)))
    assert len(seen) == 5
    assert len(set(seen)) == 1
    assert await rows(db, OPEN) == [(0,)]


async def test_one_that_was_left_for_somebody_who_is_gone_is_ended(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = Readers(db, at_once=1, seconds=5)
    release = readers._turn.release

    async def read() -> None:
        async with readers.reader():
            pass

    holder, waiter = asyncio.create_task(read()), asyncio.create_task(read())

    def release_and_cancel() -> None:
        release()
        waiter.cancel()

    monkeypatch.setattr(readers._turn, "release", release_and_cancel)
    await asyncio.wait([holder, waiter])
    assert waiter.cancelled()

    async def none_is_open() -> bool:
        return await rows(db, OPEN) == [(0,)]

    await eventually(none_is_open)


async def test_two_that_end_together_leave_one_transaction_to_the_one_who_waits(db: Database) -> None:
    readers, both, go = Readers(db, at_once=2, seconds=5), asyncio.Barrier(3), asyncio.Event()

    async def hold() -> None:
        async with readers.reader():
            await both.wait()
            await go.wait()

    async def look() -> None:
        async with readers.reader():
            pass

    holding = [asyncio.create_task(hold()) for _ in range(2)]
    await both.wait()
    looking = asyncio.create_task(look())
    await asyncio.sleep(0)  # it waits
    go.set()
    await asyncio.gather(*holding, looking)
    assert await rows(db, OPEN) == [(0,)]
