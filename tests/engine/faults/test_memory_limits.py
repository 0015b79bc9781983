"""Tests of handlers and rows that exhaust memory: their item fails, the process survives, no other is charged."""

import pytest

from support import Workers, add_job, add_rows, assert_sound, closed, fates
from tidemill.store.database import Database

WITHIN = 60.0
LIMIT_MB = 300


@pytest.mark.parametrize("declare", ["async def run(item)", "def run(item)"])
async def test_item_over_memory_limit_fails_and_neighbours_are_done(
    declare: str, workers: Workers, db: Database
) -> None:
    wait = "await asyncio.sleep(0.01)" if declare.startswith("async") else "time.sleep(0.01)"
    workers.app(f"""
        @mill.handler("test", max_attempts=2, backoff=0.01, concurrency=4)
        {declare}:
            if item.input["n"] == 7:
                eaten = bytearray()
                while True:
                    eaten += bytes(1 << 20)
            {wait}
    """)
    workers.start(child_memory_mb=LIMIT_MB)
    job_id = await add_job(db, 100)
    job = await closed(db, job_id, WITHIN)
    assert job.codes == {"memory": 1}
    assert await fates(db, job_id) == {("done", None, 1): 99, ("failed", "memory", 2): 1}
    await assert_sound(db)


async def test_leaked_memory_fails_its_item_and_job_completes(workers: Workers, db: Database) -> None:
    workers.app("""
        kept = []

        @mill.handler("test", max_attempts=1, concurrency=4)
        async def run(item):
            if item.input["n"] == 7:
                while True:
                    try:
                        kept.append(bytearray(1 << 16))
                    except MemoryError:
                        kept.append(b"")
                        await asyncio.sleep(0)
            await asyncio.sleep(0.01)
    """)
    workers.start(child_memory_mb=LIMIT_MB, log_level="error")
    job_id = await add_job(db, 100)
    job = await closed(db, job_id, WITHIN)
    assert (job.counts.done, job.counts.failed) == (99, 1)
    await assert_sound(db)


@pytest.mark.parametrize("limit_mb", [LIMIT_MB, 2_048])
async def test_memory_limit_allows_all_threads_of_sync_handler(limit_mb: int, workers: Workers, db: Database) -> None:
    """Thread stacks count as memory: reserved stacks must not make items fail."""
    workers.app("""
        @mill.handler("test", max_attempts=1, concurrency=256)
        def run(item):
            time.sleep(0.3)
    """)
    workers.start(child_memory_mb=limit_mb)
    job_id = await add_job(db, 600)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 600}
    await assert_sound(db)


async def test_memory_limit_is_not_exceeded_by_batch_of_large_rows(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.batch_handler("test", max_attempts=1)
        async def run(items):
            return [len(item.input) for item in items]
    """)
    process = workers.start(child_memory_mb=200)

    # A process that just started does not have its name yet, so the list would name the forker as a child.
    await closed(db, await add_rows(db, [b'"warm up"']), WITHIN)
    before = workers.children(process)
    row = b'"' + b"x" * 2_000_000 + b'"'
    job_id = await add_rows(db, (row for _ in range(120)))
    await closed(db, job_id, WITHIN)
    assert before
    assert workers.children(process) == before, "the input killed the process"
    assert await fates(db, job_id) == {("done", None, 1): 120}
    await assert_sound(db)
