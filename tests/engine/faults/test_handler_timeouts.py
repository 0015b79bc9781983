"""Tests of handlers that hang: their item times out, other items are done and not charged."""

import pytest

from support import Workers, add_job, assert_sound, closed, fates
from tidemill.jobs.queries import get_item
from tidemill.store.database import Database

WITHIN = 60.0
TIMED_OUT = {("done", None, 1): 99, ("failed", "timeout", 1): 1}


def hangs_at_seven(body: str, declare: str = "async def run(item)", **options: object) -> str:
    given = "".join(f", {name}={value!r}" for name, value in ({"max_attempts": 1, "timeout": 0.5} | options).items())
    pause = "await asyncio.sleep(0.02)" if declare.startswith("async") else "time.sleep(0.02)"
    return f"""
        async def deaf():
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass

        def hog():
            while True:
                pass

        @mill.handler("test"{given})
        {declare}:
            if item.input["n"] == 7:
                {body}
            {pause}
    """


async def assert_only_seven_timed_out(workers: Workers, db: Database, n: int = 100) -> None:
    job_id = await add_job(db, n)
    job = await closed(db, job_id, WITHIN)
    assert job.codes == {"timeout": 1}
    assert await fates(db, job_id) == TIMED_OUT
    item = await get_item(db, job_id, 7)
    [attempt] = item["attempt_history"]
    assert (attempt["attempt"], attempt["status"], attempt["code"]) == (1, "failed", "timeout")
    assert attempt["worker"] is not None
    assert item["error"]["traceback"] is None
    await assert_sound(db)


async def test_item_timeout_cancels_sleeping_item_without_killing_child(workers: Workers, db: Database) -> None:
    workers.app(hangs_at_seven("await asyncio.sleep(60)"))
    process = workers.start()
    # A process that just started does not have its name yet, so the list would name the forker as a child.
    await closed(db, await add_job(db, 1), WITHIN)
    before = workers.children(process)
    await assert_only_seven_timed_out(workers, db)
    assert before
    assert workers.children(process) == before


async def test_item_timeout_kills_child_when_item_ignores_cancellation(workers: Workers, db: Database) -> None:
    workers.app(hangs_at_seven("await deaf()"))
    workers.start()
    await assert_only_seven_timed_out(workers, db)


async def test_item_timeout_kills_child_when_sync_handler_sleeps(workers: Workers, db: Database) -> None:
    workers.app(hangs_at_seven("time.sleep(60)", "def run(item)", concurrency=10))
    workers.start()
    await assert_only_seven_timed_out(workers, db)


async def test_item_timeout_kills_child_when_sync_handler_loops_forever(workers: Workers, db: Database) -> None:
    workers.app(hangs_at_seven("hog()", "def run(item)", concurrency=10))
    workers.start()
    await assert_only_seven_timed_out(workers, db)


async def test_item_timeout_applies_to_single_item_blocking_event_loop(workers: Workers, db: Database) -> None:
    workers.app(hangs_at_seven("hog()", concurrency=1))
    workers.start(worker_lanes=1)
    await assert_only_seven_timed_out(workers, db)


async def test_item_blocking_event_loop_does_not_time_out_neighbours(workers: Workers, db: Database) -> None:
    workers.app(hangs_at_seven("hog()", concurrency=50))
    workers.start()
    await assert_only_seven_timed_out(workers, db)


async def test_item_blocking_event_loop_briefly_does_not_time_out_neighbours(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.handler("test", timeout=0.5, max_attempts=1, concurrency=50)
        async def run(item):
            for _ in range(5):
                await asyncio.sleep(0.02)
                if item.input["n"] == 7:
                    time.sleep(0.8)
    """)
    workers.start()
    job_id = await add_job(db, 100)
    await closed(db, job_id, WITHIN)
    ended = await fates(db, job_id)
    assert ended.get(("done", None, 1), 0) >= 99, ended
    await assert_sound(db)


async def test_timed_out_item_is_retried_and_can_succeed(workers: Workers, db: Database) -> None:
    workers.app(hangs_at_seven("await asyncio.sleep(60 if item.attempt == 1 else 0)", max_attempts=2, backoff=0.01))
    workers.start()
    job_id = await add_job(db, 100)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 99, ("done", None, 2): 1}
    await assert_sound(db)


@pytest.mark.parametrize("late", ["return 'late'", "raise ValueError('late')"])
async def test_late_result_of_cancelled_item_does_not_affect_next_item(
    late: str, workers: Workers, db: Database
) -> None:
    workers.app(f"""
        async def broken():
            raise ValueError("inside")

        @mill.handler("test", timeout=1, max_attempts=1, concurrency=1)
        async def run(item):
            if item.input["n"] == 0:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    {late}
            async with asyncio.TaskGroup() as group:
                group.create_task(broken())
    """)
    workers.start(worker_lanes=1)
    job_id = await add_job(db, 10)
    job = await closed(db, job_id, 60.0)
    assert job.counts.settled == 10
    assert (await fates(db, job_id))[("failed", "exhausted", 1)] >= 9
    await assert_sound(db)


async def test_item_timeout_excludes_wait_for_handler_thread(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.handler("test", concurrency=1000, timeout=3, max_attempts=1)
        def run(item):
            time.sleep(1)
    """)
    workers.start(worker_lanes=1)
    job_id = await add_job(db, 600)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 600}
    await assert_sound(db)
