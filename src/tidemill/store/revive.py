"""Items of cancelled ranges, which have no outcome, go round again: whole ranges as such, single items in lists."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from tidemill.domain.batch import LIST_MAX
from tidemill.domain.page import MAX_NUMBER
from tidemill.store.database import Connection
from tidemill.store.lists.fetch import Row, rows
from tidemill.store.statements import sql


async def revive(conn: Connection, job: dict[str, Any], seqs: Sequence[int] | None, but: Sequence[int]) -> int:
    """All of them but some, or those that are named; under the lock of the job. How many."""
    job_id = job["id"]
    await conn.execute(sql("batch/unfold_cancelled"), {"job_id": job_id})
    if seqs is not None:
        stays = set(but)
        return await _revive_named(conn, job, sorted({seq for seq in seqs if seq not in stays}))
    cursor = await conn.execute(sql("batch/revive_cancelled"), {"job_id": job_id, "but": sorted(but)})
    taken = sum(int(row[0]) for row in await cursor.fetchall())
    return taken + await _revive_rest(conn, job, set(but)) if but else taken


async def _revive_named(conn: Connection, job: dict[str, Any], wanted: list[int]) -> int:
    if not wanted:
        return 0
    taken = 0
    for held in await _ranges(conn, job, wanted[0], wanted[-1]):
        inside = wanted[bisect_left(wanted, held["lo"]) : bisect_left(wanted, held["hi"])]
        taken += await _take_out(conn, job, held, inside)
    return taken


async def _revive_rest(conn: Connection, job: dict[str, Any], stays: set[int]) -> int:
    """Of the ranges that have an item which is to stay, all the others."""
    taken = 0
    for held in await _ranges(conn, job, 0, MAX_NUMBER):
        wanted = [seq for seq in range(held["lo"], held["hi"]) if seq not in stays]
        taken += await _take_out(conn, job, held, wanted)
    return taken


async def _ranges(conn: Connection, job: dict[str, Any], first: int, last: int) -> list[Row]:
    return await rows(conn, "batch/cancelled_ranges", {"job_id": job["id"], "first": first, "last": last})


async def _take_out(conn: Connection, job: dict[str, Any], held: Row, wanted: Sequence[int]) -> int:
    """Into lists, with an outcome each that says they are open: a range knows only items that have none."""
    taken = 0
    who = {"job_id": job["id"], "owner_id": job["owner_id"]}
    for begin in range(0, len(wanted), LIST_MAX):
        part = {"seqs": wanted[begin : begin + LIST_MAX], "status": "pending", "lo": held["lo"], "hi": held["hi"]}
        cursor = await conn.execute(sql("outcome/add_plain"), who | part)
        seqs = sorted(row[0] for row in await cursor.fetchall())
        if seqs:
            place = {"kind": job["kind"], "lo": seqs[0], "hi": seqs[-1] + 1, "seqs": seqs, "open": len(seqs)}
            await conn.execute(sql("batch/add_retry_list"), who | place | {"delay": 0, "retrying": False})
            await conn.execute(sql("batch/take_out_cancelled"), {"batch_id": held["id"], "n": len(seqs)})
            taken += len(seqs)
    return taken
