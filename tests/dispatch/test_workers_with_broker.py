"""Tests of real workers with a broker: hints wake them, and they work without hints."""

from typing import Any

from dispatch.listeners import envelope, send_raw
from support import Workers, add_job, assert_sound, closed, eventually, rows
from support.brokers import BrokerServer
from tidemill.core.status import JobStatus
from tidemill.dispatch import outbox
from tidemill.dispatch.dispatchers import BrokerDispatcher, make_connection_factory
from tidemill.dispatch.envelope import encode_envelope
from tidemill.jobs.administration import check_health
from tidemill.store import job_lifecycle
from tidemill.store.database import Database

NEVER_MS = 600_000  # so that a worker that works was woken
APP = """
    @mill.handler("test")
    async def handle(item: Item) -> None: ...
"""


async def heard_of(db: Database, trouble: str = "IS NULL", n: int = 1) -> None:
    """Wait until the workers have reported the state of their broker."""
    look = f"SELECT 1 FROM tidemill.worker WHERE info ? 'broker' AND info->'broker'->>'trouble' {trouble}"

    async def seen() -> bool:
        return len(await rows(db, look)) >= n

    await eventually(seen)


async def is_awake(db: Database) -> None:
    """Run one job first, so that the child has started and has finished its own first check for work."""
    await closed(db, await add_job(db, 1))


def start(workers: Workers, url: str, poll_ms: int = NEVER_MS) -> Any:
    return workers.start(workers.app(APP), broker=url, poll_ms=poll_ms)


async def test_hint_wakes_worker_that_does_not_poll(db: Database, workers: Workers, broker: str) -> None:
    start(workers, broker)
    await heard_of(db)
    await is_awake(db)
    for n in (1, 2_500, 1):
        assert (await closed(db, await add_job(db, n))).status is JobStatus.COMPLETED
    await drained(db)
    health = await check_health(db)
    assert (health.status, health.broker, health.outbox) == ("ok", "ok", 0)
    assert await rows(db, "SELECT * FROM tidemill.outbox") == []
    await assert_sound(db)


async def test_worker_receives_hints_again_after_broker_restart(
    db: Database, workers: Workers, own_redis: BrokerServer
) -> None:
    start(workers, own_redis.url)
    await heard_of(db)
    await is_awake(db)
    for _ in range(2):
        own_redis.kill()
        await heard_of(db, "IS NOT NULL")
        health = await check_health(db)
        assert (health.is_operational, health.status, health.broker) == (True, "degraded", "lost")
        # Without the broker, notifications of the database wake the worker.
        assert (await closed(db, await add_job(db, 10))).status is JobStatus.COMPLETED
        own_redis.start()
        await heard_of(db)
        await is_awake(db)
        await drained(db)
        assert (await check_health(db)).status == "ok"


async def drained(db: Database) -> None:
    async def is_empty() -> bool:
        return not await rows(db, "SELECT 1 FROM tidemill.outbox")

    await eventually(is_empty)


async def test_worker_without_broker_completes_jobs_and_health_is_degraded(db: Database, workers: Workers) -> None:
    start(workers, "redis://127.0.0.1:1/0", poll_ms=50)
    assert (await closed(db, await add_job(db, 10))).status is JobStatus.COMPLETED
    await heard_of(db, "IS NOT NULL")
    assert (await check_health(db)).status == "degraded"


async def test_worker_ignores_obsolete_and_quarantines_malformed_hints(
    db: Database, workers: Workers, redis: str
) -> None:
    """Obsolete hints are dropped, malformed messages quarantined; then the next hint is handled."""
    start(workers, redis)
    await heard_of(db)
    await is_awake(db)
    namespace = await db.run(outbox.register_broker_and_get_namespace, "redis")
    stranger = BrokerDispatcher(make_connection_factory(redis, namespace, ["test"], "stranger"), ["test"])
    cancelled = await add_job(db, 1)
    await db.run(job_lifecycle.cancel_job, cancelled)
    await closed(db, cancelled)
    await stranger.dispatch([envelope(), envelope(job_id=cancelled)])
    await send_raw(stranger, "test", b"not a hint \x00", encode_envelope(envelope("unknown")))
    await stranger.close()
    assert (await closed(db, await add_job(db, 5))).status is JobStatus.COMPLETED

    async def kept() -> bool:
        return len(await rows(db, "SELECT 1 FROM tidemill.quarantine WHERE source = 'received'")) == 2

    await eventually(kept)
    health = await check_health(db)
    assert (health.status, health.quarantined) == ("ok", 2)
    await assert_sound(db)
