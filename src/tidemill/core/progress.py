"""How quick a job is, and when it may be done: estimates that say when they cannot be made."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from tidemill.core.job import Job
from tidemill.core.status import JobStatus

RATE_WINDOW = timedelta(seconds=30)  # what counts as now
PROGRESS_SAMPLE_INTERVAL = timedelta(seconds=5)  # between two samples of a job that moves


@dataclass(frozen=True, slots=True)
class ProgressSample:
    """So many items were settled, not cancelled, at that time. Taken only when they are more or fewer than before."""

    at: datetime
    settled: int
    failed: int


class NoEstimate(StrEnum):
    """Why nobody can say when a job will be done."""

    CLOSED = "closed"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    INGESTING = "ingesting"  # how much there is to do is not known yet
    NOT_MOVING = "not_moving"  # nothing was settled in the last half minute


@dataclass(frozen=True, slots=True)
class ProgressRates:
    """Items settled per second, not cancelled: in the last half minute, and since the job was submitted."""

    now_per_s: float
    average_per_s: float
    eta_s: float | None
    why: NoEstimate | None  # there is no eta


def compute_rates(samples: Sequence[ProgressSample], job: Job, now: datetime) -> ProgressRates:
    """From the newest samples, in order of time, and the job's own counts at ``now``."""
    created = job.created_at or now
    seconds = ((job.closed_at or now) - created).total_seconds()
    average = job.counts.processed / seconds if seconds > 0 else 0.0
    current = 0.0 if job.is_closed else _compute_current_rate(samples, job.counts.processed, created, now)
    why = _explain_missing_estimate(job, current)
    return ProgressRates(current, average, job.counts.open / current if why is None else None, why)


def _compute_current_rate(samples: Sequence[ProgressSample], settled: int, created: datetime, now: datetime) -> float:
    """What was settled since half a minute ago. What a reprocess takes back is not counted against it."""
    origin, base = _find_window_start(samples, created, now)
    counts = [base, *(sample.settled for sample in samples if origin < sample.at <= now), settled]
    moved = sum(max(0, later - earlier) for earlier, later in pairwise(counts))
    seconds = (now - origin).total_seconds()
    return moved / seconds if seconds > 0 else 0.0


def _find_window_start(samples: Sequence[ProgressSample], created: datetime, now: datetime) -> tuple[datetime, int]:
    """From when on to measure, and how many were settled then."""
    start = now - RATE_WINDOW
    before = [sample for sample in samples if sample.at <= start]
    if before:
        # A sample stands for the time until the next one; of a job that stood still for long, for just the last of it.
        return max(before[-1].at, start - PROGRESS_SAMPLE_INTERVAL), before[-1].settled
    if created >= start or not samples:
        return created, 0  # without any sample nobody knows when it moved: its average has to do
    first = samples[0]
    # Nobody looked before. A sample by itself says that so much was settled since the look before it would have been.
    return (
        (first.at, first.settled)
        if now - first.at >= PROGRESS_SAMPLE_INTERVAL
        else (first.at - PROGRESS_SAMPLE_INTERVAL, 0)
    )


def _explain_missing_estimate(job: Job, current: float) -> NoEstimate | None:
    if job.is_closed:
        return NoEstimate.CLOSED
    if job.status is JobStatus.PAUSED:
        return NoEstimate.PAUSED
    if job.status is JobStatus.CANCELLING:
        return NoEstimate.CANCELLING
    if not job.ingest_complete:
        return NoEstimate.INGESTING
    return None if current > 0 else NoEstimate.NOT_MOVING
