"""Tests of the limiter's row: single statements that use the database's clock."""

from dataclasses import replace

import pytest

from limits.model import Bucket
from support import rows, shift_clock
from tidemill.limits import limiter_records as store
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_records import PermitGrant, PermitRequest
from tidemill.store.database import Database

SHOP = Limiter("shop", 5.0, 10)
PLACES = Limiter("places", concurrency=3)
ASK = PermitRequest("shop", "", "w1", 1, 1, 0, 0, 0, 0.0, 0.1, 30.0)


@pytest.fixture(autouse=True)
async def declared(db: Database) -> None:
    await db.run(store.declare_limiters, [SHOP, PLACES])


async def ask(db: Database, **options: object) -> PermitGrant:
    _, answer = await db.read(store.take_permits, replace(ASK, **options))  # type: ignore[arg-type]
    assert answer is not None
    return answer


async def drain(db: Database, **options: object) -> PermitGrant:
    """Request all permits that are available within two seconds."""
    return await ask(db, wanted=50, reach=2.0, **options)


async def test_limiter_row_grants_same_permits_as_model(db: Database) -> None:
    bucket: Bucket | None = None
    spare: list[float] = []
    for wanted, lead, reach in [(3, 0, 0.1), (20, 0.01, 0.1), (4, 0, 1.0), (1, 0, 0.1), (5, 0.02, 2.0), (2, 0, 3.0)]:
        answer = await ask(db, wanted=wanted, lead=lead, reach=reach)
        bucket = bucket or Bucket(SHOP, SHOP.bucket_depth, answer.clock)
        expected = bucket.take(answer.clock, wanted, lead=lead, reach=reach)
        assert answer.starts == pytest.approx(expected, abs=1e-5)
        spare = answer.starts[-1:]
        await db.run(store.return_permits, "shop", "", spare, answer.slack)
        bucket.spare += spare


async def test_returned_permit_is_granted_to_next_request(db: Database) -> None:
    first = await drain(db)
    assert len(first.starts) == 19  # 9.5 at once, and the permits of two seconds
    assert (await ask(db)).wait > 0
    await db.run(store.return_permits, "shop", "", first.starts[-1:], first.slack)
    assert (await ask(db)).starts == first.starts[-1:]
    assert await rows(db, "SELECT taken, spare FROM tidemill.limiter WHERE name = 'shop'") == [(19, [])]


async def test_returned_burst_permits_are_granted_again_once_each(db: Database) -> None:
    await rows(db, "UPDATE tidemill.limiter SET slack = 60 WHERE name = 'shop'")  # so that no permit expires here
    burst = await ask(db, wanted=9)
    assert len(set(burst.starts)) == 1
    await db.run(store.return_permits, "shop", "", burst.starts[1:], burst.slack)
    bucket = Bucket(SHOP, 0.0, burst.clock, burst.starts[1:])
    for given, left in ((1, 7), (2, 5)):
        answer = await ask(db, wanted=given)
        assert answer.starts == burst.starts[:given] == bucket.take(burst.clock, given, lead=0, reach=0.1)
        assert await rows(db, "SELECT spare FROM tidemill.limiter WHERE name = 'shop'") == [(burst.starts[:left],)]
        assert bucket.spare == burst.starts[:left]


async def test_request_without_permits_returns_wait_time(db: Database) -> None:
    await drain(db)
    assert 1 < (await ask(db)).wait < 3


async def test_throttling_blocks_limiter_and_restarts_it_without_full_burst(db: Database) -> None:
    told = await db.run(store.block_throttled_limiter, "shop", "", after=60, age=0.1, times=1)
    assert told is not None
    assert told.blocked == pytest.approx(60, abs=1)
    answer = await ask(db, wanted=5)
    assert (answer.starts, round(answer.blocked)) == ([], 60)
    await shift_clock(db, "61 s")
    answer = await ask(db, wanted=5)
    assert len(answer.starts) < 5
    assert answer.blocked == 0


