"""Tests of rates and estimates."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tidemill.core.job import Counts, Job
from tidemill.core.progress import NoEstimate, ProgressSample, compute_rates
from tidemill.core.status import JobStatus

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def samples(*settled: tuple[float, int]) -> list[ProgressSample]:
    return [ProgressSample(at(seconds), n, 0) for seconds, n in settled]


def job(done: int, total: int = 10_000, status: JobStatus = JobStatus.RUNNING) -> Job:
    counts = Counts(total=total, done=done, pending=total - done)
    return Job(UUID(int=1), "J1", "test", 0, status, counts, created_at=BEGIN, started_at=BEGIN)


def steady(per_s: int, until: int) -> list[ProgressSample]:
    return samples(*((second, per_s * second) for second in range(5, until + 1, 5)))


def test_steady_job_has_equal_current_and_average_rate() -> None:
    found = compute_rates(steady(10, 100), job(1_000), at(100))
    assert found.now_per_s == pytest.approx(10)
    assert found.average_per_s == pytest.approx(10)
    assert found.eta_s == pytest.approx(900)
    assert found.why is None


def test_current_rate_needs_no_sample_at_window_edge() -> None:
    found = compute_rates(steady(10, 95), job(980), at(98))
    assert found.now_per_s == pytest.approx(10)


def test_current_rate_covers_last_30_s_only() -> None:
    slow_then_fast = samples(*((5 * n, n) for n in range(1, 21)), (105, 520), (110, 1_020), (130, 3_020))
    found = compute_rates(slow_then_fast, job(3_020), at(130))
    assert found.now_per_s == pytest.approx(100, rel=0.2)
    assert found.average_per_s == pytest.approx(3_020 / 130)


def test_cancelled_items_do_not_count_in_rates() -> None:
    going = job(1_000)
    cancelled = replace(going, counts=replace(going.counts, pending=0, cancelled=9_000))
    found = compute_rates(steady(10, 100), cancelled, at(100))
    assert found.now_per_s == pytest.approx(10)
    assert found.average_per_s == pytest.approx(10)


def test_current_rate_includes_items_settled_after_last_sample() -> None:
    found = compute_rates(samples((5, 50)), job(120), at(9))
    assert found.now_per_s == pytest.approx(120 / 9)


def test_job_without_samples_gets_rate_from_its_counts() -> None:
    found = compute_rates([], job(30), at(3))
    assert found.now_per_s == pytest.approx(10)
    assert found.eta_s == pytest.approx(997)


def test_current_rate_of_long_waiting_job_starts_at_first_progress() -> None:
    found = compute_rates(samples((3_598, 50)), job(60), at(3_600))
    assert found.now_per_s == pytest.approx(60 / 7)
    later = compute_rates(samples((3_598, 50), (3_603, 100), (3_608, 150)), job(170), at(3_610))
    assert later.now_per_s == pytest.approx(10)
    assert later.average_per_s == pytest.approx(170 / 3_610)


def test_old_job_without_samples_has_average_as_current_rate() -> None:
    found = compute_rates([], job(7_200), at(3_600))
    assert found.now_per_s == found.average_per_s == pytest.approx(2)


def test_current_rate_excludes_items_settled_before_first_sample() -> None:
    found = compute_rates(samples((3_580, 5_000)), job(5_100), at(3_600))
    assert found.now_per_s == pytest.approx(5)


def test_current_rate_of_resumed_job_excludes_idle_time() -> None:
    found = compute_rates(samples((10, 100)), job(450), at(600))
    assert found.now_per_s == pytest.approx(350 / 35)


def test_stalled_job_has_no_estimate() -> None:
    found = compute_rates(samples((10, 100)), job(100), at(60))
    assert (found.now_per_s, found.eta_s, found.why) == (0, None, NoEstimate.NOT_MOVING)
    assert found.average_per_s == pytest.approx(100 / 60)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (JobStatus.PAUSED, NoEstimate.PAUSED),
        (JobStatus.CANCELLING, NoEstimate.CANCELLING),
    ],
)
def test_paused_or_cancelling_job_has_no_estimate(status: JobStatus, why: NoEstimate) -> None:
    found = compute_rates(steady(10, 100), job(1_000, status=status), at(100))
    assert (found.eta_s, found.why) == (None, why)
    assert found.now_per_s > 0, "the rate has not changed"


def test_ingesting_job_has_no_estimate() -> None:
    reading = replace(job(1_000, status=JobStatus.INGESTING), ingest_complete=False)
    assert compute_rates(steady(10, 100), reading, at(100)).why is NoEstimate.INGESTING


def test_closed_job_has_only_average_rate() -> None:
    closed = replace(job(10_000, status=JobStatus.COMPLETED), closed_at=at(50), duration_s=50)
    found = compute_rates(steady(200, 50), closed, at(1_000))
    assert (found.now_per_s, found.eta_s, found.why) == (0, None, NoEstimate.CLOSED)
    assert found.average_per_s == pytest.approx(200)


def test_current_rate_ignores_items_taken_back_by_reprocess() -> None:
    back = samples((60, 10_000), (85, 9_500), (90, 9_550))
    assert compute_rates(back, job(9_600), at(95)).now_per_s == pytest.approx(100 / 35)


def test_job_without_elapsed_time_has_zero_rates() -> None:
    found = compute_rates([], job(5), at(0))
    assert (found.now_per_s, found.average_per_s, found.why) == (0, 0, NoEstimate.NOT_MOVING)


def test_average_rate_excludes_time_in_queue_and_time_closed_before_reopening() -> None:
    queued = replace(job(1_000), started_at=at(3_600), idle_s=600)
    assert compute_rates(steady(10, 100), queued, at(4_300)).average_per_s == pytest.approx(10)
    closed = replace(queued, closed_at=at(4_300), duration_s=100)
    assert compute_rates([], closed, at(9_000)).average_per_s == pytest.approx(10)


def test_job_without_worker_has_no_estimate() -> None:
    found = compute_rates(steady(10, 100), job(1_000), at(100), has_worker=False)
    assert (found.eta_s, found.why) == (None, NoEstimate.NO_WORKER)
    paused = job(1_000, status=JobStatus.PAUSED)
    assert compute_rates(steady(10, 100), paused, at(100), has_worker=False).why is NoEstimate.PAUSED
