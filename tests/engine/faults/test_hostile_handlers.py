"""Tests of handlers that damage their own process, task or item: every item still ends, and each under its own name."""

import asyncio
import contextlib
import os
import signal

import pytest

from support import Workers, add_job, assert_sound, closed, eventually, fates, rows
from tidemill.core.child_exit import ISOLATE_AFTER_LOST_LEASES, POISON_EXPIRY_COUNT
from tidemill.store import batch_leases
from tidemill.store.database import Database

WITHIN = 60.0
LIMITED_CPU = "resource.setrlimit(resource.RLIMIT_CPU, (1, 1)); [None for _ in iter(int, 1)]"


@pytest.mark.parametrize(
    ("declare", "how"),
    [
        ("handler", "os.kill(os.getpid(), signal.SIGKILL)"),
        ("batch_handler", "os.kill(os.getpid(), signal.SIGKILL)"),
        pytest.param("handler", LIMITED_CPU, marks=pytest.mark.full),
    ],
    ids=["kill", "kill-batch", "cpu-limit"],
)
async def test_item_that_kills_its_process_fails_as_poison_and_others_are_done(
    declare: str, how: str, workers: Workers, db: Database
) -> None:
    workers.app(f"""
        import resource, signal

        @mill.{declare}("test")
        async def run(given):
            for item in given if isinstance(given, list) else [given]:
                if item.input["n"] == 7:
                    {how}
    """)
    workers.start(processes=2, claim_max=10)
    job_id = await add_job(db, 50)
    job = await closed(db, job_id, WITHIN)
    assert (job.counts.done, job.codes) == (49, {"poison": 1})
    assert await fates(db, job_id) == {("done", None, 1): 49, ("failed", "poison", 0): 1}
    await assert_sound(db)


KILL_WORKER = "os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize("declare", ["handler", "batch_handler"])
async def test_item_that_kills_its_worker_fails_as_poison_and_others_are_done(
    declare: str, workers: Workers, db: Database
) -> None:
    workers.app(f"""
        import signal

        @mill.{declare}("test")
        async def run(given):
            for item in given if isinstance(given, list) else [given]:
                if item.input["n"] == 7:
                    {KILL_WORKER}
    """)
    job_id = await add_job(db, 20)

    async def lose_worker() -> int:
        """Return the largest number of leases of an isolated item that expired in a row. Without pauses in between."""
        await asyncio.to_thread(workers.start(claim_max=20).wait, WITHIN)
        await rows(db, "UPDATE tidemill.batch SET lease_until = '2000-01-01' WHERE state = 'leased'")
        assert await db.run(batch_leases.reclaim_expired_leases)
        await rows(db, "UPDATE tidemill.batch SET not_before = '2000-01-01' WHERE state = 'ready'")
        [(expiries,)] = await rows(db, "SELECT max(expiries) FROM tidemill.batch WHERE state = 'ready'")
        return int(expiries)

    await rows(db, "UPDATE tidemill.batch SET losses = %s", ISOLATE_AFTER_LOST_LEASES - 1)
    assert [await lose_worker(), await lose_worker()] == [0, 1]
    await rows(db, "UPDATE tidemill.batch SET expiries = %s WHERE expiries > 0", POISON_EXPIRY_COUNT - 1)
    assert await lose_worker() == POISON_EXPIRY_COUNT
    workers.start()
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 19, ("failed", "poison", 0): 1}
    [(error,)] = await rows(db, "SELECT error->>'reason' FROM tidemill.outcome WHERE error IS NOT NULL")
    assert error == "The item ran alone, and its worker disappeared 8 times in a row"
    await assert_sound(db)


async def test_random_kills_of_children_convict_no_item(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.handler("test", concurrency=4)
        async def run(item):
            await asyncio.sleep(0.2)
    """)
    process = workers.start(processes=2)
    job_id, killed = await add_job(db, 60), 0

    async def list_busy_children() -> list[int]:
        leases = await rows(db, "SELECT 1 FROM tidemill.batch WHERE state = 'leased'")
        return workers.children(process) if leases else []

    while killed < 6:
        with contextlib.suppress(ProcessLookupError):
            os.kill((await eventually(list_busy_children))[0], signal.SIGKILL)
            killed += 1
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 60}
    await assert_sound(db)


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_NOFILE"])
async def test_child_whose_limits_a_handler_lowered_is_replaced(limit: str, workers: Workers, db: Database) -> None:
    workers.app(f"""
        import resource

        @mill.handler("test", max_attempts=2, backoff=0.01)
        async def run(item):
            if item.input["n"] == 7:
                resource.setrlimit(resource.{limit}, (3, 3))
    """)
    workers.start(claim_max=10)
    job_id = await add_job(db, 120)
    job = await closed(db, job_id, WITHIN)
    assert job.counts.open == 0
    assert job.counts.done >= 100
    await assert_sound(db)


@pytest.mark.parametrize("declare", ["handler", "batch_handler"])
@pytest.mark.parametrize("wait", ["await asyncio.sleep(0)", "pass"], ids=["awaits", "returns"])
async def test_handler_that_cancels_its_task_ends_its_item(
    declare: str, wait: str, workers: Workers, db: Database
) -> None:
    workers.app(
        f"""
        @mill.{declare}("test", max_attempts=1, concurrency=2)
        async def run(given):
            for item in given if isinstance(given, list) else [given]:
                if item.input["n"] % 10 == 7:
                    asyncio.current_task().cancel()
                    {wait}
    """.replace(", concurrency=2" if declare == "batch_handler" else "no such option", "")
    )
    process = workers.start(claim_max=10)
    job_id = await add_job(db, 40)
    await closed(db, job_id, WITHIN)
    cancelled = 0 if wait == "pass" and declare == "handler" else 4
    expected = {("done", None, 1): 40 - cancelled} | ({("failed", "exhausted", 1): cancelled} if cancelled else {})
    assert await fates(db, job_id) == expected
    assert len(workers.children(process)) == 1
    await assert_sound(db)


async def test_handler_that_cancels_all_tasks_fails_as_poison(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.handler("test")
        async def run(item):
            if item.input["n"] == 7:
                for task in asyncio.all_tasks():
                    task.cancel()
                await asyncio.sleep(60)
    """)
    workers.start()
    job_id = await add_job(db, 20)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 19, ("failed", "poison", 0): 1}
    await assert_sound(db)


@pytest.mark.parametrize("declare", ["handler", "batch_handler"])
@pytest.mark.parametrize("assign", ["setattr", "object.__setattr__"])
async def test_handler_cannot_change_identity_of_its_item(
    declare: str, assign: str, workers: Workers, db: Database
) -> None:
    workers.app(f"""
        @mill.{declare}("test")
        async def run(given):
            results = []
            for item in given if isinstance(given, list) else [given]:
                n = item.input["n"]
                for name, value in (("seq", 0), ("attempt", -5), ("job_id", None), ("misses", 9), ("defect", {{}})):
                    try:
                        {assign}(item, name, value)
                    except AttributeError:
                        pass
                results.append(n)
            if isinstance(given, list):
                given.clear()
                return results
            return results[0]
    """)
    workers.start(claim_max=10)
    job_id = await add_job(db, 30)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 30}
    found = await rows(db, "SELECT seq, result FROM tidemill.outcome WHERE job_id = %s ORDER BY seq", job_id)
    assert found == [(n, n) for n in range(30)]
    await assert_sound(db)
