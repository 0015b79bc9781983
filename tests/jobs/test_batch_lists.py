"""Lists of batches and user actions of a job, newest first, page by page."""

from datetime import timedelta
from uuid import uuid4

import pytest

from jobs.list_scenes import walk
from store.scenes import expire
from support import DONE, FAILED, RETRY, add_job, rows, settle, take, verdict
from tidemill.core.errors import InvalidInput, UnknownJob
from tidemill.jobs import job_control, queries
from tidemill.store import batch_leases, job_records
from tidemill.store.database import Database


async def test_batch_list_shows_item_counts_state_and_worker(db: Database) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    lease = await take(db, job_id)
    ends = [verdict(seq, (DONE, FAILED)[seq % 2]) for seq in range(8)]
    await settle(db, lease, [*ends, verdict(8, RETRY, delay=60), verdict(9)])
    await take(db, job_id, worker="w2")
    retry, last, second, first = (await queries.list_batches(db, job_id, limit=10)).items
    assert first["tallies"] == {"done": 5, "not_found": 0, "skipped": 0, "failed": 4, "cancelled": 0, "retried": 1}
    assert (first["state"], first["size"], first["open"], first["codes"]) == ("done", 10, 0, {"test": 4})
    assert (first["worker"], first["duration_ms"] >= 0, first["closed_at"] > first["since"]) == ("w1", True, True)
    assert (second["state"], second["worker"], second["duration_ms"], second["closed_at"]) == (
        "leased",
        "w2",
        None,
        None,
    )
    assert (last["state"], last["lo"], last["hi"], last["size"], last["shape"]) == ("ready", 20, 30, 10, "range")
    assert (retry["shape"], retry["size"], retry["lo"], retry["hi"]) == ("list", 1, 8, 9)
    assert retry["not_before"] - retry["since"] > timedelta(seconds=55)


async def test_batch_list_shows_lost_leases_and_isolation(db: Database) -> None:
    job_id = await add_job(db, 10)
    for _ in range(3):
        await expire(db, await take(db, job_id))
        await db.run(batch_leases.reclaim_expired_leases)
    [batch] = (await queries.list_batches(db, job_id, limit=10)).items
    assert (batch["losses"], batch["crashes"], batch["isolated"], batch["worker"]) == (3, 0, True, None)


async def test_cancelled_batch_has_closed_at_and_no_duration(db: Database) -> None:
    job_id = await add_job(db, 10)
    await job_control.cancel_job(db, job_id)
    [batch] = (await queries.list_batches(db, job_id, limit=10)).items
    assert (batch["state"], batch["size"], batch["duration_ms"]) == ("cancelled", 10, None)
    assert batch["closed_at"] > batch["since"]


async def test_batch_list_pages_contain_every_batch_once(db: Database) -> None:
    job_id, other = await add_job(db, 25, batch_size=1), await add_job(db, 3, batch_size=1)
    found = await walk(lambda after: queries.list_batches(db, job_id, limit=10, after=after))
    assert [batch["lo"] for batch in found] == list(reversed(range(25)))
    page = await queries.list_batches(db, job_id, limit=10)
    with pytest.raises(InvalidInput):
        await queries.list_batches(db, other, limit=10, after=page.after)
    with pytest.raises(UnknownJob):
        await queries.list_batches(db, uuid4(), limit=10)


async def test_activity_list_is_newest_first_and_scoped_to_job(db: Database) -> None:
    job_id, other = await add_job(db, 1), await add_job(db, 1)
    await rows(db, "INSERT INTO tidemill.app_user (id, name, role) VALUES (5, 'ada', 'user')")
    for n in range(7):
        await db.run(job_records.add_activity, job_id, 5, "pause", n=n)
    await db.run(job_records.add_activity, other, 5, "cancel")
    found = await walk(lambda after: queries.list_activity(db, job_id, limit=3, after=after))
    assert [(deed["verb"], deed["user_name"], deed["details"]) for deed in found] == [
        ("pause", "ada", {"n": n}) for n in reversed(range(7))
    ]
    assert [deed["at"] for deed in found] == sorted((deed["at"] for deed in found), reverse=True)
    page = await queries.list_activity(db, job_id, limit=3)
    with pytest.raises(InvalidInput):
        await queries.list_activity(db, other, limit=3, after=page.after)
