"""One item, whole."""

from typing import Any
from uuid import UUID

from tidemill.domain.errors import UnknownItem
from tidemill.domain.page import MAX_NUMBER
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection, one_snapshot
from tidemill.store.lists.fetch import item_rows, rows


@one_snapshot
async def get_item(conn: Connection, job_id: UUID, seq: int) -> dict[str, Any]:
    """Every fact of an item: ``input`` is its newest correction, ``original`` what was submitted."""
    key = {"job_id": job_id, "seq": seq}
    item = await look_up(conn, job_id, seq)
    item["original"] = item["input"]
    item["fixes"] = await rows(conn, "item_fix/list", key)
    for fix in item["fixes"]:
        item["input"] = fix.pop("input")
    batches = await rows(conn, "batch/get", {"batch_id": item.pop("batch_id")})
    item["batch"] = batches[0] if batches else None
    waits = item["status"] == ItemStatus.RETRY_WAIT and batches
    item["due_at"] = batches[0]["not_before"] if waits else None
    return item


async def look_up(conn: Connection, job_id: UUID, seq: int) -> dict[str, Any]:
    """What is stored of an item, with its derived status."""
    found = await item_rows(conn, "item/get", {"job_id": job_id, "seq": seq}) if 0 <= seq <= MAX_NUMBER else []
    if not found:
        raise UnknownItem(f"job {job_id} has no item {seq}")
    return found[0]
