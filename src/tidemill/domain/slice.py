"""What one time-slice of a job came to."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Slice:
    """So much was settled by the slice itself; what workers did meanwhile is not in it."""

    settled: int
    failed: int  # of the settled
    retried: int  # will be tried again
    seconds: float
    is_drained: bool  # nothing of the job is open: there is no need for another slice
    next_due_at: datetime | None  # of what waits, the first; None when nothing waits, or the job is not to run
    due_in: float | None  # the same in seconds from now, 0 when it is due
    child_died: bool = False  # the process died in it; what was finished is saved, the rest goes back
