"""Tests of a database restart during a job: the job finishes, and notifications work again."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support import Workers, add_job, assert_sound, closed, eventually, fates, job_of, rows
from tidemill import Item, Mill
from tidemill.app.child_main import CHILD_EXIT_FAILED
from tidemill.app.worker import build_child_argv
from tidemill.config import Settings
from tidemill.engine.children.shared_state import SharedState
from tidemill.limits import limiter_records
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_records import PermitRequest
from tidemill.store.database import Database
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing import drain
from tidemill.testing.throwaway_postgres import ThrowawayServer

SLOW = """
    @mill.handler("test", concurrency=20)
    async def run(item):
        await asyncio.sleep(0.02)
"""
NEVER_MS = 600_000  # so that a worker that works was woken
# Asynchronous commits are written late, so that a crash certainly loses some.
DURABLE = "fsync = off\nshared_buffers = 32MB\nmax_connections = 100\nwal_writer_delay = 10s\n"


class Restarts:
    """A server that the test may stop and start."""

    def __init__(self, server: ThrowawayServer) -> None:
        self._server = server.server

    def stop(self, mode: str) -> None:
        self._server.suspend(immediately=mode == "immediate")

    def start(self) -> None:
        self._server.resume()


@pytest.fixture(scope="module")
def own_server() -> Iterator[ThrowawayServer]:
    with ThrowawayServer(DURABLE) as server:
        yield server


@pytest.fixture
def tidemill_database(own_server: ThrowawayServer) -> Iterator[str]:
    url = own_server.create_database()
    yield url
    own_server.drop_database(url)


@pytest.fixture
def server(own_server: ThrowawayServer) -> Restarts:
    return Restarts(own_server)


async def restart(server: Restarts, mode: str, db: Database) -> None:
    await asyncio.to_thread(server.stop, mode)
    await asyncio.to_thread(server.start)
    await db._pool.check()  # the test's own connections are broken too


async def under_way(db: Database, job_id: UUID, done: int) -> None:
    async def look() -> bool:
        return (await job_of(db, job_id)).counts.done > done

    await eventually(look)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_job_completes_after_database_restarts(
    mode: str, workers: Workers, db: Database, server: Restarts
) -> None:
    workers.app(SLOW)
    workers.start(processes=2)
    job_id = await add_job(db, 4_000)
    for done in (200, 1_000):
        await under_way(db, job_id, done)
        await restart(server, mode, db)
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 1): 4_000}
    await assert_sound(db)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_worker_is_woken_by_notifications_after_database_restart(
    mode: str, workers: Workers, db: Database, server: Restarts
) -> None:
    workers.app(SLOW)
    workers.start(poll_ms=NEVER_MS)
    await closed(db, await add_job(db, 10))
    await restart(server, mode, db)

    async def listens() -> bool:
        query = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'tidemill listen' AND state = 'idle'"
        return bool(await rows(db, query + " AND query <> '' AND datname = current_database()"))

    await eventually(listens)
    job_id = await add_job(db, 10)
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 1): 10}
    await assert_sound(db)


async def test_worker_stops_on_sigterm_while_database_is_down(workers: Workers, db: Database, server: Restarts) -> None:
    workers.app(SLOW)
    process = workers.start(stop_grace_ms=1_000)
    job_id = await add_job(db, 1_000)
    await under_way(db, job_id, 50)
    await asyncio.to_thread(server.stop, "fast")
    try:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)  # the grace period plus 5 s, then children are killed
    finally:
        await asyncio.to_thread(server.start)
        await db._pool.check()
    workers.start()
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 1): 1_000}
    await assert_sound(db)


async def test_limiter_burst_is_not_granted_again_after_database_crash(db: Database, server: Restarts) -> None:
    await db.run(limiter_records.declare_limiters, [Limiter("shop", 0.01, 100)])
    asking = PermitRequest("shop", "", "w1", 1, 99, 0, 0, 0, 0.0, 0.1, 30.0)
    _, before = await db.read(limiter_records.take_permits, asking)
    await restart(server, "immediate", db)
    _, after = await db.read(limiter_records.take_permits, asking)
    assert before is not None
    assert after is not None
    assert len(before.starts) == 99
    assert len(after.starts) <= 1  # the remaining and the new items


def test_child_without_database_exits_with_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from tidemill import Mill\nmill = Mill()\n")
    nowhere = {"TIDEMILL_DATABASE_URL": "postgresql://127.0.0.1:1/none"}
    book, (control, near) = SharedState.create(1), os.pipe()
    try:
        argv = build_child_argv("app:mill", "w1", 1, 0, 0, control, book.fd)
        ended = subprocess.run(
            argv,
            check=False,
            cwd=tmp_path,
            env={**os.environ, **nowhere},
            pass_fds=(control, book.fd),
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        for fd in (control, near, book.fd):
            os.close(fd)
    assert ended.returncode == CHILD_EXIT_FAILED
    assert "Cannot connect to PostgreSQL at 127.0.0.1:1/none" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("cause", "losses"), [("crash", [1]), ("fast", []), ("immediate", [])])
async def test_lost_connection_counts_for_batch_of_crashed_server_process_only(
    cause: str, losses: list[int], settings: Settings, db: Database, server: Restarts
) -> None:
    """The crash of one server process, like a restart, ends the connections of all others."""
    mill, running = Mill(settings.model_copy(update={"claim_max": 5})), {}

    @mill.batch_handler("test")
    async def run(items: Sequence[Item], conn: Any) -> None:
        running[conn.info.backend_pid] = items[0].seq
        await conn.execute("SELECT pg_sleep(60) WHERE NOT EXISTS (SELECT FROM calm)")

    await rows(db, "CREATE TABLE calm (n int)")
    job_id = await add_job(db, 10)
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    draining = asyncio.gather(drain(mill, db=db), drain(mill, db=db))

    async def both_sleep() -> bool:
        asleep = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        return len(await rows(db, asleep)) == 2

    try:
        await eventually(both_sleep)
        await rows(db, "INSERT INTO calm VALUES (1)")
        if cause == "crash":
            os.kill(next(iter(running)), signal.SIGSEGV)
        else:
            await asyncio.to_thread(server.stop, cause)
            await asyncio.to_thread(server.start)
        await asyncio.wait_for(draining, 30)
    finally:
        unsubscribe()
    assert [event.fields["losses"] for event in events if event.name == "batch.disconnected"] == losses
    assert await fates(db, job_id) == {("done", None, 1): 10}
    await assert_sound(db)
