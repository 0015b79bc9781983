"""Items by a key, or by their numbers. Nothing is in order of keys: items are looked through, a window at a time.

How many items a selection means, before anything is done to them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.core.job import Job
from tidemill.core.row_ranges import SeqRange, select_seqs_between
from tidemill.core.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.job_lists import find_job_grid
from tidemill.store.job_records import get_job
from tidemill.store.statements import sql

SELECTION_WINDOW_ITEMS = 20_000


async def find_seqs_by_key(conn: Connection, job_id: UUID, key: str, lo: int, hi: int) -> list[int]:
    """The items from ``lo`` to before ``hi`` that have it, in order."""
    cursor = await conn.execute(sql("item/keyed"), {"job_id": job_id, "key": key, "lo": lo, "hi": hi})
    return [row[0] for row in await cursor.fetchall()]


async def find_selected_seqs(
    conn: Connection,
    job_id: UUID,
    lo: int,
    hi: int,
    *,
    key: str | None,
    seqs: Collection[int] | None,
    ranges: Sequence[SeqRange],
) -> list[int]:
    """From ``lo`` to before ``hi``, those that are named, if some are, and have the key, if one is said."""
    named = None if seqs is None else select_seqs_between(lo, hi, seqs, ranges)
    if named is not None and (key is None or not named):
        return named
    among = None if named is None else set(named)
    return [seq for seq in await find_seqs_by_key(conn, job_id, key or "", lo, hi) if among is None or seq in among]


COUNT_MAX_WINDOWS = 25  # that are looked through


@dataclass(frozen=True, slots=True)
class CountSelection:
    """Some statuses (none: all), causes, a key; all of these or those that are named; but some."""

    statuses: Sequence[ItemStatus] = ()
    codes: Sequence[str] | None = None
    seqs: Sequence[int] | None = None
    excluded_seqs: Sequence[int] = ()
    key: str | None = None
    reprocessable_only: bool = False  # only what can go round again
    ranges: Sequence[SeqRange] = ()  # beside the seqs

    @property
    def selects_by_seq_only(self) -> bool:
        """Whether it is by numbers alone."""
        return self.key is None and self.codes is None and not self.statuses and not self.reprocessable_only


async def count_items(conn: Connection, job_id: UUID, selection: CountSelection) -> tuple[int, bool]:
    """How many, and whether these are all: where items must be looked through, there may be more."""
    job = await get_job(conn, job_id)
    if selection.key is not None or selection.ranges:
        return await _count_in_windows(conn, job, selection)
    if selection.seqs is not None:
        return await _count_matching_seqs(
            conn, job_id, selection, set(selection.seqs) - set(selection.excluded_seqs)
        ), True
    n = await _count_from_tally(conn, job, selection)
    return n - await _count_matching_seqs(conn, job_id, selection, set(selection.excluded_seqs)), True


async def _count_from_tally(conn: Connection, job: Job, wanted: CountSelection) -> int:
    """By the sums of the job, which are exact and cheap."""
    if wanted.codes is not None:
        return sum(job.codes.get(code, 0) for code in set(wanted.codes))
    if not wanted.statuses:
        return job.counts.total
    n = sum(int(getattr(job.counts, status)) for status in set(wanted.statuses))
    if wanted.reprocessable_only and ItemStatus.DONE in wanted.statuses and (await find_job_grid(conn, job.id)).sparse:
        cursor = await conn.execute(sql("outcome/count_done"), {"job_id": job.id})
        n += int((await cursor.fetchone() or (0,))[0]) - job.counts.done
    return n


async def _count_in_windows(conn: Connection, job: Job, wanted: CountSelection) -> tuple[int, bool]:
    """Windows in which nothing is named cost nothing, and where nothing is asked of the rows they are not looked at."""
    n, looked, but = 0, 0, set(wanted.excluded_seqs)
    asked: dict[str, Any] = {"key": wanted.key, "seqs": wanted.seqs, "ranges": wanted.ranges}
    for lo in range(0, job.counts.total, SELECTION_WINDOW_ITEMS):
        found = await find_selected_seqs(conn, job.id, lo, lo + SELECTION_WINDOW_ITEMS, **asked)
        rows = {seq for seq in found if seq < job.counts.total} - but
        looked += wanted.key is not None or (bool(rows) and not wanted.selects_by_seq_only)
        if looked > COUNT_MAX_WINDOWS:
            return n, False
        n += len(rows) if wanted.selects_by_seq_only else await _count_matching_seqs(conn, job.id, wanted, rows)
    return n, True


async def _count_matching_seqs(conn: Connection, job_id: UUID, wanted: CountSelection, seqs: set[int]) -> int:
    if not seqs:
        return 0
    params = {"job_id": job_id, "seqs": sorted(seqs), "statuses": sorted(set(wanted.statuses)) or None}
    params |= {"codes": None if wanted.codes is None else list(wanted.codes), "again": wanted.reprocessable_only}
    cursor = await conn.execute(sql("item/count_among"), params)
    return int((await cursor.fetchone() or (0,))[0])
