"""Tests of items that kill their process: only these fail as poison, and no other item is charged."""

from uuid import UUID

import pytest

from support import Workers, add_job, assert_sound, closed, fates, rows
from tidemill.core.status import JobStatus
from tidemill.store.database import Database

POISON = (7, 123, 457)
ONE = (7,)  # one is enough: each poison item needs several new processes
ABORT = "os.abort()"


def deadly(
    how: str, declare: str = "async def run(item)", wait: str = "", poison: tuple[int, ...] = POISON, **options: object
) -> str:
    """Write an app whose handler dies on these items."""
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"""
        import ctypes, signal, sys

        @mill.handler("test"{given})
        {declare}:
            {wait or "pass"}
            if item.input["n"] in {poison}:
                {how}
            return item.input["n"]
    """


async def assert_only_they_are_poison(
    db: Database, job_id: UUID, n: int, poison: tuple[int, ...] = POISON, within: float = 120.0
) -> None:
    job = await closed(db, job_id, within)
    dead = len(poison)
    assert job.status is JobStatus.COMPLETED_WITH_ERRORS
    assert (job.counts.done, job.counts.failed, job.codes) == (n - dead, dead, {"poison": dead})
    # A crash is not an attempt; the other items needed exactly one.
    assert await fates(db, job_id) == {("done", None, 1): n - dead, ("failed", "poison", 0): dead}
    assert await rows(
        db, "SELECT seq FROM tidemill.outcome WHERE job_id = %s AND status = 'failed' ORDER BY seq", job_id
    ) == [(seq,) for seq in poison]
    await assert_sound(db)


async def test_poison_items_are_the_only_failures_of_20000_items(workers: Workers, db: Database) -> None:
    workers.app(deadly(ABORT))
    workers.start()
    await assert_only_they_are_poison(db, await add_job(db, 20_000), 20_000)


@pytest.mark.full
async def test_poison_items_are_the_only_failures_of_100000_items(workers: Workers, db: Database) -> None:
    workers.app(deadly(ABORT))
    workers.start(processes=2)
    await assert_only_they_are_poison(db, await add_job(db, 100_000), 100_000, within=300)


async def test_poison_item_charges_no_attempt_to_concurrent_items(workers: Workers, db: Database) -> None:
    workers.app(deadly(ABORT, wait="await asyncio.sleep(0.02)", poison=ONE, concurrency=50))
    workers.start(processes=2)
    await assert_only_they_are_poison(db, await add_job(db, 2_000), 2_000, ONE)


async def test_poison_item_is_detected_in_sync_handler(workers: Workers, db: Database) -> None:
    workers.app(deadly(ABORT, declare="def run(item)", wait="time.sleep(0.005)", poison=ONE, concurrency=8))
    workers.start()
    await assert_only_they_are_poison(db, await add_job(db, 1_000), 1_000, ONE)


@pytest.mark.parametrize(
    "how", ["ctypes.string_at(0)", "os._exit(1)", "os._exit(0)"], ids=["segfault", "exit", "exit0"]
)
async def test_poison_item_is_detected_on_segfault_and_any_exit_code(how: str, workers: Workers, db: Database) -> None:
    workers.app(deadly(how, poison=ONE, concurrency=5))
    workers.start()
    await assert_only_they_are_poison(db, await add_job(db, 200), 200, ONE)


@pytest.mark.parametrize("declare", ["async def run(item)", "def run(item)"])
async def test_sys_exit_in_handler_fails_item_without_killing_child(
    declare: str, workers: Workers, db: Database
) -> None:
    workers.app(deadly("sys.exit(3)", declare=declare, max_attempts=1))
    children = workers.start()
    job_id = await add_job(db, 600)
    job = await closed(db, job_id)
    assert job.codes == {"exhausted": 3}
    assert await fates(db, job_id) == {("done", None, 1): 597, ("failed", "exhausted", 1): 3}
    assert len(workers.children(children)) == 1
    await assert_sound(db)


@pytest.mark.parametrize(("sparse", "poison"), [(False, (7, 123)), (True, ONE)])
async def test_poison_item_is_detected_in_batch_handler_and_others_done_once(
    sparse: bool, poison: tuple[int, ...], workers: Workers, db: Database
) -> None:
    workers.app(f"""
        @mill.batch_handler("test", sparse={sparse})
        async def run(items):
            if any(item.input["n"] in {poison} for item in items):
                os.abort()
    """)
    workers.start(claim_max=12)
    job_id, dead = await add_job(db, 200, sparse=sparse), len(poison)
    job = await closed(db, job_id, within=120)
    assert (job.counts.done, job.codes) == (200 - dead, {"poison": dead})
    expected = {("failed", "poison", 0): dead} | ({} if sparse else {("done", None, 1): 200 - dead})
    assert await fates(db, job_id) == expected
    await assert_sound(db)


async def test_poison_item_among_retries_keeps_its_attempts(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.handler("test", backoff=0.01, concurrency=10)
        async def run(item):
            if item.attempt == 1:
                raise Retry("once more")
            if item.input["n"] == 7:
                os.abort()
    """)
    workers.start()
    job_id = await add_job(db, 100)
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 2): 99, ("failed", "poison", 1): 1}
    await assert_sound(db)
