"""kill -9 and restarts in mid-import: the table and the errors are those of an undisturbed run."""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from imports.scenes import Scene
from support import Workers, assert_sound, closed, eventually, job_of
from tidemill.core.job import Job
from tidemill.testing.throwaway_postgres import ThrowawayServer

TABLE = "CREATE TABLE {name} (id int PRIMARY KEY, email text UNIQUE, n int CHECK (n > 0), at timestamptz DEFAULT now())"
BODY = "BEGIN PERFORM pg_sleep(seconds) FROM public.pace; RETURN NULL; END"
SLOW = (
    "CREATE TABLE pace AS SELECT 0.4 AS seconds",
    f"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ {BODY} $$",
    "CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION slow()",
)


@pytest.fixture(scope="module")
def own_server() -> Iterator[ThrowawayServer]:
    with ThrowawayServer("fsync = off\nshared_buffers = 32MB\nmax_connections = 100\n") as server:
        yield server


@pytest.fixture
def tidemill_database(own_server: ThrowawayServer) -> Iterator[str]:
    url = own_server.create_database()
    yield url
    own_server.drop_database(url)


def restart(server: ThrowawayServer) -> None:
    """Stop at once, like a crash."""
    server.server.suspend(immediately=True)
    server.server.resume()


def file_of(count: int) -> str:
    """One row in a hundred is bad, one in fifty repeats a key, some exist already."""
    lines = ["id,email,n"]
    for row in range(count):
        key = row // 2 if row % 50 == 49 else row
        lines.append(f"{key},u{key}@x,{0 if row % 100 == 7 else 1 + row % 5}")
    return "\n".join(lines) + "\n"


async def table_of(scene: Scene, name: str) -> list[tuple[Any, ...]]:
    return await scene.rows(f"SELECT id, email, n FROM {name} ORDER BY id")


@pytest.mark.parametrize(
    ("mode", "duplicates", "faults"), [("insert", "first", ["child", "server"]), ("upsert", "last", ["worker"])]
)
@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
async def test_import_interrupted_by_kills_equals_undisturbed_import(
    scene: Scene,
    workers: Workers,
    own_server: ThrowawayServer,
    mode: str,
    duplicates: str,
    faults: list[str],
    count: int,
) -> None:
    for name in ("calm", "t"):
        await scene.table(TABLE.format(name=name), f"INSERT INTO {name} VALUES (5, 'u5@x', 9), (700, 'u700@x', 1)")
    await scene.table(*SLOW)
    text = file_of(count)
    calm = await scene.run(text, "calm", mode=mode, duplicates=duplicates)
    workers.app("")
    small: dict[str, Any] = {"ingest_max_rows": 1_000} if count < 100_000 else {}
    process = workers.start(processes=2, **small)
    job_id = await scene.submit(text, "t", mode=mode, duplicates=duplicates)
    for what in faults:
        await under_way(scene, job_id)
        if what == "child":
            os.kill(workers.children(process)[0], signal.SIGKILL)
        elif what == "worker":
            os.killpg(process.pid, signal.SIGKILL)
            process = workers.start(processes=2, **small)
        else:
            await asyncio.to_thread(restart, own_server)
            await scene.db._pool.check()
    await scene.rows("UPDATE pace SET seconds = 0")  # it need not be slow any more
    job = await closed(scene.db, job_id, 600.0)
    assert await table_of(scene, "t") == await table_of(scene, "calm")
    assert await scene.outcomes(job) == await scene.outcomes(calm)
    assert await scene.effects(job) == await scene.effects(calm)
    assert (job.counts, job.status) == (calm.counts, calm.status)
    await assert_sound(scene.db)


async def under_way(scene: Scene, job_id: UUID) -> None:
    """Wait until more rows are done than before."""
    before: Job = await job_of(scene.db, job_id)

    async def further() -> bool:
        now = await job_of(scene.db, job_id)
        return now.counts.done > before.counts.done or now.is_closed

    await eventually(further)
    assert not (await job_of(scene.db, job_id)).is_closed, "too quick to be disturbed"
