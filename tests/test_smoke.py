"""Items run from submission to completion, in this process and in worker processes."""

import os

from support import Workers, add_job, assert_sound, closed
from support.forks import Forked, starting
from tidemill import Item, Mill, NotFound, Retry
from tidemill.core.status import JobStatus
from tidemill.store.database import Database
from tidemill.testing import drain


async def test_submitted_job_is_drained_to_completion(mill: Mill, db: Database) -> None:
    @mill.handler("double", max_attempts=2, max_attempts_not_found=1)
    async def double(item: Item) -> dict[str, int]:
        if item.input["n"] == 3:
            raise NotFound
        if item.input["n"] == 4 and item.attempt == 1:
            raise Retry
        return {"twice": 2 * item.input["n"]}

    job_id = await mill.submit_async("double", ({"n": n} for n in range(2_500)))
    await drain(mill, db=db)
    job = await closed(db, job_id)
    assert job.status is JobStatus.COMPLETED
    assert (job.counts.done, job.counts.not_found) == (2_499, 1)
    await assert_sound(db)


async def test_worker_process_completes_job_and_stops_cleanly(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.handler("test")
        async def run(item):
            return {"twice": 2 * item.input["n"]}
    """)
    process = workers.start(inside=["env"])  # starts a new interpreter, as a shell does
    job_id = await add_job(db, 5_000)
    job = await closed(db, job_id)
    assert job.counts.done == 5_000
    process.terminate()
    assert process.wait(20) == 0
    await assert_sound(db)


def test_forked_process_is_used_for_commands_in_any_environment(workers: Workers) -> None:
    workers.app("")
    process = workers.start()
    assert isinstance(process, Forked)
    assert process._told is not None, f"not forked: {starting(workers.env())} is not {starting(dict(os.environ))}"
