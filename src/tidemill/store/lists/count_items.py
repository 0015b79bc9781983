"""How many items a selection means, before anything is done to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.domain.job import Job
from tidemill.domain.numbers import Range
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.jobs import get
from tidemill.store.keys import WINDOW, chosen
from tidemill.store.lists.grid import find_grid
from tidemill.store.statements import sql

WINDOWS = 25  # that are looked through


@dataclass(frozen=True, slots=True)
class Selected:
    """Some statuses (none: all), causes, a key; all of these or those that are named; but some."""

    statuses: Sequence[ItemStatus] = ()
    codes: Sequence[str] | None = None
    seqs: Sequence[int] | None = None
    but: Sequence[int] = ()
    key: str | None = None
    again: bool = False  # only what can go round again
    ranges: Sequence[Range] = ()  # beside the seqs

    @property
    def is_plain(self) -> bool:
        """Whether it is by numbers alone."""
        return self.key is None and self.codes is None and not self.statuses and not self.again


async def count_items(conn: Connection, job_id: UUID, wanted: Selected) -> tuple[int, bool]:
    """How many, and whether these are all: where items must be looked through, there may be more."""
    job = await get(conn, job_id)
    if wanted.key is not None or wanted.ranges:
        return await _count_in_windows(conn, job, wanted)
    if wanted.seqs is not None:
        return await _count_among(conn, job_id, wanted, set(wanted.seqs) - set(wanted.but)), True
    n = await _count_all(conn, job, wanted)
    return n - await _count_among(conn, job_id, wanted, set(wanted.but)), True


async def _count_all(conn: Connection, job: Job, wanted: Selected) -> int:
    """By the sums of the job, which are exact and cheap."""
    if wanted.codes is not None:
        return sum(job.codes.get(code, 0) for code in set(wanted.codes))
    if not wanted.statuses:
        return job.counts.total
    n = sum(int(getattr(job.counts, status)) for status in set(wanted.statuses))
    if wanted.again and ItemStatus.DONE in wanted.statuses and (await find_grid(conn, job.id)).sparse:
        cursor = await conn.execute(sql("outcome/count_done"), {"job_id": job.id})
        n += int((await cursor.fetchone() or (0,))[0]) - job.counts.done
    return n


async def _count_in_windows(conn: Connection, job: Job, wanted: Selected) -> tuple[int, bool]:
    """Windows in which nothing is named cost nothing, and where nothing is asked of the rows they are not looked at."""
    n, looked, but = 0, 0, set(wanted.but)
    asked: dict[str, Any] = {"key": wanted.key, "seqs": wanted.seqs, "ranges": wanted.ranges}
    for lo in range(0, job.counts.total, WINDOW):
        found = await chosen(conn, job.id, lo, lo + WINDOW, **asked)
        rows = {seq for seq in found if seq < job.counts.total} - but
        looked += wanted.key is not None or (bool(rows) and not wanted.is_plain)
        if looked > WINDOWS:
            return n, False
        n += len(rows) if wanted.is_plain else await _count_among(conn, job.id, wanted, rows)
    return n, True


async def _count_among(conn: Connection, job_id: UUID, wanted: Selected, seqs: set[int]) -> int:
    if not seqs:
        return 0
    params = {"job_id": job_id, "seqs": sorted(seqs), "statuses": sorted(set(wanted.statuses)) or None}
    params |= {"codes": None if wanted.codes is None else list(wanted.codes), "again": wanted.again}
    cursor = await conn.execute(sql("item/count_among"), params)
    return int((await cursor.fetchone() or (0,))[0])
