"""Reads the unsettled items of a batch, and single items."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import set_json_loads

from tidemill.core.batch import BATCH_INPUT_MAX_BYTES, Lease
from tidemill.core.errors import UnknownItem
from tidemill.core.job import Item
from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.jsonb import decode_input_or_text, decode_json, decode_json_exact
from tidemill.store.statements import fetch_item_rows, fetch_rows, sql

SETTLED_STATUSES = (ItemStatus.DONE, ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.FAILED)


async def read_unsettled_items_fast(conn: Connection, lease: Lease, *, exact: bool = False) -> list[Item]:
    """As ``read_unsettled_items``, but read a range without outcomes as one value, which is faster than single rows."""
    if not lease.is_untouched_range:
        return await read_unsettled_items(conn, lease, exact=exact)
    params = {"job_id": lease.job_id, "lo": lease.lo, "hi": lease.hi}
    cursor = await conn.execute(sql("item/read_together"), params)
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  an aggregate
    try:
        inputs = (decode_json_exact if exact else decode_json)(row[0])
    except msgspec.DecodeError:  # PostgreSQL accepts JSON that msgspec rejects: read the items one by one
        return await read_unsettled_items(conn, lease, exact=exact)
    if len(inputs) != lease.open:
        return await read_unsettled_items(conn, lease, exact=exact)
    items = list(map(Item, repeat(lease.job_id), range(lease.lo, lease.hi), inputs))
    for seq, defect in (row[1] or {}).items():
        index = int(seq) - lease.lo
        items[index] = items[index]._replace(defect=defect)
    return items


async def read_unsettled_items(conn: Connection, lease: Lease, *, exact: bool = False) -> list[Item]:
    """Return the items of a leased batch to run now, in order of seq. With ``exact``, fractions are Decimal."""
    params: dict[str, Any] = {"job_id": lease.job_id, "lo": lease.lo, "hi": lease.hi}
    if lease.seqs is not None:
        name = "item/read_list"
        params = {"job_id": lease.job_id, "seqs": list(lease.seqs), "bytes": BATCH_INPUT_MAX_BYTES}
    else:
        name = "item/read_virgin" if lease.is_untouched_range else "item/read_unsettled"
    cursor = conn.cursor(binary=True)
    if exact:
        set_json_loads(decode_json_exact, cursor)
    await cursor.execute(sql(name), params)
    job_id = lease.job_id
    return [Item(job_id, *row) for row in await cursor.fetchall()]


async def read_submitted_inputs(conn: Connection, job_id: UUID, lo: int, hi: int) -> list[bytes]:
    """Return the inputs of items ``lo`` to ``hi`` (exclusive) of a job, as stored."""
    cursor = conn.cursor(binary=True)
    await cursor.execute(sql("item/inputs"), {"job_id": job_id, "lo": lo, "hi": hi})
    return [row[0] for row in await cursor.fetchall()]


async def read_item_details(conn: Connection, job_id: UUID, seq: int) -> dict[str, Any]:
    """Return all details of an item: ``input`` is its newest fix, ``original`` the submitted input."""
    key = {"job_id": job_id, "seq": seq}
    item = await read_item(conn, job_id, seq)
    item["original"] = item["input"]
    item["fixes"] = await fetch_rows(conn, sql("item_fix/list"), key)
    for fix in item["fixes"]:
        item["input"] = fix.pop("input")
    batches = await fetch_rows(conn, sql("batch/get"), {"batch_id": item.pop("batch_id")})
    item["batch"] = batches[0] if batches else None
    waits = item["status"] == ItemStatus.RETRY_WAIT and batches
    item["due_at"] = batches[0]["not_before"] if waits else None
    if item["error"] is not None:
        item["error"] = {"type": None, "traceback": None} | item["error"]
    add_outcome_details(item, item.pop("details"))
    return item


def add_outcome_details(item: dict[str, Any], details: dict[str, Any] | None) -> None:
    """Add the attempts of an item and the exception of its last attempt, from the details of its outcome."""
    details = details or {}
    attempts = details.get("attempts", [])
    if not attempts and item["attempts"] and item["status"] in SETTLED_STATUSES:  # settled by its first attempt
        code = None if item["error"] is None else item["error"].get("code")
        attempts = [
            {
                "attempt": item["attempts"],
                "at": item["updated_at"],
                "duration_ms": item["duration_ms"],
                "status": item["status"],
                "code": code,
            }
        ]
    item["attempt_history"] = [{"worker": None, "code": None} | attempt for attempt in attempts]
    if item["error"] is not None and "traceback" in details:
        item["error"]["traceback"] = details["traceback"]


async def read_outcome_details(conn: Connection, job_id: UUID, seqs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the details of the outcomes that have some, by seq."""
    cursor = await conn.execute(sql("outcome/details"), {"job_id": job_id, "seqs": sorted(seqs)})
    return dict(await cursor.fetchall())


async def read_item(conn: Connection, job_id: UUID, seq: int) -> dict[str, Any]:
    """Return an item with its derived status. Raises UnknownItem if it does not exist."""
    rows = (
        await fetch_item_rows(conn, sql("item/get"), {"job_id": job_id, "seq": seq})
        if 0 <= seq <= BIGINT_SAFE_MAX
        else []
    )
    if not rows:
        raise UnknownItem(f"Job {job_id} has no item {seq}")
    return rows[0]


async def read_small_inputs(conn: Connection, job_id: UUID, seqs: Sequence[int]) -> dict[int, Any]:
    """Return the inputs of items that are small enough for a grid to show them."""
    cursor = await conn.execute(sql("item/shown_inputs"), {"job_id": job_id, "seqs": sorted(seqs)})
    return {seq: decode_input_or_text(text) for seq, text in await cursor.fetchall() if text is not None}
