"""Estimates the throughput of a job and when it will be done, or explains why there is no estimate."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from tidemill.core.job import Job
from tidemill.core.status import JobStatus

RATE_WINDOW = timedelta(seconds=30)  # the current rate is the rate in this window
PROGRESS_SAMPLE_INTERVAL = timedelta(seconds=5)  # between two samples of a job in progress


@dataclass(frozen=True, slots=True)
class ProgressSample:
    """The number of settled items, without cancelled ones, at a time. Samples are stored only when it changes."""

    at: datetime
    settled: int
    failed: int


class NoEstimate(StrEnum):
    """Why there is no estimate of when a job will be done."""

    CLOSED = "closed"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    INGESTING = "ingesting"  # the total number of items is not known yet
    NO_WORKER = "no_worker"  # no running worker handles the kind
    NOT_MOVING = "not_moving"  # no item was settled within the rate window


@dataclass(frozen=True, slots=True)
class ProgressRates:
    """Items settled per second, without cancelled ones: in the last 30 seconds, and since the job started."""

    now_per_s: float
    average_per_s: float
    eta_s: float | None
    why: NoEstimate | None  # the reason if eta_s is None


def compute_rates(
    samples: Sequence[ProgressSample], job: Job, now: datetime, *, has_worker: bool = True
) -> ProgressRates:
    """Compute the rates from the newest samples, in order of time, and the job's counts at ``now``.

    ``has_worker``: a running worker handles the kind of the job.
    """
    started = job.started_at or job.created_at or now
    seconds = (job.duration_s or 0.0) if job.is_closed else (now - started).total_seconds() - job.idle_s
    average = job.counts.processed / seconds if seconds > 0 else 0.0
    current = 0.0 if job.is_closed else _compute_current_rate(samples, job.counts.processed, started, now)
    why = _explain_missing_estimate(job, current, has_worker=has_worker)
    return ProgressRates(current, average, job.counts.open / current if why is None else None, why)


def _compute_current_rate(samples: Sequence[ProgressSample], settled: int, started: datetime, now: datetime) -> float:
    """Return the settled items per second in the rate window. Items reopened by a reprocess do not reduce it."""
    origin, base = _find_rate_baseline(samples, started, now)
    counts = [base, *(sample.settled for sample in samples if origin < sample.at <= now), settled]
    moved = sum(max(0, later - earlier) for earlier, later in pairwise(counts))
    seconds = (now - origin).total_seconds()
    return moved / seconds if seconds > 0 else 0.0


def _find_rate_baseline(samples: Sequence[ProgressSample], started: datetime, now: datetime) -> tuple[datetime, int]:
    """Return the start of the measurement and the number of items settled at that time."""
    start = now - RATE_WINDOW
    before = [sample for sample in samples if sample.at <= start]
    if before:
        # A sample is valid until the next one. After a long standstill, count only the last sample interval of it.
        return max(before[-1].at, start - PROGRESS_SAMPLE_INTERVAL), before[-1].settled
    if started >= start or not samples:
        return started, 0  # without samples, use the average since the start
    first = samples[0]
    # There is no earlier sample. Assume that a recent first sample was settled within one sample interval.
    return (
        (first.at, first.settled)
        if now - first.at >= PROGRESS_SAMPLE_INTERVAL
        else (first.at - PROGRESS_SAMPLE_INTERVAL, 0)
    )


def _explain_missing_estimate(job: Job, current: float, *, has_worker: bool) -> NoEstimate | None:
    if job.is_closed:
        return NoEstimate.CLOSED
    if job.status is JobStatus.PAUSED:
        return NoEstimate.PAUSED
    if job.status is JobStatus.CANCELLING:
        return NoEstimate.CANCELLING
    if not has_worker:
        return NoEstimate.NO_WORKER
    if not job.ingest_complete:
        return NoEstimate.INGESTING
    return None if current > 0 else NoEstimate.NOT_MOVING
