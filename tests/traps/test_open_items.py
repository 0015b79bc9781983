"""Walking through open items while they move: each once, none pushed to the end by somebody else's claim."""

from typing import Any
from uuid import UUID

from support import add_job, assert_sound, rows, settle, take, verdict
from tidemill.domain.status import ItemStatus
from tidemill.store import leases
from tidemill.store.database import Database
from tidemill.store.inspect import get_item, list_items
from traps.scenes import retry_some

PENDING, PROCESSING, WAITING = ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_WAIT


async def walk(db: Database, job_id: UUID, status: ItemStatus | None, limit: int) -> list[dict[str, Any]]:
    """Page after page to the end."""
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = await db.run(list_items, job_id, status, limit=limit, after=after)
        found += page.items
        after = page.after
        if after is None:
            return found


async def test_every_open_item_is_listed_exactly_once(db: Database) -> None:
    job_id = await add_job(db, 500, batch_size=50)
    await retry_some(db, job_id, range(0, 1_000, 3), delay=60)
    part = await take(db, job_id)
    await settle(db, part, [verdict(seq) for seq in range(part.lo, part.hi, 2)])
    found = {status: [item["seq"] for item in await walk(db, job_id, status, 7)] for status in (PENDING, PROCESSING)}
    assert found[PROCESSING] == list(range(part.lo + 1, part.hi, 2))
    assert found[PENDING] == list(range(100, 500))
    assert [item["seq"] for item in await walk(db, job_id, WAITING, 7)] == list(range(0, 50, 3))


async def test_a_walk_while_claims_go_on_lists_nothing_twice_and_misses_nothing(db: Database) -> None:
    job_id = await add_job(db, 1_000, batch_size=200)
    seen: list[int] = []
    after, claimed = None, 0
    while True:
        page = await db.run(list_items, job_id, PENDING, limit=20, after=after)
        seen += [item["seq"] for item in page.items]
        after = page.after
        if after is None:
            break
        claimed += (await take(db, job_id, 8)).open
    still = {item["seq"] for item in await walk(db, job_id, PENDING, 500)}
    assert len(seen) == len(set(seen))
    assert still <= set(seen)
    assert len(still) == 1_000 - claimed
    await assert_sound(db)


async def test_a_carve_does_not_touch_the_place_of_the_rest(db: Database) -> None:
    job_id = await add_job(db, 100)
    before = [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, PENDING, 100)]
    carved = await take(db, job_id, 10)
    after = [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, PENDING, 100)]
    assert after == before[10:]
    await settle(db, carved)
    assert [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, PENDING, 100)] == after


async def test_a_slice_of_a_list_does_not_touch_the_place_of_the_rest(db: Database) -> None:
    job_id = await add_job(db, 30)
    await retry_some(db, job_id, range(30))
    before = [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, WAITING, 4)]
    await take(db, job_id, 10)
    assert [(item["seq"], item["updated_at"]) for item in await walk(db, job_id, WAITING, 4)] == before[10:]


async def updated_at(db: Database, job_id: UUID, seq: int) -> Any:
    found = await db.run(get_item, job_id, seq)
    assert found is not None
    return found["updated_at"]


async def test_an_items_time_never_goes_back_in_a_range(db: Database) -> None:
    job_id = await add_job(db, 10)
    times = [await updated_at(db, job_id, 5)]
    lease = await take(db, job_id)
    times.append(await updated_at(db, job_id, 5))
    await db.run(leases.release, lease)
    times.append(await updated_at(db, job_id, 5))
    await settle(db, await take(db, job_id))
    times.append(await updated_at(db, job_id, 5))
    assert times == sorted(times)


async def test_an_items_time_never_goes_back_in_a_list(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [5])
    times = [await updated_at(db, job_id, 5)]
    lease = await take(db, job_id)
    times.append(await updated_at(db, job_id, 5))
    await db.run(leases.release, lease)
    times.append(await updated_at(db, job_id, 5))
    await settle(db, await take(db, job_id))
    times.append(await updated_at(db, job_id, 5))
    assert times == sorted(times)


async def test_a_single_look_and_a_page_agree(db: Database) -> None:
    job_id = await add_job(db, 40, batch_size=10)
    await retry_some(db, job_id, [3], delay=60)
    await take(db, job_id, worker="w7")
    for status in (PENDING, PROCESSING, WAITING):
        for item in await walk(db, job_id, status, 100):
            single = await db.run(get_item, job_id, item["seq"])
            assert single is not None
            assert (single["status"], single["attempts"]) == (item["status"], item["attempts"])
            assert single["locked_by"] == item["worker"]
    assert await rows(db, "SELECT count(*) FROM tidemill.item_status WHERE status IS NULL") == [(0,)]
