"""Sending settled items round again, with the counts taken back in the same transaction."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from tidemill.domain.batch import LIST_MAX
from tidemill.domain.distribution import KIND as DISTRIBUTE
from tidemill.domain.errors import Conflict
from tidemill.domain.numbers import Range
from tidemill.domain.page import MAX_NUMBER
from tidemill.domain.status import Intent, ItemStatus
from tidemill.store.database import Connection
from tidemill.store.jobs import get, lock
from tidemill.store.keys import WINDOW, chosen
from tidemill.store.revive import revive
from tidemill.store.statements import sql

WINDOWS = 25  # that one step looks through
_TALLIES = ("done", "not_found", "skipped", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which items go round again. Items without an outcome are not among them, save those of cancelled ranges."""

    statuses: Sequence[ItemStatus] = (ItemStatus.FAILED, ItemStatus.NOT_FOUND)
    seqs: Sequence[int] | None = None
    codes: Sequence[str] | None = None
    reset_attempts: bool = True
    max_attempts: int = 0  # without reset_attempts: only items that have some left
    but: Sequence[int] = ()
    since: datetime | None = None  # settled from here on
    until: datetime | None = None  # and before
    key: str | None = None  # a field of the input; see tidemill.has_key
    ranges: Sequence[Range] = ()  # beside the seqs, of which there are none then, or some

    @property
    def is_narrow(self) -> bool:
        """Whether it asks for more than statuses."""
        asked = (self.seqs, self.codes, self.since, self.until, self.key)
        return bool(self.but) or any(part is not None for part in asked)

    @property
    def takes_ranges(self) -> bool:
        """Whether cancelled ranges are meant too, which have no outcomes to be asked for a cause or a time."""
        asked = (self.codes, self.since, self.until)
        return ItemStatus.CANCELLED in self.statuses and all(part is None for part in asked)

    @property
    def takes_rest(self) -> bool:
        """Whether all that was cancelled is meant: also what was never read of the source."""
        return ItemStatus.CANCELLED in self.statuses and not self.is_narrow


async def reprocess(
    conn: Connection, job_id: UUID, choice: Choice, *, after_seq: int = -1, most: int = 50_000, goes_on: bool = False
) -> tuple[int, int | None]:
    """Take chosen items back and open the job again: how many, and after which seq to go on, if there may be more.

    ``goes_on`` when a step before has opened the job: Conflict, if it was ended since.
    """
    job = await begin(conn, job_id, goes_on=goes_on)
    if job["kind"] == DISTRIBUTE:
        choice = _without_files(choice)
    take = _take if choice.key is None and not choice.ranges else _take_in_windows
    taken, last = await take(conn, job, choice, after_seq, most)
    if taken or (choice.takes_rest and await _has_rest(conn, job_id)):
        await reopen(conn, job_id, rest=choice.takes_rest)
    return taken, last


def _without_files(choice: Choice) -> Choice:
    """A file that was made is used again by other jobs, and known by its hash: at its place there is never another."""
    statuses = [status for status in choice.statuses if status is not ItemStatus.DONE]
    if not statuses:
        raise Conflict("files that were made stay as they are: ask for another distribution to have them made again")
    return replace(choice, statuses=statuses)


async def _take(
    conn: Connection, job: dict[str, Any], choice: Choice, after_seq: int, most: int
) -> tuple[int, int | None]:
    """Those with an outcome, then ranges: what came out of a range may have failed before another step looks at it."""
    taken = 0
    last: int | None = after_seq
    while taken < most and last is not None:
        n, last = await _take_chunk(conn, job, choice, last)
        taken += n
    if last is None and choice.takes_ranges:
        taken += await revive(conn, job, choice.seqs, choice.but)
    return taken, last


async def _take_in_windows(
    conn: Connection, job: dict[str, Any], choice: Choice, after_seq: int, most: int
) -> tuple[int, int | None]:
    """Window by window, each whole: so many windows, or about so many items, at a time."""
    total = (await get(conn, job["id"])).counts.total
    wanted: dict[str, Any] = {"key": choice.key, "seqs": choice.seqs, "ranges": choice.ranges}
    taken, lo = 0, after_seq + 1
    for _ in range(WINDOWS):
        if lo >= total or taken >= most:
            break
        seqs = await chosen(conn, job["id"], lo, lo + WINDOW, **wanted)
        if seqs:
            taken += (await _take(conn, job, replace(choice, key=None, seqs=seqs, ranges=()), -1, MAX_NUMBER))[0]
        lo += WINDOW
    return taken, lo - 1 if lo < total else None


