"""Scenarios of jobs and of the requests that change them. Each ends with assertions about its own rows."""

from collections import Counter
from uuid import UUID

from engine.kill_matrix.stage import Stage
from support import FAILED, add_job, close_job_as, eventually, job_of, rows, settle, shift_clock, take, verdict
from tidemill.core.status import JobStatus
from tidemill.store import job_lifecycle

RETRIES = """
@mill.handler("test", concurrency=4, max_attempts=3, backoff=0.01)
async def run(item):
    if item.input["n"] % 10 == 7:
        raise Fail("bad", code="bad")
    if item.input["n"] % 10 == 3 and item.attempt == 1:
        raise Retry("later", after=0.01)
"""
LEDGER = """
@mill.batch_handler("test", max_attempts=3, backoff=0.01)
async def run(items, conn):
    for item in items:
        await conn.execute("INSERT INTO public.ledger VALUES (%s)", [item.input["n"]])
"""
SLOW = """
@mill.handler("test", concurrency=2)
async def run(item):
    if item.input["n"] >= 10 and not os.path.exists("go"):
        await asyncio.sleep(0.3)
"""
DEADLY = """
@mill.handler("test", concurrency=2)
async def run(item):
    if item.input["n"] == 5 and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), 9)
"""
GOOD = "mill.handler('test')(lambda item: None)\n"
CSV = "n\n" + "".join(f"{n}\n" for n in range(30))


async def outcomes(stage: Stage, job_id: UUID) -> Counter[tuple[str, str | None]]:
    query = "SELECT status, error->>'code' FROM tidemill.outcome WHERE job_id = %s"
    return Counter((status, code) for status, code in await rows(stage.db, query, job_id))


async def has_done(stage: Stage, job_id: UUID, count: int) -> None:
    """Wait until items are done."""

    async def look() -> bool:
        return (await job_of(stage.db, job_id)).counts.done >= count

    await eventually(look)


async def items(stage: Stage) -> None:
    stage.app(RETRIES)
    stage.work()
    job_id = await add_job(stage.db, 60, batch_size=20)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED_WITH_ERRORS
    assert await outcomes(stage, job_id) == {("done", None): 54, ("failed", "bad"): 6}


async def ledger(stage: Stage) -> None:
    await rows(stage.db, "CREATE TABLE public.ledger (n int)")
    stage.app(LEDGER)
    stage.work()
    job_id = await add_job(stage.db, 60, batch_size=20)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await outcomes(stage, job_id) == {("done", None): 60}
    assert await rows(stage.db, "SELECT n FROM public.ledger ORDER BY n") == [(n,) for n in range(60)]


async def dead_child(stage: Stage) -> None:
    stage.app(DEADLY)
    stage.work()
    job_id = await add_job(stage.db, 40, batch_size=20)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await outcomes(stage, job_id) == {("done", None): 40}


async def maintenance(stage: Stage) -> None:
    """A job with an expired lease, and with enough finished batches for a fold."""
    job_id = await add_job(stage.db, 220, batch_size=1)
    await take(stage.db, job_id, worker="gone", lease=0.1)
    for _ in range(205):
        await settle(stage.db, await take(stage.db, job_id))
    stage.app(GOOD)
    stage.work()
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await outcomes(stage, job_id) == {("done", None): 220}


async def submit(stage: Stage) -> None:
    stage.app(GOOD)
    stage.work()
    await _is_registered(stage, "test")
    headers = {"content-type": "text/csv", "Idempotency-Key": "once"}
    answer = await stage.request("POST", "/v1/jobs?kind=test", content=CSV.encode(), headers=headers)
    assert answer.status_code in (200, 202), answer.text
    [(job_id,)] = await rows(stage.db, "SELECT id FROM tidemill.job")
    assert answer.json()["id"] == str(job_id)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await outcomes(stage, job_id) == {("done", None): 30}


async def _is_registered(stage: Stage, kind: str) -> None:
    async def look() -> bool:
        return bool(await rows(stage.db, "SELECT 1 FROM tidemill.kind WHERE name = %s", kind))

    await eventually(look)


async def pause(stage: Stage) -> None:
    stage.app(SLOW)
    stage.work()
    job_id = await add_job(stage.db, 120, batch_size=20)
    await has_done(stage, job_id, 5)
    await stage.command("pause", str(job_id))

    async def is_released() -> bool:
        query = "SELECT 1 FROM tidemill.batch WHERE job_id = %s AND state = 'leased'"
        return not await rows(stage.db, query, job_id)

    await eventually(is_released)
    (stage.folder / "go").touch()
    await stage.command("resume", str(job_id))
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await outcomes(stage, job_id) == {("done", None): 120}


