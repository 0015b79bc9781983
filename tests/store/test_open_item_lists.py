"""Tests of paging through open items that change: each appears once, and claims do not move other items."""

from typing import Any
from uuid import UUID

from store.scenes import retry_some, send_round
from support import add_job, assert_sound, rows, settle, shift_clock, take, try_take, verdict
from tidemill.core.status import ItemStatus
from tidemill.jobs.queries import list_items, list_pending_items
from tidemill.store import batch_leases
from tidemill.store.database import Database
from tidemill.store.item_records import read_item_details
from tidemill.testing.drain import make_batches_due

PENDING, PROCESSING, WAITING = ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_WAIT


async def walk(db: Database, job_id: UUID, *statuses: ItemStatus, limit: int) -> list[dict[str, Any]]:
    """Return the items of all pages."""
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = await list_items(db, job_id, statuses, limit=limit, after=after)
        found += page.items
        after = page.after
        if after is None:
            return found


async def test_open_item_list_contains_every_item_once(db: Database) -> None:
    job_id = await add_job(db, 500, batch_size=50)
    await retry_some(db, job_id, range(0, 1_000, 3), delay=60)
    part = await take(db, job_id)
    await settle(db, part, [verdict(seq) for seq in range(part.lo, part.hi, 2)])
    found = {
        status: [item["seq"] for item in await walk(db, job_id, status, limit=7)] for status in (PENDING, PROCESSING)
    }
    assert found[PROCESSING] == list(range(part.lo + 1, part.hi, 2))
    assert found[PENDING] == list(range(100, 500))
    assert [item["seq"] for item in await walk(db, job_id, WAITING, limit=7)] == list(range(0, 50, 3))


async def test_pending_list_paged_during_claims_has_no_duplicates_or_gaps(db: Database) -> None:
    job_id = await add_job(db, 1_000, batch_size=200)
    seen: list[int] = []
    after, claimed = None, 0
    while True:
        page = await list_items(db, job_id, [PENDING], limit=20, after=after)
        seen += [item["seq"] for item in page.items]
        after = page.after
        if after is None:
            break
        claimed += (await take(db, job_id, 8)).open
    still = {item["seq"] for item in await walk(db, job_id, PENDING, limit=500)}
    assert len(seen) == len(set(seen))
    assert still <= set(seen)
    assert len(still) == 1_000 - claimed
    await assert_sound(db)


async def test_carve_keeps_list_position_of_remaining_range_items(db: Database) -> None:
    job_id = await add_job(db, 100)
    before = [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, PENDING, limit=100)]
    carved = await take(db, job_id, 10)
    after = [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, PENDING, limit=100)]
    assert after == before[10:]
    await settle(db, carved)
    assert [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, PENDING, limit=100)] == after


async def test_partial_claim_of_retry_list_keeps_position_of_remaining_items(db: Database) -> None:
    job_id = await add_job(db, 30)
    await retry_some(db, job_id, range(30))
    before = [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, WAITING, limit=4)]
    await take(db, job_id, 10)
    assert [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, WAITING, limit=4)] == before[10:]


async def updated_at(db: Database, job_id: UUID, seq: int) -> Any:
    return (await db.read_snapshot(read_item_details, job_id, seq))["updated_at"]


async def test_range_item_updated_at_never_decreases(db: Database) -> None:
    job_id = await add_job(db, 10)
    times = [await updated_at(db, job_id, 5)]
    lease = await take(db, job_id)
    times.append(await updated_at(db, job_id, 5))
    await db.run(batch_leases.release_rest_of_batch, lease)
    times.append(await updated_at(db, job_id, 5))
    await settle(db, await take(db, job_id))
    times.append(await updated_at(db, job_id, 5))
    assert times == sorted(times)


async def test_retry_list_item_updated_at_never_decreases(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [5])
    times = [await updated_at(db, job_id, 5)]
    lease = await take(db, job_id)
    times.append(await updated_at(db, job_id, 5))
    await db.run(batch_leases.release_rest_of_batch, lease)
    times.append(await updated_at(db, job_id, 5))
    await settle(db, await take(db, job_id))
    times.append(await updated_at(db, job_id, 5))
    assert times == sorted(times)


