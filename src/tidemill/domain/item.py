"""One input row, as a handler sees it."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(slots=True)  # not frozen: one is made per item
class Item:
    """One input row of a job. ``key`` is stable over attempts: give it to services that deduplicate."""

    job_id: UUID
    seq: int
    input: Any
    attempt: int = 1
    defect: dict[str, Any] | None = None
    throttles: int = 0  # refusals since the last attempt that counted
    misses: int = 0  # attempts that ended in NotFound(again=True)

    @property
    def key(self) -> str:
        return f"{self.job_id}:{self.seq}"

    @property
    def row(self) -> int:
        """The record's number in its source, from 1."""
        return self.seq + 1
