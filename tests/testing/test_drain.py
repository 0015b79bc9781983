"""drain() as a user's test would use it."""

from support import fates, job_of, rows
from tidemill import Done, Fail, Item, Mill, Retry, Skip
from tidemill.config import Settings
from tidemill.core.status import JobStatus
from tidemill.jobs import job_control
from tidemill.store.database import Database
from tidemill.testing import drain


async def test_drain_runs_async_sync_and_batch_jobs(mill: Mill) -> None:
    seen: list[int] = []

    @mill.handler("async")
    async def waits(item: Item) -> None:
        seen.append(item.input)

    @mill.handler("sync")
    def blocks(item: Item) -> None:
        seen.append(item.input)

    @mill.batch_handler("batch")
    def whole(items: list[Item]) -> None:
        seen.extend(item.input for item in items)

    jobs = [await mill.submit_async(kind, [n]) for n, kind in enumerate(("async", "sync", "batch"))]
    await drain(mill)
    assert sorted(seen) == [0, 1, 2]
    for job_id in jobs:
        assert (await mill.job_async(job_id)).status is JobStatus.COMPLETED


async def test_drain_runs_retries_without_waiting(mill: Mill) -> None:
    attempts: list[int] = []

    @mill.handler("flaky", max_attempts=4, backoff=3_600)
    async def flaky(item: Item) -> str:
        attempts.append(item.attempt)
        if item.attempt < 4:
            raise Retry("not yet", after=86_400)
        return "at last"

    job_id = await mill.submit_async("flaky", [1])
    await drain(mill)
    assert attempts == [1, 2, 3, 4]
    assert (await mill.job_async(job_id)).counts.done == 1


async def test_drain_without_retries_leaves_retries_waiting(mill: Mill) -> None:
    @mill.handler("flaky", max_attempts=4)
    async def flaky(item: Item) -> None:
        raise Retry("not yet", after=86_400)

    job_id = await mill.submit_async("flaky", [1, 2])
    await drain(mill, retries=False)
    job = await mill.job_async(job_id)
    assert (job.status, job.counts.retry_wait) == (JobStatus.RUNNING, 2)


async def test_drain_stores_outcomes_of_handler(mill: Mill, db: Database) -> None:
    @mill.handler("words", max_attempts=1)
    async def words(item: Item) -> object:
        match item.input:
            case "done":
                return Done({"ok": True})
            case "skip":
                return Skip("no need")
            case "fail":
                raise Fail("never", code="mine")
        raise ValueError(item.input)

    job_id = await mill.submit_async("words", ["done", "skip", "fail", "boom"])
    await drain(mill, db=db)
    job = await job_of(db, job_id)
    assert job.status is JobStatus.COMPLETED_WITH_ERRORS
    assert (job.counts.done, job.counts.skipped, job.counts.failed) == (1, 1, 2)
    assert job.codes == {"mine": 1, "exhausted": 1}


async def test_drain_skips_paused_job(mill: Mill, db: Database) -> None:
    @mill.handler("test")
    async def run(item: Item) -> None: ...

    job_id = await mill.submit_async("test", [1])
    await job_control.pause_job(db, job_id)
    await drain(mill)
    assert (await mill.job_async(job_id)).counts.pending == 1
    await job_control.resume_job(db, job_id)
    await drain(mill)
    assert (await mill.job_async(job_id)).status is JobStatus.COMPLETED


async def test_drain_skips_kinds_of_another_mill(mill: Mill, settings: Settings) -> None:
    @mill.handler("mine")
    async def run(item: Item) -> None: ...

    job_id = await mill.submit_async("mine", [1])
    await drain(Mill(settings))
    assert (await mill.job_async(job_id)).counts.pending == 1


async def test_drain_runs_jobs_submitted_by_handlers(mill: Mill, db: Database) -> None:
    followed: list[int] = []

    @mill.handler("follow")
    async def follow(item: Item) -> None:
        followed.append(item.input)

    @mill.handler("lead")
    async def lead(item: Item) -> None:
        async with db.transaction() as conn:
            await mill.submit_async("follow", [item.input + 1], connection=conn)

    await mill.submit_async("lead", [1])
    await drain(mill, db=db)
    assert followed == [2]


async def test_drain_without_jobs_returns(mill: Mill) -> None:
    await drain(mill)
    await drain(mill)


async def test_drain_runs_retries_that_become_due_during_drain(mill: Mill, db: Database) -> None:
    @mill.handler("quick", max_attempts=3, backoff=0.000_001)
    async def quick(item: Item) -> None:
        raise ValueError

    for _ in range(5):
        job_id = await mill.submit_async("quick", [1, 2, 3])
        await drain(mill, db=db)
        assert (await mill.job_async(job_id)).counts.failed == 3


async def test_batch_handler_code_error_does_not_cause_one_call_per_item(mill: Mill, db: Database) -> None:
    calls: list[int] = []

    @mill.batch_handler("broken", max_attempts=2)
    async def broken(items: list[Item]) -> None:
        calls.append(len(items))
        undefined  # type: ignore[name-defined]  # noqa: B018, F821

    job_id = await mill.submit_async("broken", list(range(5_000)))
    await drain(mill, db=db)
    assert await fates(db, job_id) == {("failed", "exhausted", 2): 5_000}
    assert len(calls) < 300
    (error,) = await rows(db, "SELECT DISTINCT error->>'reason' FROM tidemill.outcome")
    assert error == ("NameError: name 'undefined' is not defined",)


async def test_batch_handler_code_error_fails_only_items_that_cause_it(mill: Mill, db: Database) -> None:
    @mill.batch_handler("broken", max_attempts=1)
    async def broken(items: list[Item]) -> None:
        if any(item.input % 300 == 7 for item in items):
            undefined  # type: ignore[name-defined]  # noqa: B018, F821

    job_id = await mill.submit_async("broken", list(range(1_000)))
    await drain(mill, db=db)
    assert await fates(db, job_id) == {("done", None, 1): 996, ("failed", "exhausted", 1): 4}
