"""Rates and estimates: what can honestly be said of how quick a job is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tidemill.domain.job import Counts, Job
from tidemill.domain.progress import NoEstimate, Sample, rates
from tidemill.domain.status import JobStatus

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def samples(*settled: tuple[float, int]) -> list[Sample]:
    return [Sample(at(seconds), n, 0) for seconds, n in settled]


def job(done: int, total: int = 10_000, status: JobStatus = JobStatus.RUNNING) -> Job:
    counts = Counts(total=total, done=done, pending=total - done)
    return Job(UUID(int=1), "J1", "test", 0, status, counts, created_at=BEGIN)


def steady(per_s: int, until: int) -> list[Sample]:
    return samples(*((second, per_s * second) for second in range(5, until + 1, 5)))


def test_a_steady_job_is_as_quick_now_as_on_average() -> None:
    found = rates(steady(10, 100), job(1_000), at(100))
    assert found.now_per_s == pytest.approx(10)
    assert found.average_per_s == pytest.approx(10)
    assert found.eta_s == pytest.approx(900)
    assert found.why is None


def test_samples_need_not_stand_at_the_edge_of_the_half_minute() -> None:
    found = rates(steady(10, 95), job(980), at(98))
    assert found.now_per_s == pytest.approx(10)


def test_now_is_the_last_half_minute_whatever_was_before() -> None:
    slow_then_fast = samples(*((5 * n, n) for n in range(1, 21)), (105, 520), (110, 1_020), (130, 3_020))
    found = rates(slow_then_fast, job(3_020), at(130))
    assert found.now_per_s == pytest.approx(100, rel=0.2)
    assert found.average_per_s == pytest.approx(3_020 / 130)


def test_what_was_cancelled_is_not_quick() -> None:
    going = job(1_000)
    cancelled = replace(going, counts=replace(going.counts, pending=0, cancelled=9_000))
    found = rates(steady(10, 100), cancelled, at(100))
    assert found.now_per_s == pytest.approx(10)
    assert found.average_per_s == pytest.approx(10)


def test_what_was_settled_since_the_last_sample_counts() -> None:
    found = rates(samples((5, 50)), job(120), at(9))
    assert found.now_per_s == pytest.approx(120 / 9)


def test_a_job_without_a_sample_has_its_own_counts() -> None:
    found = rates([], job(30), at(3))
    assert found.now_per_s == pytest.approx(10)
    assert found.eta_s == pytest.approx(997)


def test_a_job_that_waited_for_long_is_judged_from_when_it_began() -> None:
    found = rates(samples((3_598, 50)), job(60), at(3_600))
    assert found.now_per_s == pytest.approx(60 / 7)
    later = rates(samples((3_598, 50), (3_603, 100), (3_608, 150)), job(170), at(3_610))
    assert later.now_per_s == pytest.approx(10)
    assert later.average_per_s == pytest.approx(170 / 3_610)


def test_a_job_at_which_nobody_looked_has_its_average() -> None:
    found = rates([], job(7_200), at(3_600))
    assert found.now_per_s == found.average_per_s == pytest.approx(2)


def test_what_was_settled_before_anybody_looked_was_not_settled_now() -> None:
    found = rates(samples((3_580, 5_000)), job(5_100), at(3_600))
    assert found.now_per_s == pytest.approx(5)


def test_a_job_that_stood_still_and_goes_on_is_not_measured_from_where_it_stopped() -> None:
    found = rates(samples((10, 100)), job(450), at(600))
    assert found.now_per_s == pytest.approx(350 / 35)


def test_nothing_settled_for_half_a_minute_is_no_estimate() -> None:
    found = rates(samples((10, 100)), job(100), at(60))
    assert (found.now_per_s, found.eta_s, found.why) == (0, None, NoEstimate.NOT_MOVING)
    assert found.average_per_s == pytest.approx(100 / 60)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (JobStatus.PAUSED, NoEstimate.PAUSED),
        (JobStatus.CANCELLING, NoEstimate.CANCELLING),
    ],
)
def test_a_job_that_is_not_to_run_has_no_estimate(status: JobStatus, why: NoEstimate) -> None:
    found = rates(steady(10, 100), job(1_000, status=status), at(100))
    assert (found.eta_s, found.why) == (None, why)
    assert found.now_per_s > 0, "it is still as quick as it was"


def test_while_its_source_is_read_nobody_knows_how_much_there_is() -> None:
    reading = replace(job(1_000, status=JobStatus.INGESTING), ingest_complete=False)
    assert rates(steady(10, 100), reading, at(100)).why is NoEstimate.INGESTING


def test_a_closed_job_has_its_average_and_nothing_more() -> None:
    closed = replace(job(10_000, status=JobStatus.COMPLETED), closed_at=at(50))
    found = rates(steady(200, 50), closed, at(1_000))
    assert (found.now_per_s, found.eta_s, found.why) == (0, None, NoEstimate.CLOSED)
    assert found.average_per_s == pytest.approx(200)


def test_what_a_reprocess_takes_back_is_not_held_against_it() -> None:
    back = samples((60, 10_000), (85, 9_500), (90, 9_550))
    assert rates(back, job(9_600), at(95)).now_per_s == pytest.approx(100 / 35)


def test_a_job_of_this_very_moment_divides_by_nothing() -> None:
    found = rates([], job(5), at(0))
    assert (found.now_per_s, found.average_per_s, found.why) == (0, 0, NoEstimate.NOT_MOVING)
