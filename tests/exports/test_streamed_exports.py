"""Streamed exports: slow readers, failing databases and disconnecting readers."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing

import psutil
import pytest

from exports.scenes import COPYING, Scene
from support import eventually, rows
from tidemill.core.errors import Conflict, TidemillError, Unavailable
from tidemill.exports.table_exporter import stream_table_export

WIDE = "INSERT INTO wide SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 60000) n"  # 58 MB


@pytest.fixture
async def scene(scene: Scene) -> Scene:
    await scene.run("CREATE TABLE wide (id int PRIMARY KEY, text text)", WIDE)
    return scene


async def opened(scene: Scene) -> AsyncGenerator[bytes]:
    """Open a stream and read its first chunk."""
    stream = stream_table_export(scene.db, await scene.plan("wide"))
    assert (await anext(stream)).startswith(b"id,text\n")
    return stream


async def test_closing_stream_ends_its_query(scene: Scene) -> None:
    async with aclosing(await opened(scene)):
        assert len(await scene.copying()) == 1
    await eventually(scene.is_quiet, within=3)  # usually one second; more on a busy machine


async def test_cancelling_stream_ends_query_that_has_sent_no_rows(scene: Scene) -> None:
    await scene.run("CREATE VIEW slow AS SELECT id, pg_sleep(60)::text AS zzz FROM wide")
    reading = asyncio.create_task(scene.stream("slow"))

    async def is_asleep() -> bool:
        return bool(await rows(scene.db, "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))

    await eventually(is_asleep)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await eventually(scene.is_quiet, within=10)


async def test_slow_stream_reader_does_not_increase_memory(scene: Scene) -> None:
    """The server waits for the reader: only a few chunks are in memory, regardless of the size of the table."""
    own = psutil.Process(os.getpid())
    async with aclosing(await opened(scene)) as stream:

        async def is_waiting() -> bool:
            return bool(await rows(scene.db, f"SELECT 1 {COPYING} AND wait_event = 'ClientWrite'"))

        await eventually(is_waiting)
        before = own.memory_info().rss
        for _ in range(3):
            await anext(stream)
            await eventually(is_waiting)
        assert own.memory_info().rss - before < 8 << 20


@pytest.mark.parametrize("ends", ["pg_terminate_backend", "pg_cancel_backend"])
async def test_stream_raises_error_when_database_connection_is_lost(scene: Scene, ends: str) -> None:
    stream = await opened(scene)
    [pid] = await scene.copying()
    await rows(scene.db, f"SELECT {ends}(%s)", pid)
    with pytest.raises(Unavailable, match="connection to the database was lost"):
        [piece async for piece in stream]
    await eventually(scene.is_quiet, within=10)


async def test_stream_of_dropped_table_fails_with_conflict(scene: Scene) -> None:
    plan = await scene.plan("wide")
    await scene.run("DROP TABLE wide")
    with pytest.raises(Conflict, match="The table or one of its columns no longer exists"):
        [piece async for piece in stream_table_export(scene.db, plan)]


async def test_dropping_table_waits_until_stream_is_complete(scene: Scene) -> None:
    stream = await opened(scene)
    dropping = asyncio.create_task(scene.run("DROP TABLE wide"))
    try:
        assert sum([piece.count(b"\n") async for piece in stream]) > 59_000
    except TidemillError as error:  # pragma: no cover
        pytest.fail(f"the stream failed: {error}")
    await dropping


async def test_stream_of_locked_table_fails_with_lock_timeout(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = await scene.plan("wide")
    monkeypatch.setattr("tidemill.exports.table_exporter.EXPORT_LOCK_TIMEOUT_MS", 50)
    async with scene.db.transaction() as conn:
        await conn.execute("LOCK TABLE wide")
        with pytest.raises(Unavailable, match="lock timeout"):
            [piece async for piece in stream_table_export(scene.db, plan)]
