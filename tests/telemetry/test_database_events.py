"""Tests of database events: slow transactions, latency, waits for a connection."""

import asyncio

import pytest

from telemetry.recorded_events import Told
from tidemill.store import database
from tidemill.store.database import Connection, Database, TransactionStats
from tidemill.telemetry.events import bind_fields


async def doze(conn: Connection) -> None:
    await conn.execute(b"SELECT pg_sleep(0.05)")


async def oversleep(conn: Connection) -> None:
    await conn.execute(b"SELECT pg_sleep(1.1)")


async def glance(conn: Connection) -> int:
    cursor = await conn.execute(b"SELECT 1")
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_slow_transaction_emits_query_slow_event_with_job(tidemill_database: str, told: Told) -> None:
    async with Database(tidemill_database, slow_ms=1_000) as db:
        with bind_fields(job="j1", request_id="abc-1"):
            await db.run(oversleep)
        assert await db.run(glance) == 1
    (slow,) = told.of("query.slow")
    assert slow.pop("ms") >= 1_100
    assert slow == {"verb": "oversleep", "threshold_ms": 1_000, "job": "j1", "request_id": "abc-1"}


async def test_transaction_latency_is_reported_once_per_interval(
    tidemill_database: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LATENCY_REPORT_INTERVAL_S", 3_600.0)
    async with Database(tidemill_database) as db:
        for _ in range(5):
            await db.run(glance)
        assert told.of("database.latency") == [], "not before the interval is over"
        monkeypatch.setattr(database, "LATENCY_REPORT_INTERVAL_S", 0.0)
        await db.run(glance)
    (latency,) = told.of("database.latency")
    assert latency["transactions"] == 6
    assert 0 < latency["ms"] < 1_000


async def test_pool_wait_emits_pool_waited_event(tidemill_database: str, told: Told) -> None:
    async with Database(tidemill_database, size=1) as db:
        await db.run(glance)
        told.clear()
        await asyncio.gather(db.run(doze), db.run(glance))
    # On a busy machine the holder of the connection may have waited for it briefly, too.
    assert max(wait["ms"] for wait in told.of("pool.waited")) >= 30


def test_pool_wait_below_threshold_emits_no_event(told: Told) -> None:
    TransactionStats(500).record_pool_wait(0.5, is_exhausted=False)
    assert told == []


async def test_database_retry_event_contains_no_values_of_users(tidemill_database: str, told: Told) -> None:
    attempts = 0

    async def conflict(conn: Connection) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await conn.execute(
                "DO $$ BEGIN RAISE EXCEPTION 'row \"secret-1\" changed' USING ERRCODE = '40001', "
                "DETAIL = 'Key (email)=(secret-2)', HINT = 'secret-3'; END $$"
            )

    async with Database(tidemill_database) as db:
        await db.run(conflict)
    (retry,) = told.of("database.retry")
    assert retry["error"] == "40001: row … changed"
    assert "secret" not in repr(told)
