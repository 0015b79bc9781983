"""The row of a limiter: one statement at a time, by the database's clock."""

from dataclasses import replace

import pytest

from limits.model import Bucket
from support import rows, shift_clock
from tidemill.domain.limits import Limiter
from tidemill.store import limiters as store
from tidemill.store.database import Database
from tidemill.store.limiters import Answer, Asking

SHOP = Limiter("shop", 5.0, 10)
PLACES = Limiter("places", concurrency=3)
ASK = Asking("shop", "", "w1", 1, 1, 0, 0, 0, 0.0, 0.1, 30.0)


@pytest.fixture(autouse=True)
async def declared(db: Database) -> None:
    await db.run(store.declare, [SHOP, PLACES])


async def ask(db: Database, **options: object) -> Answer:
    _, answer = await db.run(store.take, replace(ASK, **options))  # type: ignore[arg-type]
    assert answer is not None
    return answer


async def drain(db: Database, **options: object) -> Answer:
    """All there is, and all that comes within two seconds."""
    return await ask(db, wanted=50, reach=2.0, **options)


async def test_the_row_does_what_the_model_says(db: Database) -> None:
    bucket: Bucket | None = None
    spare: list[float] = []
    for wanted, lead, reach in [(3, 0, 0.1), (20, 0.01, 0.1), (4, 0, 1.0), (1, 0, 0.1), (5, 0.02, 2.0), (2, 0, 3.0)]:
        answer = await ask(db, wanted=wanted, lead=lead, reach=reach)
        bucket = bucket or Bucket(SHOP, SHOP.depth, answer.clock)
        expected = bucket.take(answer.clock, wanted, lead=lead, reach=reach)
        assert answer.starts == pytest.approx(expected, abs=1e-5)
        spare = answer.starts[-1:]
        await db.run(store.give_back, "shop", "", spare, answer.slack)
        bucket.spare += spare


async def test_what_is_given_back_is_given_to_the_next(db: Database) -> None:
    first = await drain(db)
    assert len(first.starts) == 19  # 9.5 at once, and those of two seconds
    assert (await ask(db)).wait > 0
    await db.run(store.give_back, "shop", "", first.starts[-1:], first.slack)
    assert (await ask(db)).starts == first.starts[-1:]
    assert await rows(db, "SELECT taken, spare FROM tidemill.limiter WHERE name = 'shop'") == [(19, [])]


async def test_of_a_burst_that_is_given_back_only_what_is_taken_again_is_gone(db: Database) -> None:
    await rows(db, "UPDATE tidemill.limiter SET slack = 60 WHERE name = 'shop'")  # so that nothing comes too late here
    burst = await ask(db, wanted=9)
    assert len(set(burst.starts)) == 1
    await db.run(store.give_back, "shop", "", burst.starts[1:], burst.slack)
    bucket = Bucket(SHOP, 0.0, burst.clock, burst.starts[1:])
    for given, left in ((1, 7), (2, 5)):
        answer = await ask(db, wanted=given)
        assert answer.starts == burst.starts[:given] == bucket.take(burst.clock, given, lead=0, reach=0.1)
        assert await rows(db, "SELECT spare FROM tidemill.limiter WHERE name = 'shop'") == [(burst.starts[:left],)]
        assert bucket.spare == burst.starts[:left]


async def test_who_gets_nothing_is_told_when_to_come(db: Database) -> None:
    await drain(db)
    assert 1 < (await ask(db)).wait < 3


async def test_a_refusal_blocks_everybody_and_afterwards_one_begins_not_all(db: Database) -> None:
    told = await db.run(store.refuse, "shop", "", after=60, age=0.1, times=1)
    assert told is not None
    assert told.blocked == pytest.approx(60, abs=1)
    answer = await ask(db, wanted=5)
    assert (answer.starts, round(answer.blocked)) == ([], 60)
    await shift_clock(db, "61 s")
    answer = await ask(db, wanted=5)
    assert len(answer.starts) < 5
    assert answer.blocked == 0


