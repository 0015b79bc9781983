"""Tests of malformed throttling responses: every item has an outcome, and slots are released."""

import asyncio
from typing import Any

import pytest

from support import assert_sound, fates, rows
from tidemill import Item, Mill, Retry
from tidemill.limits import limiter_records as store
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_permit import LimiterRegistry
from tidemill.store.database import Database
from tidemill.testing import drain


class TooMany(Exception):
    """As HTTP clients raise it, with an invalid date."""

    status_code = 429
    headers = {"Retry-After": "Mon, 16 Nov 99999999999 12:00:00 GMT"}  # noqa: RUF012  as it is there


class Bare(Retry):
    """An outcome without the attributes of its base class."""

    throttled = True

    def __init__(self) -> None:
        Exception.__init__(self, "slow down")


def in_words(**words: Any) -> Retry:
    return Retry("slow down", throttled=True, **words)


@pytest.mark.parametrize("limited", [False, True])
async def test_invalid_retry_after_date_is_treated_as_missing(mill: Mill, db: Database, limited: bool) -> None:
    mill.limiter("shop", "100/s")

    @mill.handler("call", max_attempts=1, limit="shop" if limited else None)
    async def call(item: Item) -> None:
        if item.seq == 1 and not item.throttles:
            raise TooMany

    job_id = await mill.submit_async("call", range(3))
    await drain(mill, db=db)
    assert await fates(db, job_id) == {("done", None, 1): 3}


@pytest.mark.parametrize(
    "said", [in_words(after="5"), in_words(after=float("nan")), in_words(after=10**400), Bare()], ids=repr
)
async def test_invalid_retry_after_seconds_fail_only_their_item(mill: Mill, db: Database, said: Retry) -> None:
    mill.limiter("shop", "100/s")

    @mill.handler("call", limit="shop", max_attempts=1)
    async def call(item: Item) -> None:
        if item.seq == 1:
            raise said

    job_id = await mill.submit_async("call", range(3))
    await drain(mill, db=db, retries=False)
    assert await fates(db, job_id) == {("done", None, 1): 2, ("failed", "invalid_result", 1): 1}
    await assert_sound(db, job_id)


async def test_slot_is_released_when_throttling_error_is_malformed(db: Database) -> None:
    shop = Limiter("shop", concurrency=1)
    await db.run(store.declare_limiters, [shop])
    limits = LimiterRegistry(db, {"shop": shop}, worker="w", child=1, lease_seconds=30)
    with pytest.raises(AttributeError):
        async with limits.permit("shop"):
            raise Bare
    async with asyncio.timeout(5), limits.permit("shop"):
        pass
    await limits.close()
    assert await rows(db, "SELECT coalesce(sum(held), 0) FROM tidemill.limiter_hold") == [(0,)]


@pytest.mark.parametrize(("said", "days"), [(3 * 86_400, 3), (30 * 86_400, 7)])
async def test_block_lasts_for_retry_after_up_to_a_week(mill: Mill, db: Database, said: int, days: int) -> None:
    mill.limiter("shop", "100/s")

    @mill.handler("call", limit="shop")
    async def call(item: Item) -> None:
        raise in_words(after=said)

    await mill.submit_async("call", range(1))
    await drain(mill, retries=False, db=db)
    blocked = "SELECT round(extract(epoch FROM blocked_until - tidemill.now()) / 86400) FROM tidemill.limiter"
    assert await rows(db, blocked) == [(days,)]
