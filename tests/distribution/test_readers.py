"""Transactions that are handed on: nobody is left in one."""

import asyncio

import psycopg
import pytest

from support import eventually, rows
from tidemill.store.database import Database
from tidemill.store.readers import Readers

OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%%'"


async def none_is_open(db: Database) -> bool:
    return await rows(db, OPEN) == [(0,)]


async def test_a_transaction_is_handed_on_and_ended_when_nobody_takes_it_up(db: Database) -> None:
    readers, seen = Readers(db, at_once=1, seconds=5), []

    async def look() -> None:
        async with readers.reader() as conn:
            cursor = await conn.execute(b"SELECT pg_backend_pid(), xact_start::text FROM pg_stat_activity"
                                        b" WHERE pid = pg_backend_pid()")  # fmt: skip
            seen.append(await cursor.fetchone())

    await asyncio.gather(*(look() for _ in range(5)))
    await look()
    assert len(seen) == 6
    assert len(set(seen)) == 1
    await eventually(lambda: none_is_open(db))
    await look()
    assert len(set(seen)) == 2


async def test_one_that_was_handed_on_for_long_enough_is_ended_at_once(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.store.readers.LONGEST_S", 0.0)
    async with Readers(db, at_once=1, seconds=5).reader():
        pass
    assert await none_is_open(db)


async def test_one_in_which_a_query_failed_is_not_handed_on(db: Database) -> None:
    readers = Readers(db, at_once=1, seconds=5)
    with pytest.raises(psycopg.errors.DivisionByZero):
        async with readers.reader() as conn:
            await conn.execute("SELECT 1 / 0")
    assert await none_is_open(db)
    async with readers.reader() as conn:
        await conn.execute("SELECT 1")


async def test_what_is_kept_for_the_next_one_is_given_back_when_the_database_is_closed(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.store.readers.IDLE_S", 3_600.0)
    async with Database(db.url) as other:
        async with Readers(other, at_once=1, seconds=5).reader():
            pass
        assert await rows(db, OPEN) == [(1,)]
    assert await none_is_open(db)
