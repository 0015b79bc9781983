"""Tests of progress samples: when they are written, how many are kept, and the rates computed from them."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from store.scenes import big_job, plan, prepared_plan, retry_some, rows_looked_at, whole_scans
from support import FAILED, add_job, close_job_as, job_of, rows, settle, take, verdict
from telemetry.recorded_events import Told
from tidemill.core.progress import NoEstimate, ProgressSample
from tidemill.engine.maintenance_loop import MaintenanceLoop, ProgressSampler, QueueDepthLoop, report_queue_depth
from tidemill.jobs import job_control
from tidemill.store import job_lifecycle, progress_samples, workers
from tidemill.store.database import Connection, Database
from tidemill.store.retention import purge_old_weeks


async def list_samples(conn: Connection, job_id: UUID) -> list[ProgressSample]:
    return (await progress_samples._fetch_clock_and_recent_samples(conn, job_id))[1]


async def settled(db: Database, job_id: UUID) -> list[int]:
    return [sample.settled for sample in await db.read(list_samples, job_id)]


async def add_samples(db: Database, job_id: UUID, n: int) -> None:
    """Return samples, one second apart, of a job that settles ten items per second."""
    await rows(
        db,
        "INSERT INTO tidemill.job_sample SELECT j.id, j.created_at + s * interval '1 s', 10 * s, s"
        " FROM tidemill.job j, generate_series(1, %s) s WHERE j.id = %s",
        n,
        job_id,
    )


async def test_sampler_adds_sample_only_after_progress(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    observer = ProgressSampler(db)
    await take(db, job_id, 10)
    await observer.sample_active_jobs()
    assert await settled(db, job_id) == [], "no item is settled yet"
    for _ in range(2):
        await settle(db, await take(db, job_id, 10))
    await observer.sample_active_jobs()
    await observer.sample_active_jobs()
    assert await settled(db, job_id) == [20]
    lease = await take(db, job_id, 10)
    await settle(db, lease, [verdict(seq, FAILED) for seq in range(lease.lo, lease.hi)])
    await observer.sample_active_jobs()
    found = await db.read(list_samples, job_id)
    assert [(sample.settled, sample.failed) for sample in found] == [(20, 0), (30, 10)]


async def test_sampler_samples_items_settled_before_job_was_paused(db: Database) -> None:
    job_id = await add_job(db, 10)
    observer = ProgressSampler(db)
    lease = await take(db, job_id)
    await observer.sample_active_jobs()
    await settle(db, lease, [verdict(seq) for seq in range(9)])
    await db.run(job_lifecycle.pause_job, job_id)
    await rows(db, "UPDATE tidemill.batch SET state = 'ready' WHERE job_id = %s", job_id)
    await observer.sample_active_jobs()
    assert await settled(db, job_id) == [9]


async def test_sampler_adds_no_sample_for_waiting_job(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, range(10), delay=60)
    await ProgressSampler(db).sample_active_jobs()
    assert await settled(db, job_id) == []


async def test_job_closed_before_first_sample_gets_one_sample(db: Database) -> None:
    job_id = await add_job(db, 10)
    await settle(db, await take(db, job_id))
    await db.run(close_job_as, job_id)
    (sample,) = await db.read(list_samples, job_id)
    job = await job_of(db, job_id)
    assert job.closed_at is not None
    assert sample.settled == 10
    assert abs(sample.at - job.closed_at) < timedelta(seconds=1)


async def test_cancelled_items_count_in_no_sample_and_no_rate(db: Database, told: Told) -> None:
    job_id = await add_job(db, 1_000, batch_size=10)
    await settle(db, await take(db, job_id, 10))
    await job_control.cancel_job(db, job_id)
    job = await job_of(db, job_id)
    assert (job.counts.done, job.counts.cancelled) == (10, 990)
    assert await settled(db, job_id) == [10]
    assert job.closed_at is not None
    assert job.started_at is not None
    seconds = (job.closed_at - job.started_at).total_seconds()
    assert told.of("job.closed")[0]["rows_per_sec"] == pytest.approx(10 / seconds, abs=0.1)


async def test_maintenance_samples_jobs_at_its_interval(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    maintenance = MaintenanceLoop(db, "w1")
    lease = await take(db, job_id, 10)
    await settle(db, lease, [verdict(seq) for seq in range(5)])
    for _ in range(3):
        await maintenance.tick()
    assert await settled(db, job_id) == [5]
    assert len(await rows(db, "SELECT 1 FROM tidemill.job_sample")) == 1


async def test_thinning_keeps_newest_samples_and_every_second_older_one(db: Database) -> None:
    long, short = await add_job(db, 10), await add_job(db, 10)
    await add_samples(db, long, 3_000)
    await add_samples(db, short, 100)
    assert await db.run_async_commit(progress_samples.thin_samples, [long, short]) == 1_250
    assert await db.run_async_commit(progress_samples.thin_samples, [long, short]) == 0
    left = [n for (n,) in await rows(db, "SELECT failed FROM tidemill.job_sample WHERE job_id = %s ORDER BY at", long)]
    assert left[-500:] == list(range(2_501, 3_001)), "all of the newest samples are kept"
    assert left[:3] == [1, 3, 5]
    assert await rows(db, "SELECT count(*) FROM tidemill.job_sample WHERE job_id = %s", short) == [(100,)]


async def test_thinning_skips_jobs_without_new_sample(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    await add_samples(db, job_id, 2_500)
    observer = ProgressSampler(db)
    assert await observer.thin_samples() == 0
    await settle(db, await take(db, job_id, 10))
    await take(db, job_id, 10)
    await observer.sample_active_jobs()
    assert await observer.thin_samples() == 1_000
    assert await observer.thin_samples() == 0


async def test_progress_chart_is_reduced_to_point_limit(db: Database) -> None:
    job_id = await add_job(db, 10)
    await add_samples(db, job_id, 1_000)
    points = await db.read(progress_samples.read_progress_chart, job_id, 50)
    assert len(points) == 50
    job = await job_of(db, job_id)
    assert (points[0].at, points[0].settled, points[0].per_s) == (job.created_at, 0, None)
    assert (points[-1].settled, points[-1].failed) == (10_000, 1_000)
    assert all(point.per_s == pytest.approx(10) for point in points[1:])
    assert len(await db.read(progress_samples.read_progress_chart, job_id)) == 120


async def test_progress_chart_of_few_samples_shows_all_of_them(db: Database) -> None:
    job_id = await add_job(db, 10)
    assert [point.settled for point in await db.read(progress_samples.read_progress_chart, job_id)] == [0]
    await add_samples(db, job_id, 3)
    assert [point.settled for point in await db.read(progress_samples.read_progress_chart, job_id)] == [0, 10, 20, 30]


async def test_running_job_has_estimate_while_worker_handles_it_until_paused(db: Database) -> None:
    job_id = await add_job(db, 100)
    await settle(db, await take(db, job_id, 50))
    assert (await db.read(progress_samples.read_job_rates, await job_of(db, job_id))).why is NoEstimate.NO_WORKER
    await db.run(workers.register_worker, "w1", "here", 1, {"kinds": ["test"]})
    found = await db.read(progress_samples.read_job_rates, await job_of(db, job_id))
    assert found.now_per_s > 0
    assert found.eta_s == pytest.approx(50 / found.now_per_s)
    await job_control.pause_job(db, job_id)
    assert (await db.read(progress_samples.read_job_rates, await job_of(db, job_id))).why is NoEstimate.PAUSED


async def test_samples_are_removed_with_deleted_or_purged_job(db: Database) -> None:
    deleted, purged = await add_job(db, 10), await add_job(db, 10)
    for job_id in (deleted, purged):
        await settle(db, await take(db, job_id))
        await db.run(close_job_as, job_id)
    await job_control.delete_job(db, deleted)
    assert await rows(db, "SELECT job_id FROM tidemill.job_sample") == [(purged,)]
    await rows(db, "UPDATE tidemill.job SET closed_at = closed_at - interval '1 year'")
    await rows(db, "UPDATE tidemill.job SET id = tidemill.id_at(tidemill.now() - interval '1 year', true)")
    await rows(db, "UPDATE tidemill.job_sample SET job_id = (SELECT id FROM tidemill.job)")
    await rows(db, "SELECT tidemill.ensure_partition(tidemill.now() - interval '1 year')")
    assert await purge_old_weeks(db, 86_400)
    assert await rows(db, "SELECT job_id FROM tidemill.job_sample") == []


async def test_queue_depth_is_summed_by_status(db: Database, told: Told) -> None:
    job_id, paused = await add_job(db, 30, batch_size=10), await add_job(db, 500)
    await job_control.pause_job(db, paused)
    await rows(db, "UPDATE tidemill.batch SET since = since - interval '1 h' WHERE job_id = %s", paused)
    await rows(db, "UPDATE tidemill.batch SET since = since - interval '60 s' WHERE job_id = %s", job_id)
    await take(db, job_id, 10)
    lease = await take(db, job_id, 10)
    await settle(db, lease, [verdict(seq, FAILED) for seq in range(lease.lo, lease.hi)])
    await rows(db, "UPDATE tidemill.batch SET retrying = true WHERE job_id = %s AND state = 'ready'", job_id)
    depth = await report_queue_depth(db)
    assert (depth.pending, depth.processing, depth.retry_wait) == (500, 10, 10)
    assert told.of("queue.sampled")[0] | {"oldest_s": 0} == {
        "pending": 500,
        "processing": 10,
        "retry_wait": 10,
        "oldest_s": 0,
    }


async def test_queue_age_ignores_paused_jobs(db: Database) -> None:
    job_id, paused = await add_job(db, 10), await add_job(db, 10)
    await job_control.pause_job(db, paused)
    old = "UPDATE tidemill.batch SET (since, not_before) = (since - {0}, not_before - {0}) WHERE job_id = %s"
    await rows(db, old.format("interval '1 h'"), paused)
    await rows(db, old.format("interval '60 s'"), job_id)
    assert 60 <= (await report_queue_depth(db)).oldest_s < 120


async def test_queue_age_of_empty_queue_is_zero(db: Database) -> None:
    assert await QueueDepthLoop(db).tick() > 0
    assert (await report_queue_depth(db)).oldest_s == 0


async def test_sampling_queries_use_indexes_and_read_few_rows(db: Database) -> None:
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
