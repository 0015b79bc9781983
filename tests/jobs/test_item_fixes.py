"""Fixes of inputs: the original is kept, and the next attempt uses the newest fix."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest

from jobs.list_scenes import NOT_FOUND, varied_job, walk_items
from store.scenes import at_once, fail_some, held_up, send_round
from support import DONE, FAILED, add_job, add_rows, assert_sound, rows, settle, take, verdict
from tidemill.core.errors import Conflict, InvalidInput, UnknownItem, UnknownJob
from tidemill.core.status import ItemStatus
from tidemill.jobs import job_control, queries
from tidemill.jobs.reprocessing import record_item_fix
from tidemill.store import item_fixes as store
from tidemill.store.database import Database
from tidemill.store.item_records import read_unsettled_items
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items


async def test_fixed_item_is_reprocessed_with_latest_input(db: Database) -> None:
    job_id = await add_job(db, 5)
    await fail_some(db, job_id, [2, 3])
    assert await record_item_fix(db, job_id, 2, {"n": "fixed"}, by=7) == 1
    assert await record_item_fix(db, job_id, 2, {"n": "fixed again"}, by=8) == 2
    assert (await walk_items(db, job_id, FAILED))[0]["status"] == "failed"
    await send_round(db, job_id, ReprocessSelection(seqs=[2, 3]))
    lease = await take(db, job_id)
    assert [item.input for item in await db.run_async_commit(read_unsettled_items, lease)] == [
        {"n": "fixed again"},
        {"n": 3},
    ]
    await settle(db, lease)
    item = await queries.get_item(db, job_id, 2)
    assert (item["status"], item["input"], item["original"]) == ("done", {"n": "fixed again"}, {"n": 2})
    await assert_sound(db)


async def test_fix_replaces_unreadable_input(db: Database) -> None:
    job_id = await add_rows(db, [b"null"])
    await rows(db, """UPDATE tidemill.item SET defect = '{"reason": "no JSON"}'""")
    await fail_some(db, job_id, [0])
    await record_item_fix(db, job_id, 0, {"n": 1}, by=1)
    await send_round(db, job_id)
    [item] = await db.run_async_commit(read_unsettled_items, await take(db, job_id))
    assert (item.input, item.defect) == ({"n": 1}, None)


async def test_fix_stores_every_revision_with_user_and_activity(db: Database) -> None:
    job_id = await add_job(db, 3)
    await settle(db, await take(db, job_id), [verdict(seq, NOT_FOUND) for seq in range(3)])
    for n, by in enumerate((0, 42), 1):
        assert await record_item_fix(db, job_id, 1, n, by=by) == n
    item = await queries.get_item(db, job_id, 1)
    assert [(fix["rev"], fix["by"], fix["by_name"]) for fix in item["fixes"]] == [(1, 0, "local"), (2, 42, None)]
    assert item["fixes"][0]["at"] < item["fixes"][1]["at"]
    told = (await queries.list_activity(db, job_id, limit=10)).items
    assert [(deed["verb"], deed["user_id"], deed["details"]) for deed in told] == [
        ("fix", 42, {"seq": 1, "rev": 2}),
        ("fix", 0, {"seq": 1, "rev": 1}),
    ]
    [listed] = [item for item in await walk_items(db, job_id, NOT_FOUND) if item["rev"] is not None]
    assert (listed["seq"], listed["rev"], listed["input_summary"]) == (1, 2, "2")


async def test_fix_is_allowed_only_for_failed_and_not_found_items(db: Database) -> None:
    job_id = await varied_job(db)
    for item in await walk_items(db, job_id, limit=200):
        if item["status"] in ("failed", "not_found"):
            assert await record_item_fix(db, job_id, item["seq"], 1, by=1) == 1
        else:
            with pytest.raises(Conflict, match=rf"item {item['seq']}: its status is {item['status']}. Only failed and"):
                await record_item_fix(db, job_id, item["seq"], 1, by=1)
    fixed = await rows(db, "SELECT count(*) FROM tidemill.item_fix")
    told = await rows(db, "SELECT count(*) FROM tidemill.activity WHERE verb = 'fix'")
    assert fixed == told != [(0,)]


async def test_fix_of_done_item_in_sparse_job_raises_conflict(db: Database) -> None:
    job_id = await add_job(db, 2, sparse=True)
    await settle(db, await take(db, job_id))
    with pytest.raises(Conflict, match="Cannot fix item 0: its status is done"):
        await record_item_fix(db, job_id, 0, 1, by=1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": "\x00"}, "NUL characters cannot be stored"),
        ({"a": float("nan")}, "not a valid JSON number"),
        ({"a": object()}, "cannot be stored as JSON"),
        ("x" * 100, "at most 50 are allowed"),
        (json.loads("[" * 400 + "]" * 400), "nested more than"),
    ],
)
async def test_fix_with_unstorable_input_is_rejected(db: Database, value: Any, message: str) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    with pytest.raises(InvalidInput, match=message):
        await record_item_fix(db, job_id, 0, value, by=1, max_row_bytes=50 if isinstance(value, str) else 10_000)
    assert await rows(db, "SELECT count(*) FROM tidemill.item_fix") == [(0,)]


async def test_fix_of_unknown_item_or_purged_job_is_rejected(db: Database) -> None:
    job_id = await add_job(db, 1)
    for seq in (1, -1, 2**63):
        with pytest.raises(UnknownItem):
            await record_item_fix(db, job_id, seq, 1, by=1)
    with pytest.raises(UnknownJob):
        await record_item_fix(db, uuid4(), 0, 1, by=1)
    await rows(db, "UPDATE tidemill.job SET purged_at = tidemill.now()")
    with pytest.raises(Conflict, match="purged"):
        await record_item_fix(db, job_id, 0, 1, by=1)


async def test_concurrent_fixes_get_distinct_revisions(db: Database) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    revisions = await asyncio.gather(*(record_item_fix(db, job_id, 0, {"n": n}, by=n) for n in range(6)))
    assert sorted(revisions) == [1, 2, 3, 4, 5, 6]
    newest = revisions.index(6)
    assert (await queries.get_item(db, job_id, 0))["input"] == {"n": newest}


async def test_reprocess_waits_for_open_fix_and_uses_its_input(db: Database) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    async with db.transaction() as conn:
        await store.add_item_fix(conn, job_id, 0, b'"fixed"', by=1)
        sending = await held_up(db, send_round(db, job_id))
    assert await at_once(sending) == 1
    assert [item.input for item in await db.run_async_commit(read_unsettled_items, await take(db, job_id))] == ["fixed"]


async def test_fix_that_waited_for_reprocess_raises_conflict(db: Database) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    async with db.transaction() as conn:
        await reprocess_items(conn, job_id, ReprocessSelection())
        fixing = await held_up(db, record_item_fix(db, job_id, 0, "late", by=1))
    with pytest.raises(Conflict, match="Cannot fix item 0: its status is pending"):
        await at_once(fixing)
    assert await rows(db, "SELECT count(*) FROM tidemill.item_fix") == [(0,)]


async def test_delete_after_concurrent_fix_removes_fix_and_activity(db: Database) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    async with db.transaction() as conn:
        await store.add_item_fix(conn, job_id, 0, b"1", by=1)
        deleting = await held_up(db, job_control.delete_job(db, job_id))
    await at_once(deleting)
    with pytest.raises(UnknownJob):
        await record_item_fix(db, job_id, 0, 2, by=1)
    for table in ("item_fix", "activity"):
        assert await rows(db, f"SELECT count(*) FROM tidemill.{table}") == [(0,)]


async def test_fixed_item_summary_shows_fixed_input(db: Database) -> None:
    job_id = await add_job(db, 4)
    await fail_some(db, job_id, [1, 2])
    await record_item_fix(db, job_id, 1, {"title": "new"}, by=1)
    assert [item["input_summary"] for item in await walk_items(db, job_id)] == [
        {"n": "0"},
        {"title": "new"},
        {"n": "2"},
        {"n": "3"},
    ]
    await send_round(db, job_id)
    found = await walk_items(db, job_id, ItemStatus.PENDING)
    assert [(item["input_summary"], item["rev"]) for item in found] == [({"title": "new"}, 1), ({"n": "2"}, None)]
    await settle(db, await take(db, job_id), [verdict(1, FAILED), verdict(2, DONE)])
    letters = (await queries.list_dead_letters(db, limit=10)).items
    assert [letter["input_summary"] for letter in letters] == [{"title": "new"}]
