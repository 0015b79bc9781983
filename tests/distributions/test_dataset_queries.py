"""Read transactions are shared by queries, and no transaction stays open."""

import asyncio

import psycopg
import pytest

from support import eventually, rows
from tidemill.distributions.artifact_producer import ReadTransactionPool
from tidemill.store.database import Database

OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%%'"


async def none_is_open(db: Database) -> bool:
    return await rows(db, OPEN) == [(0,)]


async def test_read_transaction_is_reused_and_ended_when_idle(db: Database) -> None:
    readers, seen = ReadTransactionPool(db, max_open=1, statement_timeout_s=5), []

    async def look() -> None:
        async with readers.acquire() as conn:
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


async def test_read_transaction_past_maximum_age_is_ended_on_release(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.distributions.artifact_producer.READ_TRANSACTION_MAX_S", 0.0)
    async with ReadTransactionPool(db, max_open=1, statement_timeout_s=5).acquire():
        pass
    assert await none_is_open(db)


async def test_read_transaction_with_failed_query_is_not_reused(db: Database) -> None:
    readers = ReadTransactionPool(db, max_open=1, statement_timeout_s=5)
    with pytest.raises(psycopg.errors.DivisionByZero):
        async with readers.acquire() as conn:
            await conn.execute("SELECT 1 / 0")
    assert await none_is_open(db)
    async with readers.acquire() as conn:
        await conn.execute("SELECT 1")


async def test_idle_read_transaction_is_ended_when_database_is_closed(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.distributions.artifact_producer.READ_TRANSACTION_IDLE_S", 3_600.0)
    async with Database(db.url) as other:
        async with ReadTransactionPool(other, max_open=1, statement_timeout_s=5).acquire():
            pass
        assert await rows(db, OPEN) == [(1,)]
    assert await none_is_open(db)