async def test_shorter_block_does_not_replace_longer_block(db: Database) -> None:
    for after in (60, 5):
        told = await db.run(store.block_throttled_limiter, "shop", "", after=after, age=0, times=1)
    assert told is not None
    assert told.blocked > 50


async def test_throttling_halves_rate_once_per_call_window_and_rate_recovers(db: Database) -> None:
    shares = []
    for age in (0.0, 5.0, 0.5):
        told = await db.run(store.block_throttled_limiter, "shop", "", after=0, age=age, times=1)
        assert told is not None
        shares.append(told.share)
    assert shares == [0.5, 0.5, 0.5]
    await shift_clock(db, "20 s")
    assert (await ask(db)).pace == pytest.approx(5.0 * 0.7, abs=0.1)
    await shift_clock(db, "80 s")
    assert (await ask(db)).pace == 5.0


async def test_adaptive_rate_stays_above_lowest_and_fixed_rate_unchanged(db: Database) -> None:
    await db.run(store.declare_limiters, [replace(SHOP, lowest=0.4), replace(PLACES, adaptive=False)])
    for seconds in range(5):
        await shift_clock(db, f"{3 * seconds} s")
        told = await db.run(store.block_throttled_limiter, "shop", "", after=0, age=0, times=1)
        other = await db.run(store.block_throttled_limiter, "places", "", after=0, age=0, times=1)
    assert told is not None
    assert other is not None
    assert told.share == 0.4
    assert other.share == 1


async def test_limiter_grants_no_more_slots_than_concurrency(db: Database) -> None:
    assert (await ask(db, name="places", places=2)).places == 2
    assert (await ask(db, name="places", child=2, places=2)).places == 1
    assert (await ask(db, name="places", child=3, places=1)).places == 0
    await db.run_async_commit(store.set_held_slots, "places", "", "w1", 1, 1)  # of two
    assert (await ask(db, name="places", child=3, places=1)).places == 1


async def test_slots_expire_unless_worker_renews_them(db: Database) -> None:
    await ask(db, name="places", places=1)
    await ask(db, name="places", worker="w2", places=2)
    await shift_clock(db, "25 s")
    await db.run_async_commit(store.renew_slots, "w1", [1], 30.0)
    await shift_clock(db, "40 s")
    assert (await ask(db, name="places", worker="w3", places=3)).places == 2
    await db.run(store.release_all_slots, "w1", 1)
    assert (await ask(db, name="places", worker="w4", places=3)).places == 1


async def test_limiter_members_have_own_buckets_up_to_maximum_and_expire(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_LIMITER_MEMBERS", 2)
    assert (await db.read(store.take_permits, replace(ASK, key="a.example")))[1] is None
    added = [
        await db.run(store.add_limiter_member, "shop", key)
        for key in ("a.example", "b.example", "c.example", store.SHARED_MEMBER_KEY)
    ]
    assert added == [True, True, False, True]
    await drain(db, key="a.example")
    assert (await ask(db, key="a.example")).starts == []
    assert (await ask(db, key="b.example")).starts
    await shift_clock(db, "1 hour")
    await ask(db, key="b.example")
    assert await db.run(store.forget_idle_members) == 2
    assert await rows(db, "SELECT key FROM tidemill.limiter WHERE name = 'shop' ORDER BY 1") == [("",), ("b.example",)]


async def test_limiter_redeclaration_updates_members_only_when_changed(
    db: Database,
) -> None:
    await db.run(store.add_limiter_member, "shop", "a.example")
    await ask(db, wanted=3)
    before = await rows(db, "SELECT level, at FROM tidemill.limiter WHERE name = 'shop' AND key = ''")
    await db.run(store.declare_limiters, [SHOP])
    assert await rows(db, "SELECT level, at FROM tidemill.limiter WHERE name = 'shop' AND key = ''") == before
    await db.run(store.declare_limiters, [replace(SHOP, rate=2.0)])
    assert await rows(db, "SELECT rate, pace FROM tidemill.limiter WHERE name = 'shop'") == [(2.0, 2.0)] * 2