async def resume(stage: Stage) -> None:
    job_id = await add_job(stage.db, 30)
    await stage.db.run(job_lifecycle.pause_job, job_id)
    stage.app(GOOD)
    stage.work()
    await stage.command("resume", str(job_id))
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await outcomes(stage, job_id) == {("done", None): 30}


async def cancel(stage: Stage) -> None:
    stage.app(SLOW)
    stage.work()
    job_id = await add_job(stage.db, 120, batch_size=20)
    await has_done(stage, job_id, 5)
    await stage.command("cancel", str(job_id), accept="is cancelled")
    job = await stage.closed(job_id)
    assert job.status is JobStatus.CANCELLED
    assert (job.counts.done + job.counts.cancelled, job.counts.total) == (120, 120)
    assert job.counts.cancelled > 0


async def cancel_items(stage: Stage) -> None:
    job_id = await add_job(stage.db, 60, batch_size=20)
    stage.app(GOOD)
    body = {"item_ids": [f"{job_id}:{seq}" for seq in range(10, 30)]}
    answer = await stage.request("POST", f"/v1/jobs/{job_id}/selection/cancel", json=body)
    assert answer.is_success, answer.text
    stage.work()
    assert (await stage.closed(job_id)).counts.cancelled == 20
    assert (await job_of(stage.db, job_id)).counts.done == 40


async def delete(stage: Stage) -> None:
    stage.app(GOOD)
    (stage.folder / "rows.csv").write_text(CSV)
    key = (await stage.command("submit", "test", "rows.csv", "--app", "app:mill")).split()[-1]
    job_id = await add_job(stage.db, 30)
    await settle(stage.db, await take(stage.db, job_id, wanted=10))
    for job in (key, str(job_id)):
        await stage.command("delete", job, "--yes")
    stage.work()

    async def is_gone() -> bool:
        # Not unneeded_file: if a process dies between the removal of a file and that of its record, the record stays,
        # because no machine can know that the file is on no other machine.
        tables = ("job", "item", "outcome", "batch", "deleted_job")
        counts = ", ".join(f"(SELECT count(*) FROM tidemill.{table})" for table in tables)
        return await rows(stage.db, f"SELECT {counts}") == [(0,) * len(tables)]

    await eventually(is_gone)

    async def are_files_gone() -> bool:
        return not list((stage.folder / "blobs").glob("[0-9a-f]*"))

    await eventually(are_files_gone)


async def _add_failed_job(stage: Stage) -> UUID:
    """Add a closed job whose even items failed."""
    job_id = await add_job(stage.db, 30)
    lease = await take(stage.db, job_id)
    verdicts = [verdict(seq, FAILED) if seq % 2 == 0 else verdict(seq) for seq in range(30)]
    await settle(stage.db, lease, verdicts)
    await stage.db.run(close_job_as, job_id)
    return job_id


async def reprocess(stage: Stage) -> None:
    await _run_again(stage, "reprocess")


async def redrive(stage: Stage) -> None:
    await _run_again(stage, "retry")


async def _run_again(stage: Stage, command: str) -> None:
    job_id = await _add_failed_job(stage)
    stage.app(GOOD)
    stage.work()
    await stage.command(command, str(job_id))

    async def are_all_done() -> bool:
        operations = await rows(stage.db, "SELECT 1 FROM tidemill.operation WHERE state = 'running'")
        return not operations and (await job_of(stage.db, job_id)).counts.done == 30

    await eventually(are_all_done)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await outcomes(stage, job_id) == {("done", None): 30}
    [(operations,)] = await rows(stage.db, "SELECT count(*) FROM tidemill.operation")
    assert operations <= stage.command_count


async def purge(stage: Stage) -> None:
    job_id = await _add_failed_job(stage)
    await shift_clock(stage.db, "60 days")
    await stage.command("purge", "--older-than", "7d")
    assert await rows(stage.db, "SELECT count(*) FROM tidemill.item") == [(0,)]
    assert await rows(stage.db, "SELECT purged_at IS NOT NULL FROM tidemill.job WHERE id = %s", job_id) == [(True,)]
    detached = """SELECT relname FROM pg_class WHERE relnamespace = 'tidemill'::regnamespace AND relkind = 'r'
        AND relname ~ '^(item|outcome)_[0-9]' AND NOT relispartition"""
    assert await rows(stage.db, detached) == []


async def migrate(stage: Stage) -> None:
    await rows(stage.db, "DROP SCHEMA tidemill CASCADE")
    await stage.command("migrate")
    stage.app(GOOD)
    stage.work()
    job_id = await add_job(stage.db, 5)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
