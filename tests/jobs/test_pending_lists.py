"""Pending items across jobs: only those of the owner, in order, with a reason, within a scan budget."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from jobs.list_scenes import walk
from store.scenes import retry_some
from support import DONE, RETRY, add_job, rows, settle, take, verdict
from tidemill.core.errors import InvalidInput, UnknownJob
from tidemill.core.status import ItemStatus
from tidemill.jobs import job_control, queries
from tidemill.jobs.queries import PendingCountCache
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.store.job_records import OpenItemSums

PENDING, PROCESSING = ItemStatus.PENDING, ItemStatus.PROCESSING


async def pending(db: Database, limit: int = 7, **asked: Any) -> list[dict[str, Any]]:
    found = await walk(lambda after: queries.list_pending_items(db, limit=limit, after=after, **asked), limit)
    keys = [(item["job_id"], item["seq"]) for item in found]
    assert len(set(keys)) == len(keys)
    assert [item["updated_at"] for item in found] == sorted(item["updated_at"] for item in found)
    return found


async def worker_of(db: Database, *kinds: str) -> None:
    await db.run(workers.register_worker, "w1", "here", 1, {"kinds": list(kinds)})


async def test_pending_list_of_all_jobs_is_ordered_by_last_change(db: Database) -> None:
    mine = [await add_job(db, 12, batch_size=5, owner_id=1) for _ in range(3)]
    other = await add_job(db, 10, owner_id=2)
    await retry_some(db, mine[0], [1, 3], delay=60)
    await take(db, mine[1], 3)
    found = await pending(db, owner_id=1)
    assert len(found) == 12 - 5 + 2 + 12 + 12
    assert {item["owner_id"] for item in found} == {1}
    assert len(await pending(db, owner_id=2)) == 10
    everybody = await pending(db, owner_id=None)
    assert len(everybody) == len(found) + 10
    assert {item["job_id"] for item in everybody} == {*mine, other}
    assert await pending(db, owner_id=3) == []


async def test_pending_list_combines_filters(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=5, owner_id=1, kind="a")
    await add_job(db, 4, owner_id=1, kind="b")
    await take(db, job_id)
    await retry_some(db, job_id, [6, 7], delay=60)
    assert {item["status"] for item in await pending(db, owner_id=1, kind="a")} == {
        "pending",
        "processing",
        "retry_wait",
    }
    assert [item["seq"] for item in await pending(db, owner_id=1, statuses=[RETRY])] == [6, 7]
    assert [item["seq"] for item in await pending(db, owner_id=1, statuses=[PROCESSING], job_id=job_id)] == list(
        range(5)
    )
    assert len(await pending(db, owner_id=1, statuses=[PENDING, PROCESSING], kind="a")) == 15
    assert len(await pending(db, owner_id=1, statuses=[PENDING], kind="b")) == 4
    assert await pending(db, owner_id=1, kind="b", job_id=job_id) == []
    with pytest.raises(InvalidInput, match="Items with status done are not waiting"):
        await pending(db, statuses=[DONE])


async def test_pending_list_of_foreign_job_raises_unknown_job(db: Database) -> None:
    job_id, nowhere = await add_job(db, 3, owner_id=1), uuid4()
    for owner, asked in ((2, job_id), (2, nowhere), (None, nowhere)):
        with pytest.raises(UnknownJob, match=f'Unknown job "{asked}"'):
            await pending(db, owner_id=owner, job_id=asked)
    assert len(await pending(db, owner_id=1, job_id=job_id)) == 3


async def test_pending_list_filters_by_time_of_last_change(db: Database) -> None:
    await add_job(db, 3, owner_id=1)
    await add_job(db, 4, owner_id=1)
    [(first,), (second,)] = await rows(db, "SELECT since FROM tidemill.batch ORDER BY id")
    for owner in (1, None):
        assert len(await pending(db, 2, owner_id=owner, from_=second)) == 4
        assert len(await pending(db, 2, owner_id=owner, to=second)) == 3
        assert len(await pending(db, 2, owner_id=owner, from_=first, to=second + timedelta(microseconds=1))) == 7
        assert await pending(db, owner_id=owner, from_=second + timedelta(seconds=1)) == []
    with pytest.raises(InvalidInput, match="The timestamp has no time zone"):
        await pending(db, from_=first.replace(tzinfo=None))


async def test_pending_list_shows_reason_and_job_status(db: Database) -> None:
    await worker_of(db, "test")
    turn, paused, retried, taken = [await add_job(db, 1) for _ in range(4)]
    strange = await add_job(db, 1, kind="strange")
    await job_control.pause_job(db, paused)
    await retry_some(db, retried, [0], delay=600)
    await take(db, taken, worker="w7")
    said = {item["job_id"]: (item["why"], item["job_status"]) for item in await pending(db)}
    assert said[turn] == ("Queued", "pending")
    assert said[paused] == ("Paused", "paused")
    assert said[retried][0].startswith("Waiting for its retry at 20")
    assert said[taken] == ("Processing on worker w7", "running")
    assert said[strange] == ("No running worker handles this kind", "pending")
    await rows(db, "UPDATE tidemill.worker SET seen_at = seen_at - interval '1 minute'")
    assert {item["why"] for item in await pending(db, kind="test", statuses=[PENDING])} == {
        "No running worker handles this kind",
        "Paused",
    }


async def test_pending_reason_ignores_worker_without_kinds(db: Database) -> None:
    await add_job(db, 1)
    infos: list[dict[str, Any]] = [{}, {"kinds": "test"}, {"kinds": None}]
    for n, info in enumerate(infos):
        await db.run(workers.register_worker, f"w{n}", "here", n, info)
    assert [item["why"] for item in await pending(db)] == ["No running worker handles this kind"]


async def test_pending_list_shows_same_job_status_as_job(db: Database) -> None:
    fresh, begun = await add_job(db, 20, batch_size=10), await add_job(db, 20, batch_size=10)
    await settle(db, await take(db, begun))
    shown = {item["job_id"]: item["job_status"] for item in await pending(db)}
    for job_id in (fresh, begun):
        assert shown[job_id] == (await queries.get_job_by_reference(db, str(job_id))).status
    assert set(shown.values()) == {"pending", "running"}


@pytest.mark.parametrize("owner", [1, None])
async def test_pending_list_finds_rare_kind_within_page_budget(
    db: Database, monkeypatch: pytest.MonkeyPatch, owner: int | None
) -> None:
    monkeypatch.setattr("tidemill.store.item_lists.PAGE_BATCH_BUDGET", 10)
    for kind in ("usual", "rare", "usual", "rare"):
        await add_job(db, 25 if kind == "usual" else 2, batch_size=1, owner_id=1, kind=kind)
    first = await queries.list_pending_items(db, owner_id=owner, kind="rare", limit=5)
    assert first.items == []
    assert first.after is not None
    assert [item["seq"] for item in await pending(db, owner_id=owner, kind="rare", limit=1)] == [0, 1, 0, 1]
    assert await pending(db, owner_id=owner, kind="none") == []


async def test_pending_cursor_is_rejected_with_other_filters(db: Database) -> None:
    job_id = await add_job(db, 10, owner_id=1)
    page = await queries.list_pending_items(db, owner_id=1, limit=2)
    others: list[dict[str, Any]] = [
        {"owner_id": 2},
        {},
        {"owner_id": 1, "kind": "x"},
        {"owner_id": 1, "job_id": job_id},
    ]
    for asked in others:
        with pytest.raises(InvalidInput, match="does not belong to this list"):
            await queries.list_pending_items(db, limit=2, after=page.after, **asked)


async def test_pending_count_is_summed_per_owner_or_for_all_owners(db: Database) -> None:
    first, second = await add_job(db, 30, owner_id=1), await add_job(db, 5, owner_id=2)
    await settle(db, await take(db, first, 10))
    await take(db, second)
    counts = PendingCountCache(db)
    assert [(await counts.get(owner)).count for owner in (1, 2, 3, None)] == [20, 5, 0, 25]


async def test_pending_count_filters_by_kind_and_status(db: Database) -> None:
    first = await add_job(db, 30, "first")
    await settle(db, await take(db, first, 10), [verdict(seq, RETRY, delay=60.0) for seq in range(10)])
    await take(db, first, 5)
    await add_job(db, 7, "second")
    counts = PendingCountCache(db)
    open_ones = {PENDING: 22, ItemStatus.PROCESSING: 5, RETRY: 10}
    for status, n in open_ones.items():
        assert (await counts.get(statuses=[status])).count == n
        listed = await queries.list_pending_items(db, owner_id=None, statuses=[status], limit=100)
        assert len(listed.items) == n, "the count equals the length of the list"
    assert (await counts.get(kind="first", statuses=[PENDING, RETRY])).count == 25
    assert (await counts.get(kind="second")).count == 7
    assert (await counts.get(kind="third")).count == 0


async def test_pending_count_is_cached_for_30_s_with_its_age(db: Database) -> None:
    now = 1_000.0
    counts = PendingCountCache(db, clock=lambda: now)
    await add_job(db, 3, owner_id=1)
    assert (await counts.get(1), await counts.get()) == (await counts.get(1), await counts.get(None))
    await add_job(db, 4, owner_id=1)
    now += 29
    kept = await counts.get(1)
    assert (kept.count, kept.age_s) == (3, 29)
    now += 1
    fresh = await counts.get(1)
    assert (fresh.count, fresh.age_s) == (7, 0)
    assert (await counts.get(2)).count == 0


async def test_concurrent_pending_count_requests_run_one_query(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def sum_up(_: Database, owner_id: int | None) -> OpenItemSums:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if owner_id == 1:
            raise OSError("the line is down")
        return {("test", PENDING): 5}

    monkeypatch.setattr("tidemill.jobs.queries.count_open_items_by_kind_and_status", sum_up)
    counts = PendingCountCache(db)
    assert {found.count for found in await asyncio.gather(*(counts.get() for _ in range(50)))} == {5}
    assert asked == 1
    for _ in range(2):
        with pytest.raises(OSError, match="the line is down"):
            await counts.get(1)
    assert asked == 3


async def test_pending_count_cache_evicts_oldest_owners(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.jobs.queries.PENDING_COUNT_OWNERS_MAX", 2)
    now = 0.0
    counts = PendingCountCache(db, clock=lambda: now)
    for owner in range(4):
        await counts.get(owner)
        now += 20
    assert len(counts._summed) <= 3
