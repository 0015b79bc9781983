"""Single items that wait are cancelled, and come back: each counted once, whatever it waited in."""

from uuid import UUID

import pytest

from support import FAILED, add_job, assert_sound, job_of, settle, take, try_take, verdict
from tidemill.domain.errors import Conflict, InvalidInput
from tidemill.domain.job import Counts
from tidemill.domain.status import ItemStatus, JobStatus
from tidemill.operations import cancel_rows as operation
from tidemill.operations import control
from tidemill.store import jobs
from tidemill.store.cancel_rows import Waiting
from tidemill.store.database import Database
from tidemill.store.lists.count_items import Selected, count_items
from tidemill.store.reprocess import Choice
from traps.scenes import retry_some, send_round, status_of, unsettled

CANCELLED = [ItemStatus.CANCELLED]


async def cancelled(db: Database, job_id: UUID, waiting: Waiting) -> int:
    made = await operation.cancel_rows(db, job_id, waiting)
    assert made.state == "done", made.error
    await assert_sound(db)
    return made.items


async def run_to_the_end(db: Database, job_id: UUID) -> None:
    while (lease := await try_take(db, job_id)) is not None:
        await settle(db, lease, [verdict(seq) for seq in await unsettled(db, lease)])
    await db.run(jobs.finalize, job_id)
    await assert_sound(db)


@pytest.mark.parametrize("sparse", [False, True])
async def test_chosen_items_of_a_range_are_passed_over_by_who_claims_it(db: Database, sparse: bool) -> None:
    job_id = await add_job(db, 30, batch_size=10, sparse=sparse)
    assert await cancelled(db, job_id, Waiting(seqs=[3, 4, 15, 99])) == 3
    assert (await job_of(db, job_id)).counts == Counts(total=30, pending=27, cancelled=3)
    assert await status_of(db, job_id, 3) == "cancelled"
    lease = await take(db, job_id)
    assert await unsettled(db, lease) == [0, 1, 2, 5, 6, 7, 8, 9]
    await settle(db, lease, [verdict(seq) for seq in await unsettled(db, lease)])
    await run_to_the_end(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=30, done=27, cancelled=3)


async def test_all_but_some_leave_what_is_in_hand_alone(db: Database) -> None:
    job_id = await add_job(db, 40, batch_size=10)
    lease = await take(db, job_id)
    assert await cancelled(db, job_id, Waiting(but=frozenset([12, 35]))) == 28
    assert (await job_of(db, job_id)).counts == Counts(total=40, pending=2, processing=10, cancelled=28)
    await settle(db, lease, [verdict(seq) for seq in await unsettled(db, lease)])
    await run_to_the_end(db, job_id)
    job = await job_of(db, job_id)
    assert (job.status, job.counts) == (JobStatus.COMPLETED, Counts(total=40, done=12, cancelled=28))


async def test_items_that_wait_for_a_retry_are_taken_out_of_their_list(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [1, 2, 3], delay=60)
    assert await cancelled(db, job_id, Waiting(statuses=[ItemStatus.PENDING])) == 0
    assert await cancelled(db, job_id, Waiting(seqs=[2])) == 1
    assert (await job_of(db, job_id)).counts == Counts(total=10, retry_wait=2, done=7, cancelled=1)
    assert await cancelled(db, job_id, Waiting(statuses=[ItemStatus.RETRY_WAIT])) == 2
    job = await job_of(db, job_id)
    assert (job.status, job.counts) == (JobStatus.COMPLETED, Counts(total=10, done=7, cancelled=3))


async def test_what_was_cancelled_one_by_one_comes_back_with_the_rest_of_a_cancelled_job(db: Database) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    assert await cancelled(db, job_id, Waiting(seqs=[3, 4, 15])) == 3
    await control.cancel(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=30, cancelled=30)
    await assert_sound(db)
    assert await send_round(db, job_id, Choice(CANCELLED)) == 30
    await assert_sound(db)
    await run_to_the_end(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=30, done=30)


@pytest.mark.parametrize("folded", [True, False])
async def test_chosen_items_of_cancelled_ranges_come_back(db: Database, folded: bool) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    await settle(db, await take(db, job_id), [verdict(seq, FAILED) for seq in range(10)])
    await control.cancel(db, job_id)
    if folded:
        await db.run(jobs.finalize, job_id)
    assert (await db.run(count_items, job_id, Selected(CANCELLED, seqs=[3, 12, 27], again=True))) == (2, True)
    assert await send_round(db, job_id, Choice(CANCELLED, seqs=[3, 12, 27])) == 2
    assert (await job_of(db, job_id)).counts == Counts(total=30, pending=2, failed=10, cancelled=18)
    await assert_sound(db)
    assert await send_round(db, job_id, Choice(CANCELLED, but=[15])) == 17
    assert (await job_of(db, job_id)).counts == Counts(total=30, pending=19, failed=10, cancelled=1)
    await assert_sound(db)
    await run_to_the_end(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=30, done=19, failed=10, cancelled=1)
    assert await send_round(db, job_id, Choice(CANCELLED)) == 1
    await assert_sound(db)


async def test_a_key_is_looked_for_in_every_window(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("reprocess", "cancel_rows", "lists.count_items"):
        monkeypatch.setattr(f"tidemill.store.{module}.WINDOW", 7)
    job_id = await add_job(db, 30, batch_size=10)  # whose inputs are {"n": seq}
    twenties = Selected(key="2*")
    assert await db.run(count_items, job_id, twenties) == (11, True)
    assert await cancelled(db, job_id, Waiting(key="2*", but=frozenset([25]))) == 10
    assert await db.run(count_items, job_id, Selected(CANCELLED, key="21", again=True)) == (1, True)
    assert await send_round(db, job_id, Choice(CANCELLED, key="21")) == 1
    await assert_sound(db)
    assert (await job_of(db, job_id)).counts == Counts(total=30, pending=21, cancelled=9)


async def test_nothing_of_a_closed_job_waits_and_nothing_settled_can_be_cancelled(db: Database) -> None:
    job_id = await add_job(db, 3)
    with pytest.raises(InvalidInput, match="do not wait"):
        await operation.cancel_rows(db, job_id, Waiting(statuses=[ItemStatus.FAILED]))
    await run_to_the_end(db, job_id)
    with pytest.raises(Conflict, match="nothing of it waits"):
        await operation.cancel_rows(db, job_id, Waiting())
