"""Tests of handlers that raise BaseException, and of a slow database after the handler returned."""

import asyncio

import pytest

from support import Workers, add_job, assert_sound, closed, eventually, fates, rows
from tidemill.store.database import Database


@pytest.mark.parametrize("raised", ["Odd", "GeneratorExit", "KeyboardInterrupt"])
@pytest.mark.parametrize("declare", ["handler", "batch_handler"])
async def test_handler_base_exception_fails_its_item(declare: str, raised: str, workers: Workers, db: Database) -> None:
    workers.app(f"""
        class Odd(BaseException):
            pass

        @mill.{declare}("test", max_attempts=1)
        async def run(given):
            items = given if isinstance(given, list) else [given]
            if any(item.input["n"] == 7 for item in items):
                raise {raised}
    """)
    workers.start(claim_max=8)
    job_id = await add_job(db, 20)
    await closed(db, job_id, 60.0)
    assert await fates(db, job_id) == {("done", None, 1): 19, ("failed", "exhausted", 1): 1}
    await assert_sound(db)


async def test_handler_timeout_excludes_slow_flush(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.batch_handler("test", timeout=0.3, max_attempts=1)
        async def run(items):
            with open("calls", "a") as calls:
                calls.write("called\\n")
    """)
    async with db.transaction(bounded=False) as conn:
        await conn.execute(b"LOCK TABLE tidemill.outcome IN EXCLUSIVE MODE")
        workers.start(db_timeout_ms=10_000, lock_floor_ms=20_000, lock_cap_ms=20_000)
        job_id = await add_job(db, 5)

        async def was_called() -> bool:
            return (workers._folder / "calls").exists()

        await eventually(was_called)
        # Longer than the handler's timeout plus the grace of its parent.
        for _ in range(25):
            await asyncio.sleep(0.1)
            assert await rows(db, "SELECT count(*) FROM tidemill.batch WHERE isolated") == [(0,)]
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 1): 5}
    assert (workers._folder / "calls").read_text() == "called\n"
    await assert_sound(db)
