"""Stores fixed inputs of failed items."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tidemill.core.errors import Conflict, UnknownJob
from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.status import ItemStatus
from tidemill.store import job_records
from tidemill.store.database import Connection
from tidemill.store.item_records import read_item
from tidemill.store.job_records import LockedJob
from tidemill.store.jsonb import decode_input_or_text
from tidemill.store.reprocess_items import requeue_failed_items
from tidemill.store.statements import sql

FIXABLE_STATUSES = (ItemStatus.FAILED, ItemStatus.NOT_FOUND)


async def add_item_fix(conn: Connection, job_id: UUID, seq: int, value: bytes, *, by: int) -> int:
    """Add a revision of an item's input and return its number.

    It locks the outcome: a concurrent reprocess waits for the lock and requeues the item with the new input. Raises
    Conflict if the item is not failed or not_found, for example because it was already requeued.
    """
    await _share_lock_unpurged_job(conn, job_id)
    if await _lock_outcome(conn, job_id, seq) not in FIXABLE_STATUSES:
        status = (await read_item(conn, job_id, seq))["status"]
        raise Conflict(f"Cannot fix item {seq}: its status is {status}. Only failed and not_found items can be fixed.")
    params = {"job_id": job_id, "seq": seq, "input": value.decode(), "by": by}
    cursor = await conn.execute(sql("item_fix/add"), params)
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    rev = int(row[0])
    await job_records.add_activity(conn, job_id, by, "fix", seq=seq, rev=rev)
    return rev


async def fix_and_requeue_failed_items(
    conn: Connection, job: LockedJob, inputs: Mapping[int, bytes], *, by: int, operation_id: UUID | None = None
) -> list[int]:
    """Fix and requeue at most SEQ_LIST_MAX items under the lock of their job. Return the items that had failed.

    A repair, with its ``operation_id``, leaves dismissed items as they are.
    """
    taken = await requeue_failed_items(conn, job, sorted(inputs), with_dismissed=operation_id is None)
    values = [inputs[seq].decode() for seq in taken]
    params = {"job_id": job.id, "seqs": taken, "inputs": values, "by": by, "operation_id": operation_id}
    await conn.execute(sql("item_fix/add_many"), params)
    return taken


async def read_current_inputs(conn: Connection, job_id: UUID, seqs: Sequence[int]) -> dict[int, Any]:
    """Return the current inputs of items: the newest fix, or the submitted input."""
    cursor = await conn.execute(sql("item/current"), {"job_id": job_id, "seqs": sorted(seqs)})
    return {seq: decode_input_or_text(text, exact=True) for seq, text in await cursor.fetchall()}


async def read_latest_fixes(conn: Connection, job_id: UUID, lo: int, hi: int) -> dict[int, bytes]:
    """Return the newest fixes of items ``lo`` to ``hi`` (exclusive), as stored."""
    cursor = conn.cursor(binary=True)
    await cursor.execute(sql("item_fix/newest"), {"job_id": job_id, "lo": lo, "hi": hi})
    return dict(await cursor.fetchall())


async def copy_item_fixes(conn: Connection, from_job: UUID, to_job: UUID) -> int:
    """Copy the newest fixes to another job of the same file. Return their number; UnknownJob or Conflict if deleted."""
    await _share_lock_unpurged_job(conn, from_job)
    cursor = await conn.execute(sql("item_fix/carry"), {"from_job": from_job, "to_job": to_job})
    return cursor.rowcount


async def _share_lock_unpurged_job(conn: Connection, job_id: UUID) -> None:
    """Keep the job and its rows until the transaction ends. Raise UnknownJob or Conflict if they were removed."""
    cursor = await conn.execute(sql("job/share"), {"job_id": job_id})
    job = await cursor.fetchone()
    if job is None:
        raise UnknownJob(f'Unknown job "{job_id}"')
    if job[0] is not None:
        raise Conflict("Cannot fix items: the job's rows were purged")


async def _lock_outcome(conn: Connection, job_id: UUID, seq: int) -> str | None:
    """Lock the outcome of an item and return its stored status, or None without an outcome."""
    if not 0 <= seq <= BIGINT_SAFE_MAX:
        return None
    cursor = await conn.execute(sql("outcome/lock"), {"job_id": job_id, "seq": seq})
    row = await cursor.fetchone()
    return None if row is None else row[0]
