"""Samples of jobs: written while they move, few enough, and what is drawn of them."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from support import FAILED, add_job, job_of, rows, settle, take, verdict
from telemetry.hearing import Told
from tidemill.domain.progress import NoEstimate
from tidemill.engine.observe import Observer, QueueWatch, measure_queue
from tidemill.engine.sweep import Maintenance
from tidemill.operations import control
from tidemill.store import jobs, samples
from tidemill.store.database import Database
from tidemill.store.partitions import purge
from traps.scenes import big_job, plan, prepared_plan, retry_some, rows_looked_at, whole_scans


async def settled(db: Database, job_id: UUID) -> list[int]:
    return [sample.settled for sample in await db.run(samples.recent, job_id)]


async def add_samples(db: Database, job_id: UUID, n: int) -> None:
    """So many samples, a second apart, of a job that settles ten items a second."""
    await rows(
        db,
        "INSERT INTO tidemill.job_sample SELECT j.id, j.created_at + s * interval '1 s', 10 * s, s"
        " FROM tidemill.job j, generate_series(1, %s) s WHERE j.id = %s",
        n,
        job_id,
    )


async def test_a_job_is_sampled_when_it_has_moved(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    observer = Observer(db)
    await take(db, job_id, 10)
    await observer.sample()
    assert await settled(db, job_id) == [], "nothing of it is settled yet"
    for _ in range(2):
        await settle(db, await take(db, job_id, 10))
    await observer.sample()
    await observer.sample()
    assert await settled(db, job_id) == [20]
    lease = await take(db, job_id, 10)
    await settle(db, lease, [verdict(seq, FAILED) for seq in range(lease.lo, lease.hi)])
    await observer.sample()
    found = await db.run(samples.recent, job_id)
    assert [(sample.settled, sample.failed) for sample in found] == [(20, 0), (30, 10)]


async def test_what_was_settled_just_before_everybody_let_go_is_sampled(db: Database) -> None:
    job_id = await add_job(db, 10)
    observer = Observer(db)
    lease = await take(db, job_id)
    await observer.sample()
    await settle(db, lease, [verdict(seq) for seq in range(9)])
    await db.run(jobs.pause, job_id)
    await rows(db, "UPDATE tidemill.batch SET state = 'ready' WHERE job_id = %s", job_id)
    await observer.sample()
    assert await settled(db, job_id) == [9]


async def test_a_job_that_waits_costs_no_sample(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, range(10), delay=60)
    await Observer(db).sample()
    assert await settled(db, job_id) == []


async def test_a_job_that_was_closed_quickly_has_one_sample(db: Database) -> None:
    job_id = await add_job(db, 10)
    await settle(db, await take(db, job_id))
    await db.run(jobs.finalize, job_id)
    (sample,) = await db.run(samples.recent, job_id)
    job = await job_of(db, job_id)
    assert job.closed_at is not None
    assert sample.settled == 10
    assert abs(sample.at - job.closed_at) < timedelta(seconds=1)


async def test_what_was_cancelled_is_in_no_sample_and_in_no_summary(db: Database, told: Told) -> None:
    job_id = await add_job(db, 1_000, batch_size=10)
    await settle(db, await take(db, job_id, 10))
    await control.cancel(db, job_id)
    job = await job_of(db, job_id)
    assert (job.counts.done, job.counts.cancelled) == (10, 990)
    assert await settled(db, job_id) == [10]
    assert job.closed_at is not None
    assert job.created_at is not None
    seconds = (job.closed_at - job.created_at).total_seconds()
    assert told.of("job.closed")[0]["rows_per_sec"] == pytest.approx(10 / seconds, abs=0.1)


async def test_maintenance_takes_samples_every_few_seconds(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    maintenance = Maintenance(db, "w1")
    lease = await take(db, job_id, 10)
    await settle(db, lease, [verdict(seq) for seq in range(5)])
    for _ in range(3):
        await maintenance.tick()
    assert await settled(db, job_id) == [5]
    assert len(await rows(db, "SELECT 1 FROM tidemill.job_sample")) == 1


async def test_a_long_job_keeps_fewer_of_the_older_samples(db: Database) -> None:
    long, short = await add_job(db, 10), await add_job(db, 10)
    await add_samples(db, long, 3_000)
    await add_samples(db, short, 100)
    assert await db.run(samples.thin, [long, short]) == 1_250
    assert await db.run(samples.thin, [long, short]) == 0
    left = [n for (n,) in await rows(db, "SELECT failed FROM tidemill.job_sample WHERE job_id = %s ORDER BY at", long)]
    assert left[-500:] == list(range(2_501, 3_001)), "the newest are all there"
    assert left[:3] == [1, 3, 5]
    assert await rows(db, "SELECT count(*) FROM tidemill.job_sample WHERE job_id = %s", short) == [(100,)]


async def test_only_jobs_that_were_sampled_are_thinned(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    await add_samples(db, job_id, 2_500)
    observer = Observer(db)
    assert await observer.thin() == 0
    await settle(db, await take(db, job_id, 10))
    await take(db, job_id, 10)
    await observer.sample()
    assert await observer.thin() == 1_000
    assert await observer.thin() == 0


async def test_a_chart_has_few_points_from_the_beginning_to_the_end(db: Database) -> None:
    job_id = await add_job(db, 10)
    await add_samples(db, job_id, 1_000)
    points = await db.run(samples.chart, job_id, 50)
    assert len(points) == 50
    job = await job_of(db, job_id)
    assert (points[0].at, points[0].settled, points[0].per_s) == (job.created_at, 0, None)
    assert (points[-1].settled, points[-1].failed) == (10_000, 1_000)
    assert all(point.per_s == pytest.approx(10) for point in points[1:])
    assert len(await db.run(samples.chart, job_id)) == 120


async def test_a_chart_of_few_samples_is_those(db: Database) -> None:
    job_id = await add_job(db, 10)
    assert [point.settled for point in await db.run(samples.chart, job_id)] == [0]
    await add_samples(db, job_id, 3)
    assert [point.settled for point in await db.run(samples.chart, job_id)] == [0, 10, 20, 30]


async def test_a_job_that_runs_has_a_rate_and_an_estimate(db: Database) -> None:
    job_id = await add_job(db, 100)
    await settle(db, await take(db, job_id, 50))
    found = await db.run(samples.rates_of, await job_of(db, job_id))
    assert found.now_per_s > 0
    assert found.eta_s == pytest.approx(50 / found.now_per_s)
    await control.pause(db, job_id)
    assert (await db.run(samples.rates_of, await job_of(db, job_id))).why is NoEstimate.PAUSED


async def test_samples_go_with_their_job_and_with_its_rows(db: Database) -> None:
    deleted, purged = await add_job(db, 10), await add_job(db, 10)
    for job_id in (deleted, purged):
        await settle(db, await take(db, job_id))
        await db.run(jobs.finalize, job_id)
    await control.delete(db, deleted)
    assert await rows(db, "SELECT job_id FROM tidemill.job_sample") == [(purged,)]
    await rows(db, "UPDATE tidemill.job SET closed_at = closed_at - interval '1 year'")
    await rows(db, "UPDATE tidemill.job SET id = tidemill.id_at(tidemill.now() - interval '1 year', true)")
    await rows(db, "UPDATE tidemill.job_sample SET job_id = (SELECT id FROM tidemill.job)")
    await rows(db, "SELECT tidemill.ensure_partition(tidemill.now() - interval '1 year')")
    assert await purge(db, 86_400)
    assert await rows(db, "SELECT job_id FROM tidemill.job_sample") == []


async def test_the_queue_is_summed_by_status(db: Database, told: Told) -> None:
    job_id, paused = await add_job(db, 30, batch_size=10), await add_job(db, 500)
    await control.pause(db, paused)
    await rows(db, "UPDATE tidemill.batch SET since = since - interval '1 h' WHERE job_id = %s", paused)
    await rows(db, "UPDATE tidemill.batch SET since = since - interval '60 s' WHERE job_id = %s", job_id)
    await take(db, job_id, 10)
    lease = await take(db, job_id, 10)
    await settle(db, lease, [verdict(seq, FAILED) for seq in range(lease.lo, lease.hi)])
    await rows(db, "UPDATE tidemill.batch SET retrying = true WHERE job_id = %s AND state = 'ready'", job_id)
    depth = await measure_queue(db)
    assert (depth.pending, depth.processing, depth.retry_wait) == (500, 10, 10)
    assert told.of("queue.sampled")[0] | {"oldest_s": 0} == {
        "pending": 500,
        "processing": 10,
        "retry_wait": 10,
        "oldest_s": 0,
    }


async def test_a_paused_job_does_not_make_the_queue_look_old(db: Database) -> None:
    job_id, paused = await add_job(db, 10), await add_job(db, 10)
    await control.pause(db, paused)
    old = "UPDATE tidemill.batch SET (since, not_before) = (since - {0}, not_before - {0}) WHERE job_id = %s"
    await rows(db, old.format("interval '1 h'"), paused)
    await rows(db, old.format("interval '60 s'"), job_id)
    assert 60 <= (await measure_queue(db)).oldest_s < 120


async def test_an_empty_queue_is_not_old(db: Database) -> None:
    assert await QueueWatch(db).tick() > 0
    assert (await measure_queue(db)).oldest_s == 0


async def test_looking_at_jobs_reads_few_rows(db: Database) -> None:
    paused = await big_job(db, 5_000, size=1)
    await rows(db, "UPDATE tidemill.batch SET state = 'done', done = open, open = 0, folded = true")
    job_id = await big_job(db, 2_000, settled=1_000)
    await add_samples(db, paused, 5_000)
    await take(db, job_id)
    await rows(db, "ANALYZE tidemill.batch, tidemill.job_sample, tidemill.job")
    asked: dict[str, dict[str, Any]] = {
        "sample/turning": {},
        "sample/recent": {"job_id": paused, "limit": 20},
        "sample/add": {"job_ids": [job_id]},
        "queue/depth": {},
    }
    for name, params in asked.items():
        assert await whole_scans(db, await plan(db, name, params)) == set(), name
        assert await whole_scans(db, await prepared_plan(db, name, params)) == set(), name
        assert (await rows_looked_at(db, name, params)).total() <= 50, name
