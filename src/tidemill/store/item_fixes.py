"""Correcting the input of an item that did not make it."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tidemill.core.errors import Conflict, UnknownJob
from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.status import ItemStatus
from tidemill.store import job_records
from tidemill.store.database import Connection
from tidemill.store.item_records import fetch_item
from tidemill.store.job_records import LockedJob
from tidemill.store.jsonb import decode_input_or_text
from tidemill.store.reprocess_items import requeue_failed_items
from tidemill.store.statements import sql

FIXABLE_STATUSES = (ItemStatus.FAILED, ItemStatus.NOT_FOUND)


async def add_item_fix(conn: Connection, job_id: UUID, seq: int, value: bytes, *, by: int) -> int:
    """Append a revision of an item's input; its number.

    It locks the outcome. A later reprocess waits for the lock and requeues the item with this input. An earlier one
    has made the item open: Conflict.
    """
    await _lock_job_shared(conn, job_id)
    if await _lock_outcome(conn, job_id, seq) not in FIXABLE_STATUSES:
        status = (await fetch_item(conn, job_id, seq))["status"]
        raise Conflict(f"item {seq} is {status}: only failed and not_found items can be corrected")
    params = {"job_id": job_id, "seq": seq, "input": value.decode(), "by": by}
    cursor = await conn.execute(sql("item_fix/add"), params)
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    rev = int(row[0])
    await job_records.add_activity(conn, job_id, by, "fix", seq=seq, rev=rev)
    return rev


async def fix_failed_items(conn: Connection, job: LockedJob, inputs: Mapping[int, bytes], *, by: int) -> list[int]:
    """Correct at most LIST_MAX items and send them round again, under the lock of their job; those that had failed."""
    taken = await requeue_failed_items(conn, job, sorted(inputs))
    params = {"job_id": job.id, "seqs": taken, "inputs": [inputs[seq].decode() for seq in taken], "by": by}
    await conn.execute(sql("item_fix/add_many"), params)
    return taken


async def read_current_inputs(conn: Connection, job_id: UUID, seqs: Sequence[int]) -> dict[int, Any]:
    """What some items hold now."""
    cursor = await conn.execute(sql("item/current"), {"job_id": job_id, "seqs": sorted(seqs)})
    return {seq: decode_input_or_text(text, exact=True) for seq, text in await cursor.fetchall()}


async def read_latest_fixes(conn: Connection, job_id: UUID, lo: int, hi: int) -> dict[int, bytes]:
    """The corrections of items from ``lo`` to before ``hi``, as they are stored."""
    cursor = conn.cursor(binary=True)
    await cursor.execute(sql("item_fix/newest"), {"job_id": job_id, "lo": lo, "hi": hi})
    return dict(await cursor.fetchall())


async def copy_item_fixes(conn: Connection, from_job: UUID, to_job: UUID) -> int:
    """Give a job that is made of the same file the corrections of another, which must still be there; how many."""
    await _lock_job_shared(conn, from_job)
    cursor = await conn.execute(sql("item_fix/carry"), {"from_job": from_job, "to_job": to_job})
    return cursor.rowcount


async def _lock_job_shared(conn: Connection, job_id: UUID) -> None:
    """Keep the job and its rows until the transaction ends; UnknownJob or Conflict if they were removed."""
    cursor = await conn.execute(sql("job/share"), {"job_id": job_id})
    job = await cursor.fetchone()
    if job is None:
        raise UnknownJob(f"there is no job {job_id}")
    if job[0] is not None:
        raise Conflict("the job's rows were purged; they cannot be corrected")


async def _lock_outcome(conn: Connection, job_id: UUID, seq: int) -> str | None:
    """The stored status of an item that has an outcome."""
    if not 0 <= seq <= BIGINT_SAFE_MAX:
        return None
    cursor = await conn.execute(sql("outcome/lock"), {"job_id": job_id, "seq": seq})
    row = await cursor.fetchone()
    return None if row is None else row[0]
