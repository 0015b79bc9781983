"""How many items a selection means, before anything is done to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from tidemill.domain.job import Job
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.jobs import get
from tidemill.store.keys import WINDOW, keyed
from tidemill.store.lists.grid import find_grid
from tidemill.store.statements import sql

WINDOWS = 25  # that are looked through for a key


@dataclass(frozen=True, slots=True)
class Selected:
    """Some statuses (none: all), causes, a key; all of these or those that are named; but some."""

    statuses: Sequence[ItemStatus] = ()
    codes: Sequence[str] | None = None
    seqs: Sequence[int] | None = None
    but: Sequence[int] = ()
    key: str | None = None
    again: bool = False  # only what can go round again


async def count_items(conn: Connection, job_id: UUID, wanted: Selected) -> tuple[int, bool]:
    """How many, and whether these are all: where items must be looked through for a key, there may be more."""
    job = await get(conn, job_id)
    if wanted.key is not None:
        return await _count_keyed(conn, job, wanted)
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


async def _count_keyed(conn: Connection, job: Job, wanted: Selected) -> tuple[int, bool]:
    n, lo, but = 0, 0, set(wanted.but)
    named = None if wanted.seqs is None else set(wanted.seqs)
    for _ in range(WINDOWS):
        if lo >= job.counts.total:
            return n, True
        found = set(await keyed(conn, job.id, wanted.key or "", lo, lo + WINDOW)) - but
        n += await _count_among(conn, job.id, wanted, found if named is None else found & named)
        lo += WINDOW
    return n, lo >= job.counts.total


async def _count_among(conn: Connection, job_id: UUID, wanted: Selected, seqs: set[int]) -> int:
    if not seqs:
        return 0
    params = {"job_id": job_id, "seqs": sorted(seqs), "statuses": sorted(set(wanted.statuses)) or None}
    params |= {"codes": None if wanted.codes is None else list(wanted.codes), "again": wanted.again}
    cursor = await conn.execute(sql("item/count_among"), params)
    return int((await cursor.fetchone() or (0,))[0])
