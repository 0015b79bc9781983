"""A mill opens its database once per event loop, and closes it with the loop, the mill or the process."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import eventually, rows
from tidemill import Item, Mill, Settings
from tidemill.store.database import Database

CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def mill(mill: Mill) -> Mill:
    @mill.handler("test")
    async def run(item: Item) -> None: ...

    return mill


def count_background_threads() -> int:
    return sum(thread.name == "tidemill" for thread in threading.enumerate())


async def test_async_calls_share_one_database(mill: Mill) -> None:
    databases = await asyncio.gather(*(mill.shared_database.get_for_running_loop() for _ in range(5)))
    await mill.submit_async("test", [1])
    assert {id(db) for db in databases} == {id(await mill.shared_database.get_for_running_loop())}


def test_blocking_calls_of_many_threads_share_one_loop_and_one_database(mill: Mill) -> None:
    threads = [threading.Thread(target=mill.submit, args=("test", [1])) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert count_background_threads() == 1
    mill.close()
    assert count_background_threads() == 0


async def test_close_async_releases_the_connections_and_the_next_call_opens_them_again(
    mill: Mill, db: Database
) -> None:
    async def is_alone() -> bool:
        return bool((await rows(db, CONNECTIONS))[0][0] <= 1)

    async with mill:
        first = await mill.shared_database.get_for_running_loop()
        await mill.submit_async("test", [1])
    await eventually(is_alone)
    job_id = await mill.submit_async("test", [1])
    assert (await mill.job_async(job_id)).counts.total == 1
    assert await mill.shared_database.get_for_running_loop() is not first


async def test_opening_a_database_closes_those_of_mills_that_are_gone(settings: Settings) -> None:
    mill = Mill(settings)
    db = await mill.shared_database.get_for_running_loop()
    del mill
    await Mill(settings).shared_database.get_for_running_loop()
    assert db._pool.closed


def test_a_mill_serves_one_event_loop_after_the_other(mill: Mill) -> None:
    for _ in range(3):
        asyncio.run(mill.submit_async("test", [1]))
    with mill:
        mill.submit("test", [1])


def test_a_mill_that_is_gone_leaves_no_thread(settings: Settings) -> None:
    mill = Mill(settings)
    mill.handler("test")(_run_nothing)
    mill.submit("test", [1])
    del mill
    assert count_background_threads() == 0


async def _run_nothing(item: Item) -> None: ...


def test_the_callers_thread_reads_the_inputs_of_a_blocking_submit(mill: Mill) -> None:
    with mill, sqlite3.connect(":memory:") as source:  # which only this thread may use
        numbers = source.execute(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 9) SELECT x FROM n"
        )
        first = mill.submit("test", [0])
        inputs = ((x, mill.job(first).counts.total) for (x,) in numbers)  # calls of the mill do not deadlock
        assert mill.job(mill.submit("test", inputs)).counts.total == 9
    source.close()


def test_an_input_that_fails_a_blocking_submit_leaves_no_job(mill: Mill) -> None:
    def fail() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    with mill:
        with pytest.raises(LookupError, match="no more"):
            mill.submit("test", fail())
        assert mill.job(mill.submit("test", [1])).counts.total == 1


PROGRAM = """
    import asyncio, os, sys
    from tidemill import Mill

    mill = Mill()

    @mill.handler("test")
    async def run(item): ...

    {body}
"""
BODIES = {
    "exit while open": "mill.submit('test', [1])",
    "exit after two loops": "[asyncio.run(mill.submit_async('test', [1])) for _ in range(2)]",
    "fork while open": """
    mill.submit('test', [1])
    child = os.fork()
    mill.submit('test', [2])
    if child == 0:
        sys.exit(7)
    assert os.waitpid(child, 0)[1] >> 8 == 7
    mill.submit('test', [3])
    """,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_program_that_never_closes_its_mill_ends_without_a_warning(
    settings: Settings, tmp_path: Path, body: str
) -> None:
    program = textwrap.dedent(PROGRAM).format(body=textwrap.dedent(body))
    env = os.environ | {"TIDEMILL_DATABASE_URL": str(settings.database_url), "TIDEMILL_HOME": str(tmp_path)}
    argv = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
