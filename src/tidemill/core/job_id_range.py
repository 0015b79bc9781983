"""Ranges of job IDs that match a time, an ID prefix or a job key."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

JOB_ID_MIN, JOB_ID_MAX = UUID(int=0), UUID(int=2**128 - 1)


JOB_ID_TIME_MAX_MS = 2**48 - 1


JOB_ID_TIME_SLACK_MS = 1_000  # between the time inside an ID and the time that was stored with it


JOB_KEY_YEAR_MAX = 9_998  # adding one day cannot overflow


_HEX_PREFIX_PATTERN = re.compile("[0-9a-f]{1,32}")


_COMPLETE_ID_PATTERN = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


_JOB_KEY_PREFIX_PATTERN = re.compile(r"J(\d{8})?\d{0,7}(_\d*)?")


@dataclass(frozen=True, slots=True)
class JobIdRange:
    """Jobs that can match: IDs from ``lo`` to ``hi``, keys that start with ``prefix``."""

    lo: UUID = JOB_ID_MIN
    hi: UUID = JOB_ID_MAX
    prefix: str = ""

    @property
    def is_empty(self) -> bool:
        return self.lo > self.hi

    def intersect(self, lo: UUID = JOB_ID_MIN, hi: UUID = JOB_ID_MAX) -> "JobIdRange":
        return JobIdRange(max(self.lo, lo), min(self.hi, hi), self.prefix)

    def limit_to_created(self, from_: datetime | None, to: datetime | None) -> "JobIdRange":
        """Return the range of jobs created in this time, plus some slack; the caller checks the stored times."""
        lo = JOB_ID_MIN if from_ is None else compute_min_id_at(from_, -JOB_ID_TIME_SLACK_MS)
        return self.intersect(lo, JOB_ID_MAX if to is None else compute_min_id_at(to, JOB_ID_TIME_SLACK_MS))

    def limit_to_before(self, id_: UUID) -> "JobIdRange":
        return self.intersect(hi=UUID(int=id_.int - 1)) if id_.int else JobIdRange(JOB_ID_MAX, JOB_ID_MIN)


def compute_min_id_at(moment: datetime, shift_ms: int = 0) -> UUID:
    """Return the smallest ID that can be created at a time: 48 bits of milliseconds, then zeros."""
    milliseconds = int(moment.timestamp() * 1000) + shift_ms
    return UUID(int=min(max(milliseconds, 0), JOB_ID_TIME_MAX_MS) << 80)


def parse_id_prefix_to_bounds(text: str) -> tuple[UUID, UUID] | None:
    """Return the first and the last ID that start with these hexadecimal digits; dashes are ignored."""
    digits = text.replace("-", "").lower()
    if not _HEX_PREFIX_PATTERN.fullmatch(digits):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def build_job_lookup_params(job: UUID | str) -> dict[str, UUID | str | None]:
    """Return the parameters that look up a job by its ID or by its key."""
    if isinstance(job, UUID):
        return {"id": job, "key": None}
    ids = parse_id_prefix_to_bounds(job)
    is_id = ids is not None and ids[0] == ids[1]
    return {"id": ids[0], "key": None} if ids is not None and is_id else {"id": None, "key": job.upper()}


def parse_job_prefix(text: str) -> JobIdRange | None:
    """Return the range of jobs whose key or ID starts with this text; None if no job can match."""
    id_range = parse_id_prefix_to_bounds(text)
    if id_range is not None:
        return JobIdRange(*id_range)
    key = text.strip().upper()
    match = _JOB_KEY_PREFIX_PATTERN.fullmatch(key)
    if match is None:
        return None
    day = None if match[1] is None else _parse_day(match[1])
    ids = JobIdRange(prefix=key)
    return ids if day is None else ids.limit_to_created(day, day + timedelta(days=1))


def parse_complete_id_or_dated_key(text: str) -> JobIdRange | None:
    """Return the range of jobs for a complete ID or the start of a key with its day; None for any other text."""
    name = text.strip()
    is_key = re.match(r"[Jj]\d{8}", name) is not None
    return parse_job_prefix(name) if is_key or _COMPLETE_ID_PATTERN.fullmatch(name) else None


def _parse_day(digits: str) -> datetime | None:
    try:
        day = datetime.strptime(digits, "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day if day.year <= JOB_KEY_YEAR_MAX else None
