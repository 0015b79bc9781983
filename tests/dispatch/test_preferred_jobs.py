"""Tests of hints: the hinted job is claimed first, but other jobs do not starve."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from support import add_job, rows, take
from tidemill import Item, Mill
from tidemill.app.runtime_factory import make_engine_context
from tidemill.config import Settings
from tidemill.engine.children.control_pipe import ControlDecoder, WakeMessage, encode_message
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.lane import HINTED_JOB_BATCHES, OWNER_LIMIT_POLL_S, FairClaimer
from tidemill.store.database import Database


@pytest.fixture
async def claimer(db: Database, mill: Mill, settings: Settings) -> AsyncIterator[FairClaimer]:
    @mill.handler("test")
    async def handle(item: Item) -> None: ...

    book = SharedState.create(1)
    yield FairClaimer(make_engine_context(db, settings, mill.registry, worker="w1", shared_state=book))
    book.close()


async def claimed(claimer: FairClaimer, n: int) -> list[UUID]:
    leases = [await claimer.claim(uuid4()) for _ in range(n)]
    return [lease.job_id for lease in leases if lease is not None]


async def test_hinted_job_without_competition_is_claimed_until_empty(db: Database, claimer: FairClaimer) -> None:
    job_id = await add_job(db, 2 * HINTED_JOB_BATCHES, batch_size=1)
    claimer.prefer_hinted_job(job_id)
    assert await claimed(claimer, 3 * HINTED_JOB_BATCHES) == [job_id] * 2 * HINTED_JOB_BATCHES


async def test_hinted_job_gets_every_other_batch_despite_low_priority(db: Database, claimer: FairClaimer) -> None:
    others = [await add_job(db, 20, batch_size=1, priority=10, owner_id=owner) for owner in range(3)]
    hinted = await add_job(db, 20, batch_size=1, priority=-10, owner_id=0)
    claimer.prefer_hinted_job(hinted)
    found = await claimed(claimer, 16)
    assert found[::2] == [hinted] * 8
    assert set(found[1::2]) & set(others)


async def test_hinted_job_is_claimed_first_among_many_jobs_of_owner(db: Database, claimer: FairClaimer) -> None:
    for _ in range(60):
        await add_job(db, 1)
    hinted = await add_job(db, 1, priority=-10)
    claimer.prefer_hinted_job(hinted)
    assert await claimed(claimer, 1) == [hinted]


async def test_hint_for_job_without_ready_batches_is_dropped(db: Database, claimer: FairClaimer) -> None:
    taken, other = await add_job(db, 1), await add_job(db, 1)
    await take(db, taken)
    claimer.prefer_hinted_job(taken)
    claimer.prefer_hinted_job(uuid4())
    assert await claimed(claimer, 3) == [other]
    assert claimer._hinted_batches == {}


async def test_claimer_keeps_bounded_number_of_hints(db: Database, claimer: FairClaimer) -> None:
    for _ in range(1_000):
        claimer.prefer_hinted_job(uuid4())
    assert len(claimer._hinted_batches) < 100


async def test_hint_does_not_override_job_limit_of_owner(db: Database, claimer: FairClaimer) -> None:
    turning = [await add_job(db, 2, batch_size=1) for _ in range(5)]
    for job_id in turning:
        await take(db, job_id)
    hinted = await add_job(db, 1)
    claimer.prefer_hinted_job(hinted)
    assert hinted not in await claimed(claimer, 5)


def test_wake_message_with_job_id_survives_encode_and_decode() -> None:
    said = [WakeMessage(), WakeMessage(uuid4())]
    assert ControlDecoder().feed(b"".join(map(encode_message, said))) == said


async def test_claimer_polls_sooner_when_owner_is_at_job_limit(
    db: Database, mill: Mill, settings: Settings, claimer: FairClaimer
) -> None:
    slow = settings.model_copy(update={"poll_ms": 60_000, "max_concurrent_jobs": 1})
    claimer = FairClaimer(
        make_engine_context(db, slow, mill.registry, worker="w1", shared_state=claimer._context.shared_state)
    )
    await add_job(db, 1)
    assert await claimer.claim(uuid4()) is not None
    assert await claimer.claim(uuid4()) is None
    assert claimer.poll_interval_s == 60, "there is no work, and new work sends a hint"
    first = (await rows(db, "SELECT id FROM tidemill.job"))[0][0]
    second = await add_job(db, 1)
    claimer.invalidate_job_cache()
    assert await claimer.claim(uuid4()) is None
    assert claimer.poll_interval_s == OWNER_LIMIT_POLL_S
    await rows(db, "UPDATE tidemill.batch SET state = 'done', open = 0, done = 1 WHERE job_id = %s", first)
    assert await claimed(claimer, 1) == [second], "the cached list of jobs was invalidated"
