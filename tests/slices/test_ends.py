"""However a slice ends, in time it ends: what is finished is kept, the rest goes back, and nobody is charged."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from slices.scenes import NAP, Start, begin, children, finish_in_slices, in_hand, items_in_hand, kick, some_done
from support import add_job, assert_sound, eventually, fates, job_of, rows
from tidemill.domain.errors import UnknownJob, UnknownKind
from tidemill.store import delete, jobs
from tidemill.store.database import Database

GRACE_S = 0.5
SLACK_S = 10.0  # a busy machine
KILLED_S = 3.0 + SLACK_S

LEISURELY = "await asyncio.sleep(0.3)"
LONG = "await asyncio.sleep(0 if os.path.exists('second') else 60)"
BLOCKING = "time.sleep(0 if os.path.exists('second') else 60)"
DEAF = """
        while not os.path.exists('second'):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
"""


def app(body: str, declare: str = 'handler("test", concurrency=3)\n    async def run(item)') -> str:
    return f"""
    @mill.{declare}:
        {body.strip()}
    """


async def nothing_is_leased(db: Database, within: float) -> None:
    async def look() -> bool:
        return await rows(db, "SELECT id FROM tidemill.batch WHERE state = 'leased'") == []

    await eventually(look, within)


@pytest.mark.parametrize("body", [LEISURELY, "time.sleep(0.3)"], ids=["async", "hogging"])
async def test_items_of_300_ms_are_finished_in_the_grace(body: str, start: Start, db: Database) -> None:
    worker = await start(app(body))
    job_id = await add_job(db, 100)
    one = await kick(worker, job_id, 1.0)
    assert 0.9 < one.seconds < 1.0 + 2.0 + SLACK_S
    assert 0 < one.settled < 100
    assert not one.child_died
    assert (await job_of(db, job_id)).counts.done == one.settled
    assert await fates(db, job_id) == {("done", None, 1): one.settled}
    await assert_sound(db)


@pytest.mark.parametrize(
    ("source", "later", "killed"),
    [
        (app(LONG), 0.0, False),
        (app(BLOCKING, "handler('test', concurrency=3)\n    def run(item)"), 0.0, False),
        (app(LONG, "batch_handler('test')\n    async def run(items)"), 0.0, False),
        (app(BLOCKING, "batch_handler('test')\n    def run(items)"), KILLED_S, True),
        (app(DEAF), KILLED_S, True),
        (app(BLOCKING), KILLED_S, True),
    ],
    ids=["sleeping", "blocking", "set-based", "set-based and blocking", "deaf", "hogging"],
)
async def test_items_that_take_too_long_are_let_go_uncharged(
    source: str, later: float, killed: bool, start: Start, db: Database, tmp_path: Path
) -> None:
    worker = await start(source, stop_grace_ms=int(GRACE_S * 1000))
    job_id = await add_job(db, 20)
    one = await kick(worker, job_id, 0.5)
    assert one.seconds < 0.5 + GRACE_S + SLACK_S + later
    assert (one.settled, one.child_died, one.due_in) == (0, killed, 0)
    assert await rows(db, "SELECT id FROM tidemill.batch WHERE state = 'leased' OR losses > 0 OR isolated") == []
    assert items_in_hand(worker) == 0, "a later death is not theirs"
    (tmp_path / "second").touch()
    await finish_in_slices(worker, job_id, 5.0)
    assert await fates(db, job_id) == {("done", None, 1): 20}
    await assert_sound(db)


async def test_a_client_who_goes_ends_the_slice_and_nothing_crashes(start: Start, db: Database) -> None:
    worker = await start(app("await asyncio.sleep(0.1)"))
    job_id = await add_job(db, 200)
    slice_ = begin(worker, job_id, 60.0)
    await some_done(db, job_id)
    (child,) = children(worker)
    slice_.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slice_
    await nothing_is_leased(db, 10.0)
    assert (await job_of(db, job_id)).counts.pending > 0
    assert await rows(db, "SELECT id FROM tidemill.batch WHERE losses > 0 OR crashes > 0") == []
    assert (await kick(worker, job_id, 0.5)).settled, "the next one may go on"
    assert children(worker) == [child]
    assert {attempts for _, _, attempts in await fates(db, job_id)} == {1}
    await assert_sound(db)


async def test_a_child_killed_in_mid_slice_loses_nothing_and_the_slice_says_so(start: Start, db: Database) -> None:
    worker = await start(NAP)
    job_id = await add_job(db, 2_000)
    slice_ = begin(worker, job_id, 60.0)
    await some_done(db, job_id)
    os.kill(children(worker)[0], signal.SIGKILL)
    died = await slice_
    assert died.child_died
    assert died.seconds < 30
    assert died.settled == (await job_of(db, job_id)).counts.done > 0
    await assert_sound(db)
    rest = await finish_in_slices(worker, job_id, 10.0)
    assert died.settled + sum(each.settled for each in rest) == 2_000
    assert await fates(db, job_id) == {("done", None, 1): 2_000}
    await assert_sound(db)


async def test_poison_is_found_by_slices_alone(start: Start, db: Database) -> None:
    worker = await start("""
        @mill.handler("test", concurrency=10)
        async def run(item):
            await asyncio.sleep(0.01)
            if item.input["n"] == 7:
                os.abort()
    """)
    job_id = await add_job(db, 100)
    slices = await finish_in_slices(worker, job_id, 10.0)
    assert sum(each.child_died for each in slices) == 4, "once in company, three times alone"
    assert sum(each.settled for each in slices) == 100
    assert sum(each.failed for each in slices) == 1
    assert await fates(db, job_id) == {("done", None, 1): 99, ("failed", "poison", 0): 1}
    await assert_sound(db)


async def test_an_unknown_kind_is_refused(start: Start, db: Database) -> None:
    worker = await start(NAP)
    job_id = await add_job(db, 1, "unheard.of")
    with pytest.raises(UnknownKind, match="unheard"):
        await worker.kickoff(job_id, "unheard.of", 5.0)


async def test_a_paused_job_is_left_alone_and_one_that_is_paused_meanwhile_ends_the_slice(
    start: Start, db: Database
) -> None:
    worker = await start(NAP)
    job_id = await add_job(db, 5_000)
    await db.run(jobs.pause, job_id)
    one = await kick(worker, job_id, 30.0)
    assert (one.settled, one.is_drained, one.due_in) == (0, False, None)
    assert one.seconds < 10
    await db.run(jobs.resume, job_id)
    slice_ = begin(worker, job_id, 60.0)
    await some_done(db, job_id)
    await db.run(jobs.pause, job_id)
    assert (await slice_).seconds < 30
    counts = (await job_of(db, job_id)).counts
    assert counts.processing == 0
    assert counts.pending > 0
    await assert_sound(db)


async def test_a_job_that_is_deleted_meanwhile_is_not_there_any_more(start: Start, db: Database) -> None:
    worker = await start(NAP)
    job_id = await add_job(db, 5_000)
    slice_ = begin(worker, job_id, 60.0)
    await some_done(db, job_id)
    await db.run(delete.delete, job_id)
    with pytest.raises(UnknownJob):
        await slice_


async def test_a_worker_that_stops_ends_its_slices(start: Start, db: Database) -> None:
    worker = await start(app("await asyncio.sleep(0.1)"))
    job_id = await add_job(db, 1_000)
    slice_ = begin(worker, job_id, 60.0)
    await in_hand(db, job_id)
    started = time.monotonic()
    await worker.stop()
    assert time.monotonic() - started < 20
    assert not (await slice_).child_died
    assert await rows(db, "SELECT id FROM tidemill.batch WHERE state = 'leased'") == []
    assert await rows(db, "SELECT id FROM tidemill.worker") == []
    await assert_sound(db)
