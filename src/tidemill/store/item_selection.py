"""Selects items of a job by key, number or status, and counts a selection before it is used."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from tidemill.core.job import Job
from tidemill.core.row_ranges import SeqRange, select_seqs_between
from tidemill.core.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.job_records import get_job, read_item_list_scope
from tidemill.store.statements import sql

SELECTION_WINDOW_ITEMS = 20_000


async def find_seqs_by_key(conn: Connection, job_id: UUID, key: str, lo: int, hi: int) -> list[int]:
    """Return the items from ``lo`` to ``hi`` (exclusive) that have the key, in order."""
    cursor = await conn.execute(sql("item/keyed"), {"job_id": job_id, "key": key, "lo": lo, "hi": hi})
    return [row[0] for row in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class ItemSelection:
    """Items of a job by status, error code, number and key. An item is selected if it meets all that are given."""

    statuses: Sequence[ItemStatus] = ()
    seqs: Collection[int] | None = None
    codes: Sequence[str] | None = None
    excluded_seqs: Collection[int] = ()
    key: str | None = None  # a field of the input; see tidemill.has_key
    ranges: Sequence[SeqRange] = ()  # in addition to the seqs, which are not None then


async def find_selected_seqs(conn: Connection, job_id: UUID, lo: int, hi: int, selection: ItemSelection) -> list[int]:
    """Return the items from ``lo`` to ``hi`` (exclusive) that match the numbers and the key, with any status."""
    key, numbered = selection.key, None
    if selection.seqs is not None:
        numbered = select_seqs_between(lo, hi, selection.seqs, selection.ranges)
        if key is None or not numbered:
            return numbered
    among = None if numbered is None else set(numbered)
    return [seq for seq in await find_seqs_by_key(conn, job_id, key or "", lo, hi) if among is None or seq in among]


COUNT_MAX_WINDOWS = 25  # windows that one count may scan
COUNT_MAX_FAILURES = COUNT_MAX_WINDOWS * SELECTION_WINDOW_ITEMS  # that one count may scan


@dataclass(frozen=True, slots=True)
class CountSelection(ItemSelection):
    """Items to count. Without statuses: items of any status."""

    reprocessable_only: bool = False
    excludes_permanent_failures: bool = False  # as a reprocess without a reset of the attempts

    @property
    def selects_by_seq_only(self) -> bool:
        """Whether the selection uses only item numbers."""
        return self.key is None and self.codes is None and not self.statuses and not self.reprocessable_only


async def count_items(conn: Connection, job_id: UUID, selection: CountSelection) -> tuple[int, bool]:
    """Return the number of selected items, and whether it is exact. A count that must scan items may stop early."""
    job = await get_job(conn, job_id)
    if selection.key is not None or selection.ranges:
        return await _count_in_windows(conn, job, selection)
    if selection.seqs is not None:
        return await _count_matching_seqs(
            conn, job_id, selection, set(selection.seqs) - set(selection.excluded_seqs)
        ), True
    if selection.excludes_permanent_failures and ItemStatus.FAILED in selection.statuses:
        return await _count_without_permanent_failures(conn, job, selection)
    return await _count_all_but_excluded(conn, job, selection), True


async def _count_without_permanent_failures(conn: Connection, job: Job, wanted: CountSelection) -> tuple[int, bool]:
    """Count failures from their outcomes, with a limit, and the other items from the job's counters."""
    params = {"job_id": job.id, "but": sorted(wanted.excluded_seqs), "limit": COUNT_MAX_FAILURES}
    params |= {"codes": None if wanted.codes is None else list(wanted.codes)}
    cursor = await conn.execute(sql("outcome/count_retryable"), params)
    scanned, n = await cursor.fetchone() or (0, 0)
    others = [status for status in wanted.statuses if status is not ItemStatus.FAILED]
    if others and wanted.codes is None:
        n += await _count_all_but_excluded(conn, job, replace(wanted, statuses=others))
    return n, scanned < COUNT_MAX_FAILURES


async def _count_all_but_excluded(conn: Connection, job: Job, wanted: CountSelection) -> int:
    n = await _count_from_tally(conn, job, wanted)
    return n - await _count_matching_seqs(conn, job.id, wanted, set(wanted.excluded_seqs))


async def _count_from_tally(conn: Connection, job: Job, wanted: CountSelection) -> int:
    """Count from the job's counters, which are exact and cheap."""
    if wanted.codes is not None:  # only failures have codes
        has_failures = not wanted.statuses or ItemStatus.FAILED in wanted.statuses
        return sum(job.codes.get(code, 0) for code in set(wanted.codes)) if has_failures else 0
    if not wanted.statuses:
        return job.counts.total
    n = sum(int(getattr(job.counts, status)) for status in set(wanted.statuses))
    if (
        wanted.reprocessable_only
        and ItemStatus.DONE in wanted.statuses
        and (await read_item_list_scope(conn, job.id)).sparse
    ):
        cursor = await conn.execute(sql("outcome/count_done"), {"job_id": job.id})
        n += int((await cursor.fetchone() or (0,))[0]) - job.counts.done
    return n


async def _count_in_windows(conn: Connection, job: Job, wanted: CountSelection) -> tuple[int, bool]:
    """Count window by window. Windows without a selected number, or without a filter on rows, need no scan."""
    n, scanned, excluded = 0, 0, set(wanted.excluded_seqs)
    for lo in range(0, job.counts.total, SELECTION_WINDOW_ITEMS):
        selected = await find_selected_seqs(conn, job.id, lo, lo + SELECTION_WINDOW_ITEMS, wanted)
        rows = {seq for seq in selected if seq < job.counts.total} - excluded
        scanned += wanted.key is not None or (bool(rows) and not wanted.selects_by_seq_only)
        if scanned > COUNT_MAX_WINDOWS:
            return n, False
        n += len(rows) if wanted.selects_by_seq_only else await _count_matching_seqs(conn, job.id, wanted, rows)
    return n, True


async def _count_matching_seqs(conn: Connection, job_id: UUID, wanted: CountSelection, seqs: set[int]) -> int:
    if not seqs:
        return 0
    params = {"job_id": job_id, "seqs": sorted(seqs), "statuses": sorted(set(wanted.statuses)) or None}
    params |= {"codes": None if wanted.codes is None else list(wanted.codes), "again": wanted.reprocessable_only}
    params |= {"retryable_only": wanted.excludes_permanent_failures}
    cursor = await conn.execute(sql("item/count_among"), params)
    return int((await cursor.fetchone() or (0,))[0])
