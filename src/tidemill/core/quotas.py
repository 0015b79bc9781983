"""Quotas of one user: the limits, their use, and the decision whether more fits."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from tidemill.core.errors import InputExceedsQuota, QuotaExceeded, StorageQuotaExceeded
from tidemill.core.principal import Role

QUOTA_LIMIT_MAX = 1 << 60
OPEN_JOBS_REMEDY = "Wait until jobs end, or cancel some."
OPEN_ROWS_REMEDY = "Wait until rows are processed, or send fewer rows."
REQUEUED_ROWS_REMEDY = "Wait until rows are processed, or select fewer rows."
STORED_BYTES_REMEDY = "Delete jobs whose files are no longer needed."


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one user; None means no limit."""

    open_jobs: int | None = None
    open_rows: int | None = None
    stored_bytes: int | None = None

    @property
    def is_unlimited(self) -> bool:
        return self == UNLIMITED

    def override(self, limits: Mapping[str, int | None]) -> "Quota":
        """Return the quota with the limits of one user instead of the defaults."""
        return replace(self, **{name: limit for name, limit in limits.items() if name in QUOTA_NAMES})

    def check_job(self, used: "QuotaUse", *, file_bytes: int | None = None) -> None:
        """Raise QuotaExceeded if one more job does not fit; ``used`` does not include the job.

        ``file_bytes`` is the size of the file that the job stores, 0 if it is not known yet, or None without a file.
        """
        if self.open_jobs is not None and used.open_jobs >= self.open_jobs:
            raise QuotaExceeded("open_jobs", used.open_jobs + 1, self.open_jobs, OPEN_JOBS_REMEDY)
        self.check_rows(used.open_rows, 1)
        if file_bytes is not None:
            self.check_file(used.stored_bytes, file_bytes)

    def check_file(self, used: int, file_bytes: int) -> None:
        """Raise QuotaExceeded if the user stores ``used`` bytes and a file does not fit; 0: its size is not known."""
        if self.stored_bytes is None:
            return
        total = used + max(file_bytes, 1)
        if file_bytes > self.stored_bytes:
            raise InputExceedsQuota("stored_bytes", total, self.stored_bytes, "Send a smaller file.")
        if total > self.stored_bytes:
            raise StorageQuotaExceeded("stored_bytes", total, self.stored_bytes, STORED_BYTES_REMEDY)

    def check_requeued(self, used: "QuotaUse") -> None:
        """Raise QuotaExceeded if the user exceeds a limit; ``used`` includes the requeued rows and their open job."""
        if self.open_jobs is not None and used.open_jobs > self.open_jobs:
            raise QuotaExceeded("open_jobs", used.open_jobs, self.open_jobs, OPEN_JOBS_REMEDY)
        if self.open_rows is not None and used.open_rows > self.open_rows:
            raise QuotaExceeded("open_rows", used.open_rows, self.open_rows, REQUEUED_ROWS_REMEDY)

    def check_rows(self, used: int, more: int) -> None:
        """Raise QuotaExceeded if the user has ``used`` open rows and ``more`` rows do not fit."""
        if self.open_rows is None or used + more <= self.open_rows:
            return
        if more > self.open_rows:
            raise InputExceedsQuota("open_rows", used + more, self.open_rows, "Send fewer rows.")
        raise QuotaExceeded("open_rows", used + more, self.open_rows, OPEN_ROWS_REMEDY)


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The open jobs of a user, their open rows, and the bytes of the files that all jobs of the user store."""

    open_jobs: int = 0
    open_rows: int = 0
    stored_bytes: int = 0


UNLIMITED = Quota()
QUOTA_NAMES = tuple(asdict(UNLIMITED))


def resolve_quota(defaults: Quota, role: Role, overrides: Mapping[str, int | None]) -> Quota:
    """Return the limits of a user. Admins have none, except those that are set for them."""
    return (UNLIMITED if role is Role.ADMIN else defaults).override(overrides)
