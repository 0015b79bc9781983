"""Tests of the end of a slice: it ends in time, finished items are recorded, the rest is released uncharged."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from engine.children.scenes import (
    NAP,
    Start,
    begin,
    children,
    finish_in_slices,
    in_hand,
    items_in_hand,
    kick,
    some_done,
)
from support import add_job, assert_sound, eventually, fates, job_of, rows
from tidemill.core.errors import UnknownJob, UnknownKind
from tidemill.store import job_lifecycle, retention
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
async def test_slice_finishes_running_items_within_grace_period(body: str, start: Start, db: Database) -> None:
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
async def test_slice_end_releases_slow_items_without_charging_attempts(
    source: str, later: float, killed: bool, start: Start, db: Database, tmp_path: Path
) -> None:
    worker = await start(source, stop_grace_ms=int(GRACE_S * 1000))
    job_id = await add_job(db, 20)
    one = await kick(worker, job_id, 0.5)
    assert one.seconds < 0.5 + GRACE_S + SLACK_S + later
    assert (one.settled, one.child_died, one.due_in) == (0, killed, 0)
    assert await rows(db, "SELECT id FROM tidemill.batch WHERE state = 'leased' OR losses > 0 OR isolated") == []
    assert items_in_hand(worker) == 0, "a later death does not count for this slice"
    (tmp_path / "second").touch()
    await finish_in_slices(worker, job_id, 5.0)
    assert await fates(db, job_id) == {("done", None, 1): 20}
    await assert_sound(db)


async def test_slice_ends_without_crash_when_caller_cancels_it(start: Start, db: Database) -> None:
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
    assert (await kick(worker, job_id, 0.5)).settled, "the next slice may continue"
    assert children(worker) == [child]
    assert {attempts for _, _, attempts in await fates(db, job_id)} == {1}
    await assert_sound(db)


async def test_slice_reports_killed_child_and_no_items_are_lost(start: Start, db: Database) -> None:
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


async def test_slices_detect_poison_item(start: Start, db: Database) -> None:
    worker = await start("""
        @mill.handler("test", concurrency=10)
        async def run(item):
            await asyncio.sleep(0.01)
            if item.input["n"] == 7:
                os.abort()
    """)
    job_id = await add_job(db, 100)
    slices = await finish_in_slices(worker, job_id, 10.0)
    assert sum(each.child_died for each in slices) == 4, "once with other items, three times alone"
    assert sum(each.settled for each in slices) == 100
    assert sum(each.failed for each in slices) == 1
    assert await fates(db, job_id) == {("done", None, 1): 99, ("failed", "poison", 0): 1}
    await assert_sound(db)


async def test_slice_of_unknown_kind_is_rejected(start: Start, db: Database) -> None:
    worker = await start(NAP)
    job_id = await add_job(db, 1, "unheard.of")
    with pytest.raises(UnknownKind, match="unheard"):
        await worker.kickoff(job_id, "unheard.of", 5.0)


async def test_slice_of_paused_job_ends_early_without_running_items(start: Start, db: Database) -> None:
    worker = await start(NAP)
    job_id = await add_job(db, 5_000)
    await db.run(job_lifecycle.pause_job, job_id)
    one = await kick(worker, job_id, 30.0)
    assert (one.settled, one.is_drained, one.due_in) == (0, False, None)
    assert one.seconds < 10
    await db.run(job_lifecycle.resume_job, job_id)
    slice_ = begin(worker, job_id, 60.0)
    await some_done(db, job_id)
    await db.run(job_lifecycle.pause_job, job_id)
    assert (await slice_).seconds < 30
    counts = (await job_of(db, job_id)).counts
    assert counts.processing == 0
    assert counts.pending > 0
    await assert_sound(db)


async def test_slice_raises_unknown_job_when_job_is_deleted_meanwhile(start: Start, db: Database) -> None:
    worker = await start(NAP)
    job_id = await add_job(db, 5_000)
    slice_ = begin(worker, job_id, 60.0)
    await some_done(db, job_id)
    await db.run(retention.delete_job, job_id)
    with pytest.raises(UnknownJob):
        await slice_


async def test_worker_stop_ends_running_slices(start: Start, db: Database) -> None:
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