async def test_stored_updated_at_never_decreases_when_clock_is_set_back_before_claim(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [5])
    stored = "SELECT updated_at FROM tidemill.outcome WHERE job_id = %s AND seq = 5"
    before = await rows(db, stored, job_id)
    await shift_clock(db, "-1 hour")
    await db.run(make_batches_due)
    await settle(db, await take(db, job_id))
    assert await rows(db, stored, job_id) >= before


async def test_updated_at_of_retried_item_never_decreases_when_clock_is_set_back_after_claim(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [5])
    before = await updated_at(db, job_id, 5)
    lease = await take(db, job_id)
    await shift_clock(db, "-1 hour")
    await settle(db, lease, [verdict(5)])
    assert await updated_at(db, job_id, 5) >= before


async def test_get_item_returns_same_fields_as_item_list(db: Database) -> None:
    job_id = await add_job(db, 40, batch_size=10)
    await retry_some(db, job_id, [3], delay=60)
    await take(db, job_id, worker="w7")
    for status in (PENDING, PROCESSING, WAITING):
        for item in await walk(db, job_id, status, limit=100):
            single = await db.read_snapshot(read_item_details, job_id, item["seq"])
            if item["error"] is not None:
                item["error"] |= {"type": None, "traceback": None}  # only a single item has an exception
            for fact in ("status", "attempts", "locked_by", "locked_at", "updated_at", "due_at", "error"):
                assert single[fact] == item[fact], fact
    assert await rows(db, "SELECT count(*) FROM tidemill.item_status WHERE status IS NULL") == [(0,)]


async def test_open_item_list_sorts_processing_after_pending_items(db: Database) -> None:
    job_id = await add_job(db, 300, batch_size=50)
    for _ in range(4):
        await take(db, job_id)  # 200 items in progress, far more than a page
    found = await walk(db, job_id, PENDING, PROCESSING, limit=20)
    assert [item["status"] for item in found] == ["pending"] * 100 + ["processing"] * 200


async def test_pending_list_reaches_waiting_items_behind_many_processing_ones(db: Database) -> None:
    job_id = await add_job(db, 200, batch_size=50)
    for _ in range(4):
        await settle(db, await take(db, job_id), [])
    held = await walk(db, job_id, PROCESSING, limit=100)
    other = await add_job(db, 5)
    await retry_some(db, other, range(5), delay=60)
    assert len(held) == 200
    assert await walk(db, job_id, PENDING, limit=10) == []  # a list of pending items only
    found = await list_pending_items(db, statuses=[PENDING, WAITING], limit=10)
    assert [item["job_id"] for item in found.items] == [other] * 5
    both = await walk_pending(db, PROCESSING, WAITING)
    assert [item["status"] for item in both] == ["processing"] * 200 + ["retry_wait"] * 5  # paging ends, after 21 pages


async def walk_pending(db: Database, *statuses: ItemStatus) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: Any = None
    while True:
        page = await list_pending_items(db, statuses=statuses, limit=10, after=after)
        found += page.items
        after = page.after
        if after is None:
            return found


async def test_open_item_paging_ends_while_items_are_claimed_and_flushed(db: Database) -> None:
    """Each claim moves an item to the end of the list, never between waiting items."""
    job_id = await add_job(db, 400, batch_size=20)
    waited: list[int] = []
    after: Any = None
    while True:
        page = await list_items(db, job_id, [PENDING, PROCESSING], limit=30, after=after)
        waited += [item["seq"] for item in page.items if item["status"] == PENDING]
        after = page.after
        if after is None:
            break
        taken = [await try_take(db, job_id) for _ in range(2)]
        if taken[0] is not None:
            await settle(db, taken[0])
    assert waited == sorted(set(waited))
    assert len(waited) > 100
    await assert_sound(db)


async def test_reprocessed_items_are_listed_after_earlier_pending_items(db: Database) -> None:
    job_id = await add_job(db, 40, batch_size=20)
    await settle(db, await take(db, job_id), [verdict(seq, ItemStatus.FAILED) for seq in range(20)])
    await send_round(db, job_id)
    assert [item["seq"] for item in await walk(db, job_id, PENDING, limit=7)] == [*range(20, 40), *range(20)]
