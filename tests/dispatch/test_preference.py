"""A hint says which job a child looks at first. It is no licence to let others wait."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from support import add_job, rows, take
from tidemill import Item, Mill
from tidemill.app import make_context
from tidemill.config import Settings
from tidemill.engine.claim import CROWDED_S, PREFERRED, Claimer
from tidemill.engine.control import Decoder, Wake, encode
from tidemill.engine.logbook import Logbook
from tidemill.store.database import Database


@pytest.fixture
async def claimer(db: Database, mill: Mill, settings: Settings) -> AsyncIterator[Claimer]:
    @mill.handler("test")
    async def handle(item: Item) -> None: ...

    book = Logbook.create(1)
    yield Claimer(make_context(db, settings, mill.registry, worker="w1", book=book))
    book.close()


async def claimed(claimer: Claimer, n: int) -> list[UUID]:
    leases = [await claimer.claim(uuid4()) for _ in range(n)]
    return [lease.job_id for lease in leases if lease is not None]


async def test_alone_it_is_worked_on_until_it_is_empty(db: Database, claimer: Claimer) -> None:
    job_id = await add_job(db, 2 * PREFERRED, batch_size=1)
    claimer.prefer(job_id)
    assert await claimed(claimer, 3 * PREFERRED) == [job_id] * 2 * PREFERRED


async def test_beside_others_it_is_first_and_gets_every_other_batch_at_least(db: Database, claimer: Claimer) -> None:
    others = [await add_job(db, 20, batch_size=1, priority=10, owner_id=owner) for owner in range(3)]
    hinted = await add_job(db, 20, batch_size=1, priority=-10, owner_id=0)
    claimer.prefer(hinted)
    found = await claimed(claimer, 16)
    assert found[::2] == [hinted] * 8
    assert set(found[1::2]) & set(others)


async def test_it_is_found_among_however_many_its_owner_has(db: Database, claimer: Claimer) -> None:
    for _ in range(60):
        await add_job(db, 1)
    hinted = await add_job(db, 1, priority=-10)
    claimer.prefer(hinted)
    assert await claimed(claimer, 1) == [hinted]


async def test_a_hint_for_a_job_with_nothing_to_do_is_spent(db: Database, claimer: Claimer) -> None:
    taken, other = await add_job(db, 1), await add_job(db, 1)
    await take(db, taken)
    claimer.prefer(taken)
    claimer.prefer(uuid4())
    assert await claimed(claimer, 3) == [other]
    assert claimer._hinted == {}


async def test_hints_do_not_pile_up(db: Database, claimer: Claimer) -> None:
    for _ in range(1_000):
        claimer.prefer(uuid4())
    assert len(claimer._hinted) < 100


async def test_an_owner_with_enough_jobs_at_work_gets_no_further_one_by_a_hint(db: Database, claimer: Claimer) -> None:
    turning = [await add_job(db, 2, batch_size=1) for _ in range(5)]
    for job_id in turning:
        await take(db, job_id)
    hinted = await add_job(db, 1)
    claimer.prefer(hinted)
    assert hinted not in await claimed(claimer, 5)


def test_a_parent_may_name_the_job() -> None:
    said = [Wake(), Wake(uuid4())]
    assert Decoder().feed(b"".join(map(encode, said))) == said


async def test_an_owner_who_may_begin_no_further_job_is_looked_at_again_soon(
    db: Database, mill: Mill, settings: Settings, claimer: Claimer
) -> None:
    slow = settings.model_copy(update={"poll_ms": 60_000, "max_concurrent_jobs": 1})
    claimer._context = make_context(db, slow, mill.registry, worker="w1", book=claimer._context.book)
    await add_job(db, 1)
    assert await claimer.claim(uuid4()) is not None
    assert await claimer.claim(uuid4()) is None
    assert claimer.pause_s == 60, "nothing is there, and whoever brings something tells of it"
    first = (await rows(db, "SELECT id FROM tidemill.job"))[0][0]
    second = await add_job(db, 1)
    claimer.forget()
    assert await claimer.claim(uuid4()) is None
    assert claimer.pause_s == CROWDED_S
    await rows(db, "UPDATE tidemill.batch SET state = 'done', open = 0, done = 1 WHERE job_id = %s", first)
    assert await claimed(claimer, 1) == [second], "it is not believed that nothing has changed"
