"""Correcting an input: a revision, never a change; and the next run takes the newest."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest

from lists.scenes import NOT_FOUND, varied_job, walk_items
from support import DONE, FAILED, add_job, add_rows, assert_sound, rows, settle, take, verdict
from tidemill.domain.errors import Conflict, InvalidInput, UnknownItem, UnknownJob
from tidemill.domain.status import ItemStatus
from tidemill.operations import control, inspect
from tidemill.operations.fix import fix_item
from tidemill.store import fix as store
from tidemill.store.database import Database
from tidemill.store.items import read
from tidemill.store.reprocess import Choice, reprocess
from traps.scenes import at_once, fail_some, held_up, send_round


async def test_a_fixed_item_runs_again_with_its_new_input(db: Database) -> None:
    job_id = await add_job(db, 5)
    await fail_some(db, job_id, [2, 3])
    assert await fix_item(db, job_id, 2, {"n": "mended"}, by=7) == 1
    assert await fix_item(db, job_id, 2, {"n": "mended again"}, by=8) == 2
    assert (await walk_items(db, job_id, FAILED))[0]["status"] == "failed"
    await send_round(db, job_id, Choice(seqs=[2, 3]))
    lease = await take(db, job_id)
    assert [item.input for item in await db.run(read, lease)] == [{"n": "mended again"}, {"n": 3}]
    await settle(db, lease)
    item = await inspect.get_item(db, job_id, 2)
    assert (item["status"], item["input"], item["original"]) == ("done", {"n": "mended again"}, {"n": 2})
    await assert_sound(db)


async def test_a_record_that_could_not_be_read_can_be_fixed(db: Database) -> None:
    job_id = await add_rows(db, [b"null"])
    await rows(db, """UPDATE tidemill.item SET defect = '{"reason": "no JSON"}'""")
    await fail_some(db, job_id, [0])
    await fix_item(db, job_id, 0, {"n": 1}, by=1)
    await send_round(db, job_id)
    [item] = await db.run(read, await take(db, job_id))
    assert (item.input, item.defect) == ({"n": 1}, None)


async def test_every_revision_is_kept_with_who_made_it_and_told_of(db: Database) -> None:
    job_id = await add_job(db, 3)
    await settle(db, await take(db, job_id), [verdict(seq, NOT_FOUND) for seq in range(3)])
    for n, by in enumerate((0, 42), 1):
        assert await fix_item(db, job_id, 1, n, by=by) == n
    item = await inspect.get_item(db, job_id, 1)
    assert [(fix["rev"], fix["by"], fix["by_name"]) for fix in item["fixes"]] == [(1, 0, "local"), (2, 42, None)]
    assert item["fixes"][0]["at"] < item["fixes"][1]["at"]
    told = (await inspect.list_activity(db, job_id, limit=10)).items
    assert [(deed["verb"], deed["user_id"], deed["details"]) for deed in told] == [
        ("fix", 42, {"seq": 1, "rev": 2}),
        ("fix", 0, {"seq": 1, "rev": 1}),
    ]
    [listed] = [item for item in await walk_items(db, job_id, NOT_FOUND) if item["rev"] is not None]
    assert (listed["seq"], listed["rev"], listed["input_summary"]) == (1, 2, "2")


async def test_only_what_failed_or_was_not_found_can_be_fixed(db: Database) -> None:
    job_id = await varied_job(db)
    for item in await walk_items(db, job_id, limit=200):
        if item["status"] in ("failed", "not_found"):
            assert await fix_item(db, job_id, item["seq"], 1, by=1) == 1
        else:
            with pytest.raises(Conflict, match=rf"item {item['seq']} is {item['status']}: only failed and not_found"):
                await fix_item(db, job_id, item["seq"], 1, by=1)
    fixed = await rows(db, "SELECT count(*) FROM tidemill.item_fix")
    told = await rows(db, "SELECT count(*) FROM tidemill.activity WHERE verb = 'fix'")
    assert fixed == told != [(0,)]


async def test_a_sparse_jobs_done_item_cannot_be_fixed(db: Database) -> None:
    job_id = await add_job(db, 2, sparse=True)
    await settle(db, await take(db, job_id))
    with pytest.raises(Conflict, match="item 0 is done"):
        await fix_item(db, job_id, 0, 1, by=1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": "\x00"}, "a NUL character cannot be stored"),
        ({"a": float("nan")}, "not a number that JSON has"),
        ({"a": object()}, "cannot be stored as JSON"),
        ("x" * 100, "at most 50 are allowed"),
        (json.loads("[" * 400 + "]" * 400), "nested more than"),
    ],
)
async def test_an_input_that_cannot_be_stored_is_refused(db: Database, value: Any, message: str) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    with pytest.raises(InvalidInput, match=message):
        await fix_item(db, job_id, 0, value, by=1, max_row_bytes=50 if isinstance(value, str) else 10_000)
    assert await rows(db, "SELECT count(*) FROM tidemill.item_fix") == [(0,)]


async def test_what_is_not_there_cannot_be_fixed(db: Database) -> None:
    job_id = await add_job(db, 1)
    for seq in (1, -1, 2**63):
        with pytest.raises(UnknownItem):
            await fix_item(db, job_id, seq, 1, by=1)
    with pytest.raises(UnknownJob):
        await fix_item(db, uuid4(), 0, 1, by=1)
    await rows(db, "UPDATE tidemill.job SET purged_at = tidemill.now()")
    with pytest.raises(Conflict, match="purged"):
        await fix_item(db, job_id, 0, 1, by=1)


async def test_fixes_at_the_same_time_get_numbers_of_their_own(db: Database) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    revisions = await asyncio.gather(*(fix_item(db, job_id, 0, {"n": n}, by=n) for n in range(6)))
    assert sorted(revisions) == [1, 2, 3, 4, 5, 6]
    newest = revisions.index(6)
    assert (await inspect.get_item(db, job_id, 0))["input"] == {"n": newest}


async def test_a_reprocess_waits_for_a_fix_and_runs_it(db: Database) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    async with db.transaction() as conn:
        await store.fix(conn, job_id, 0, b'"mended"', by=1)
        sending = await held_up(db, send_round(db, job_id))
    assert await at_once(sending) == 1
    assert [item.input for item in await db.run(read, await take(db, job_id))] == ["mended"]


async def test_a_fix_that_waited_for_a_reprocess_is_refused(db: Database) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    async with db.transaction() as conn:
        await reprocess(conn, job_id, Choice())
        fixing = await held_up(db, fix_item(db, job_id, 0, "late", by=1))
    with pytest.raises(Conflict, match="item 0 is pending"):
        await at_once(fixing)
    assert await rows(db, "SELECT count(*) FROM tidemill.item_fix") == [(0,)]


async def test_a_fix_and_a_delete_leave_nothing_behind(db: Database) -> None:
    job_id = await add_job(db, 1)
    await fail_some(db, job_id, [0])
    async with db.transaction() as conn:
        await store.fix(conn, job_id, 0, b"1", by=1)
        deleting = await held_up(db, control.delete(db, job_id))
    await at_once(deleting)
    with pytest.raises(UnknownJob):
        await fix_item(db, job_id, 0, 2, by=1)
    for table in ("item_fix", "activity"):
        assert await rows(db, f"SELECT count(*) FROM tidemill.{table}") == [(0,)]


async def test_the_summary_of_a_fixed_item_is_that_of_the_fix(db: Database) -> None:
    job_id = await add_job(db, 4)
    await fail_some(db, job_id, [1, 2])
    await fix_item(db, job_id, 1, {"title": "new"}, by=1)
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
    letters = (await inspect.list_dead_letters(db, limit=10)).items
    assert [letter["input_summary"] for letter in letters] == [{"title": "new"}]
