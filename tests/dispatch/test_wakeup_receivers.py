"""Tests of the notifications that a worker handles while its broker is unavailable."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from support import add_job, eventually, rows
from support.brokers import BrokerServer
from tidemill.app.worker import WakeupLoops
from tidemill.config import Settings
from tidemill.dispatch import dispatchers, outbox_relay
from tidemill.store.database import Database


class Crew:
    """Counts how often all children are woken."""

    has_time = True

    def __init__(self) -> None:
        self.woken = 0

    def wake_children(self) -> None:
        self.woken += 1

    def wake_idlest_child(self, job_id: UUID) -> None: ...


async def test_relay_retry_delay_is_not_shortened_by_submissions_during_outage(
    db: Database, settings: Settings, own_redis: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_redis.kill()
    for room in (outbox_relay, dispatchers):
        monkeypatch.setattr(room, "compute_reconnect_delay", lambda _: 3_600.0)
    tries, send = list[None](), outbox_relay.OutboxRelay.send_batch

    async def counted(self: outbox_relay.OutboxRelay) -> int:
        tries.append(None)
        return await send(self)

    monkeypatch.setattr(outbox_relay.OutboxRelay, "send_batch", counted)
    crew: Any = Crew()
    hearing = WakeupLoops(db, settings.model_copy(update={"broker": own_redis.url}), crew, "w1", ["test"])
    loops = [asyncio.create_task(loop) for loop in await hearing.build_loops(on_demand=False)]

    async def is_lost() -> bool:
        return hearing.describe_broker()["broker"]["trouble"] is not None and crew.woken > 0

    try:
        await eventually(is_lost)
        for _ in range(10):
            await wakes_somebody(db, crew)
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await hearing.close_broker()
        await rows(db, "DELETE FROM tidemill.broker")
    assert len(tries) <= 2  # the second one if a notification arrived during the first


async def wakes_somebody(db: Database, crew: Crew) -> None:
    before = crew.woken

    async def is_woken() -> bool:
        return crew.woken > before

    await add_job(db, 1)
    await eventually(is_woken)