async def test_a_longer_block_stays_and_a_shorter_one_does_not_end_it(db: Database) -> None:
    for after in (60, 5):
        told = await db.run(store.refuse, "shop", "", after=after, age=0, times=1)
    assert told is not None
    assert told.blocked > 50


async def test_the_rate_is_halved_once_for_all_calls_that_began_before_and_grows_again(db: Database) -> None:
    shares = []
    for age in (0.0, 5.0, 0.5):
        told = await db.run(store.refuse, "shop", "", after=0, age=age, times=1)
        assert told is not None
        shares.append(told.share)
    assert shares == [0.5, 0.5, 0.5]
    await shift_clock(db, "20 s")
    assert (await ask(db)).pace == pytest.approx(5.0 * 0.7, abs=0.1)
    await shift_clock(db, "80 s")
    assert (await ask(db)).pace == 5.0


async def test_the_rate_stays_within_its_bounds(db: Database) -> None:
    await db.run(store.declare, [replace(SHOP, lowest=0.4), replace(PLACES, adaptive=False)])
    for seconds in range(5):
        await shift_clock(db, f"{3 * seconds} s")
        told = await db.run(store.refuse, "shop", "", after=0, age=0, times=1)
        other = await db.run(store.refuse, "places", "", after=0, age=0, times=1)
    assert told is not None
    assert other is not None
    assert told.share == 0.4
    assert other.share == 1


async def test_places_are_for_as_many_as_there_are(db: Database) -> None:
    assert (await ask(db, name="places", places=2)).places == 2
    assert (await ask(db, name="places", child=2, places=2)).places == 1
    assert (await ask(db, name="places", child=3, places=1)).places == 0
    await db.run(store.leave, "places", "", "w1", 1, 1)  # of two
    assert (await ask(db, name="places", child=3, places=1)).places == 1


async def test_the_places_of_the_dead_run_out_and_those_of_the_living_do_not(db: Database) -> None:
    await ask(db, name="places", places=1)
    await ask(db, name="places", worker="w2", places=2)
    await shift_clock(db, "25 s")
    await db.run(store.renew, "w1", [1], 30.0)
    await shift_clock(db, "40 s")
    assert (await ask(db, name="places", worker="w3", places=3)).places == 2
    await db.run(store.leave_all, "w1", 1)
    assert (await ask(db, name="places", worker="w4", places=3)).places == 1


async def test_members_have_a_bucket_each_are_bounded_and_forgotten(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_MEMBERS", 2)
    assert (await db.run(store.take, replace(ASK, key="a.example")))[1] is None
    added = [await db.run(store.add_member, "shop", key) for key in ("a.example", "b.example", "c.example", store.REST)]
    assert added == [True, True, False, True]
    await drain(db, key="a.example")
    assert (await ask(db, key="a.example")).starts == []
    assert (await ask(db, key="b.example")).starts
    await shift_clock(db, "1 hour")
    await ask(db, key="b.example")
    assert await db.run(store.forget_idle) == 2
    assert await rows(db, "SELECT key FROM tidemill.limiter WHERE name = 'shop' ORDER BY 1") == [("",), ("b.example",)]


async def test_a_limiter_that_is_declared_anew_is_changed_with_its_members_and_one_that_is_not_stays(
    db: Database,
) -> None:
    await db.run(store.add_member, "shop", "a.example")
    await ask(db, wanted=3)
    before = await rows(db, "SELECT level, at FROM tidemill.limiter WHERE name = 'shop' AND key = ''")
    await db.run(store.declare, [SHOP])
    assert await rows(db, "SELECT level, at FROM tidemill.limiter WHERE name = 'shop' AND key = ''") == before
    await db.run(store.declare, [replace(SHOP, rate=2.0)])
    assert await rows(db, "SELECT rate, pace FROM tidemill.limiter WHERE name = 'shop'") == [(2.0, 2.0)] * 2
