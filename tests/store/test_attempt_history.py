"""The history of an item's attempts, which flushes write into the details of its outcome."""

from typing import Any
from uuid import UUID

import pytest

from support import DONE, FAILED, RETRY, add_job, assert_sound, rows, settle, take, verdict
from tidemill.core.decide import Verdict
from tidemill.core.outcome import HandlerException
from tidemill.core.status import ItemStatus
from tidemill.store.database import Database
from tidemill.store.item_records import read_item_details, read_outcome_details
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items

RAISED = HandlerException("ValueError", "Traceback …\nValueError: x", "a.py:1")


async def history(db: Database, job_id: UUID, seq: int = 0) -> list[dict[str, Any]]:
    return (await db.read_snapshot(read_item_details, job_id, seq))["attempt_history"]  # type: ignore[no-any-return]


def retried(attempt: int, *, charged: bool = True, exception: HandlerException | None = RAISED) -> Verdict:
    return verdict(0, RETRY, attempts=attempt, delay=0.0)._replace(charged=charged, exception=exception)


async def test_history_lists_three_attempts_of_two_workers_oldest_first(db: Database) -> None:
    job_id = await add_job(db, 1)
    await settle(db, await take(db, job_id, worker="one"), [retried(1)])
    await settle(db, await take(db, job_id, worker="two"), [retried(2)])
    await settle(db, await take(db, job_id, worker="one"), [verdict(0, FAILED, attempts=3)])
    found = await history(db, job_id)
    assert [(one["attempt"], one["worker"], one["status"], one["code"], one["duration_ms"]) for one in found] == [
        (1, "one", "retry_wait", "test", 1),
        (2, "two", "retry_wait", "test", 1),
        (3, "one", "failed", "test", 1),
    ]
    assert [one["at"] for one in found] == sorted(one["at"] for one in found)
    await assert_sound(db)


async def test_history_keeps_last_twenty_attempts(db: Database) -> None:
    job_id = await add_job(db, 1)
    for attempt in range(1, 26):
        await settle(db, await take(db, job_id), [retried(attempt)])
    assert [one["attempt"] for one in await history(db, job_id)] == list(range(6, 26))


async def test_throttled_attempts_are_not_recorded_and_remove_the_traceback(db: Database) -> None:
    job_id = await add_job(db, 1)
    await settle(db, await take(db, job_id), [retried(1)])
    for _ in range(3):
        await settle(db, await take(db, job_id), [retried(1, charged=False, exception=None)])
    assert [one["attempt"] for one in await history(db, job_id)] == [1]
    assert (await db.read_snapshot(read_item_details, job_id, 0))["error"]["traceback"] is None


async def test_done_at_first_attempt_has_no_details_and_one_derived_attempt(db: Database) -> None:
    job_id = await add_job(db, 2)
    await settle(db, await take(db, job_id))
    assert await rows(db, "SELECT DISTINCT details FROM tidemill.outcome WHERE job_id = %s", job_id) == [(None,)]
    [one] = await history(db, job_id)
    assert (one["attempt"], one["worker"], one["status"], one["duration_ms"]) == (1, None, "done", 1)


@pytest.mark.parametrize("status", [FAILED, ItemStatus.SKIPPED, ItemStatus.NOT_FOUND])
async def test_first_attempt_without_success_records_its_worker(db: Database, status: ItemStatus) -> None:
    job_id = await add_job(db, 1)
    await settle(db, await take(db, job_id, worker="one"), [verdict(0, status)])
    assert [(one["worker"], one["status"]) for one in await history(db, job_id)] == [("one", status)]


async def test_invalid_rows_of_sparse_job_have_details_only_with_traceback_or_retry(db: Database) -> None:
    job_id = await add_job(db, 3, sparse=True)
    raised = verdict(1, FAILED)._replace(exception=RAISED)
    await settle(db, await take(db, job_id), [verdict(0, FAILED), raised, verdict(2, RETRY, delay=0.0)])
    stored = await db.read(read_outcome_details, job_id, [0, 1, 2])
    assert {seq: set(details) for seq, details in stored.items()} == {
        1: {"attempts", "traceback"},
        2: {"attempts"},
    }
    assert [(one["status"], one["worker"]) for one in await history(db, job_id, 0)] == [("failed", None)]


async def test_reprocessed_item_continues_its_history(db: Database) -> None:
    job_id = await add_job(db, 1)
    await settle(db, await take(db, job_id), [verdict(0, FAILED)])
    await db.run(reprocess_items, job_id, ReprocessSelection(statuses=[FAILED]))
    assert [one["status"] for one in await history(db, job_id)] == ["failed"]
    await settle(db, await take(db, job_id, worker="two"), [verdict(0, DONE)])
    assert [(one["attempt"], one["status"]) for one in await history(db, job_id)] == [(1, "failed"), (1, "done")]


async def test_item_without_attempts_has_empty_history(db: Database) -> None:
    assert await history(db, await add_job(db, 1)) == []