async def begin(conn: Connection, job_id: UUID, *, goes_on: bool = False) -> dict[str, Any]:
    """The lock of a job whose items go round again; Conflict if they are gone, or somebody has just ended it."""
    job = await lock(conn, job_id)
    if job["purged_at"] is not None:
        raise Conflict("the job's rows were purged; it cannot be reprocessed")
    if job["intent"] in (Intent.CANCEL, Intent.FAIL) and (goes_on or job["closed_as"] is None):
        known = await get(conn, job_id)
        when = "meanwhile" if goes_on else "just now; wait until it is closed"
        raise Conflict(f"job {known.key} is {known.status}: somebody, or its policy, has ended it {when}")
    # Fold first: the counts that are taken back are then all in one row, under our lock.
    await conn.execute(sql("tally/fold"), {"job_id": job_id})
    return job


async def reopen(conn: Connection, job_id: UUID, *, rest: bool = False) -> None:
    """Some of its items were taken back; with ``rest``, its source is read on where it was left."""
    forgiven = (await get(conn, job_id)).counts.failed
    await conn.execute(sql("job/reopen"), {"job_id": job_id, "forgiven": forgiven, "rest": rest})
    await conn.execute(sql("batch/wait_for_source"), {"job_id": job_id})
    await conn.execute(sql("outbox/announce"), {"job_id": job_id})


async def _has_rest(conn: Connection, job_id: UUID) -> bool:
    cursor = await conn.execute(sql("ingest/has_rest"), {"job_id": job_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def take_failed(conn: Connection, job: dict[str, Any], seqs: Sequence[int]) -> list[int]:
    """Send those of at most LIST_MAX items round again that have failed; which."""
    taken = await _take_back(conn, job, Choice((ItemStatus.FAILED,), seqs), -1)
    return await _send_round(conn, job, taken) if taken else []


async def _take_chunk(conn: Connection, job: dict[str, Any], choice: Choice, after_seq: int) -> tuple[int, int | None]:
    taken = await _take_back(conn, job, choice, after_seq)
    if not taken:
        return 0, None
    seqs = await _send_round(conn, job, taken)
    return len(seqs), seqs[-1] if len(seqs) == LIST_MAX else None


async def _take_back(conn: Connection, job: dict[str, Any], choice: Choice, after_seq: int) -> list[tuple[Any, ...]]:
    """Items, what they were, and their error codes."""
    params = {
        "job_id": job["id"],
        "statuses": [status.value for status in choice.statuses],
        "seqs": None if choice.seqs is None else sorted(choice.seqs),
        "but": sorted(choice.but),
        "codes": None if choice.codes is None else list(choice.codes),
        "since": choice.since,
        "until": choice.until,
        "reset_attempts": choice.reset_attempts,
        "max_attempts": choice.max_attempts,
        "after_seq": after_seq,
        "limit": LIST_MAX,
    }
    cursor = await conn.execute(sql("outcome/take_back"), params)
    return await cursor.fetchall()


async def _send_round(conn: Connection, job: dict[str, Any], taken: list[tuple[Any, ...]]) -> list[int]:
    """A list batch of them, and the counts that they were in; their seqs, in order."""
    job_id = job["id"]
    was = Counter(status for _, status, _ in taken)
    codes = Counter(code for _, status, code in taken if status == ItemStatus.FAILED and code)
    deltas: dict[str, Any] = {name: was[name] for name in _TALLIES}
    deltas["codes"] = Jsonb({code: -n for code, n in codes.items()})
    await conn.execute(sql("tally/adjust"), {"job_id": job_id} | deltas)
    seqs = sorted(seq for seq, _, _ in taken)
    place = {
        "job_id": job_id,
        "owner_id": job["owner_id"],
        "kind": job["kind"],
        "lo": seqs[0],
        "hi": seqs[-1] + 1,
    }
    await conn.execute(
        sql("batch/add_retry_list"), place | {"seqs": seqs, "open": len(seqs), "delay": 0, "retrying": False}
    )
    return seqs
