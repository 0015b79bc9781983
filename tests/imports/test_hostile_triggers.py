"""Rows whose triggers end the connection, crash the server process or sleep: only these rows fail."""

import asyncio
import time

import pytest

from imports.scenes import Scene
from support import assert_sound, eventually, job_of
from tidemill import Mill
from tidemill.config import Settings
from tidemill.jobs import job_control
from tidemill.jobs.administration import check_health
from tidemill.store.database import Database
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing.drain import _engines, drain

TERMINATE = "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5)"
STOP_WITHIN_S = 5.0  # about 2 s on a free machine


async def add_hostile_table(scene: Scene, action: str, *, bad: int = 7, table: str = "t") -> None:
    """Create a table whose trigger runs an action for one number."""
    await scene.table(
        f"CREATE TABLE {table} (n int)",
        f"CREATE FUNCTION {table}_hurt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF NEW.n = {bad} THEN {action}; END IF; RETURN NEW; END $$",
        f"CREATE TRIGGER hurt BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_hurt()",
    )


def numbers(count: int) -> str:
    return "n\n" + "".join(f"{n}\n" for n in range(1, count + 1))


async def test_row_that_terminates_its_connection_fails_as_poison_alone(scene: Scene) -> None:
    await add_hostile_table(scene, TERMINATE)
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    try:
        async with asyncio.timeout(20):
            job = await scene.run(numbers(40), "t")
    finally:
        unsubscribe()
    assert (job.status, await scene.count("t")) == ("completed_with_errors", 39)
    ((row, _, error),) = await scene.outcomes(job)
    assert (row, error["code"]) == (7, "poison")
    assert "lost its database connection 3 times: terminating connection" in error["reason"]
    losses = [event.fields["losses"] for event in events if event.name == "batch.disconnected"]
    assert losses == [1, 2, 3, 4, 1, 2, 3], "40 rows, then 2 or 3, then the row alone"
    assert [event.fields["seq"] for event in events if event.name == "item.poison"] == [6]


async def test_lost_connection_postpones_batch_and_degrades_health(scene: Scene, db: Database) -> None:
    await add_hostile_table(scene, TERMINATE)
    job_id = await scene.submit(numbers(40), "t")
    async with asyncio.timeout(20):
        await drain(scene.mill, db=db, retries=False)
    query = "SELECT disconnects, extract(epoch FROM not_before - since)::float8 FROM tidemill.batch WHERE job_id = %s"
    delays = {}
    for _ in range(2):
        [(losses, delay)] = await scene.rows(query + " AND state = 'ready'", job_id)
        delays[losses] = round(delay, 1)
        await scene.rows("UPDATE tidemill.batch SET not_before = tidemill.now() WHERE job_id = %s", job_id)
        await drain(scene.mill, db=db, retries=False)
    assert delays == {1: 0.5, 2: 1.0}, "the backoff grows"
    assert any("lost the database connection" in reason for reason in (await check_health(db)).reasons)
    await assert_sound(db, job_id)


async def test_row_that_raises_state_of_lost_connection_fails_like_other_errors(scene: Scene) -> None:
    await add_hostile_table(scene, "RAISE EXCEPTION 'no' USING ERRCODE = '57P01'")
    async with asyncio.timeout(20):
        job = await scene.run(numbers(10), "t")
    assert (await scene.errors(job), await scene.count("t")) == ([(7, "exhausted")], 9)


async def test_row_that_sleeps_fails_with_timeout_and_next_import_is_not_paced(
    scene: Scene, settings: Settings
) -> None:
    bounded = Scene(scene.db, settings, Mill(settings.model_copy(update={"import_statement_timeout_s": 1})))
    await add_hostile_table(scene, "PERFORM pg_sleep(60)")
    async with asyncio.timeout(20):
        job = await bounded.run(numbers(20), "t")
    ((row, _, error),) = await scene.outcomes(job)
    assert (row, error["code"], error["reason"]) == (7, "timeout", "A database statement took longer than 1 s")
    assert await scene.count("t") == 19
    context = _engines[bounded.mill].context
    [semaphore] = context.semaphore_by_kind.values()
    assert semaphore.start_gap_s == 0, "the next batches start at once"
    pace_ms = context.sizing.pace_by_kind["tidemill.import"].item_ms
    assert pace_ms is not None
    assert pace_ms < 200, "the second that the row slept is not the pace of other rows"


@pytest.mark.parametrize("verb", ["pause", "cancel", "delete"])
async def test_stopping_import_cancels_its_running_statement(scene: Scene, db: Database, verb: str) -> None:
    await add_hostile_table(scene, "PERFORM pg_sleep(60)")
    job_id = await scene.submit(numbers(10), "t")
    running = asyncio.create_task(drain(scene.mill, db=db, retries=False))
    await sleeping(scene, 1)
    started = time.monotonic()
    await {"pause": job_control.pause_job, "cancel": job_control.cancel_job, "delete": job_control.delete_job}[verb](
        db, job_id
    )
    await sleeping(scene, 0)
    await asyncio.wait_for(running, STOP_WITHIN_S)
    assert time.monotonic() - started < STOP_WITHIN_S
    assert await scene.count("t") == 0
    if verb == "delete":
        assert await scene.rows("SELECT 1 FROM tidemill.job WHERE id = %s", job_id) == []
    else:
        job = await job_of(db, job_id)
        assert (job.status, job.counts.pending + job.counts.cancelled) == (
            {"pause": "paused", "cancel": "cancelled"}[verb],
            10,
        )
        await assert_sound(db, job_id)


async def sleeping(scene: Scene, count: int) -> None:
    """Wait until this number of sessions sleeps."""

    async def look() -> bool:
        query = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        return len(await scene.rows(query)) == count

    await eventually(look, STOP_WITHIN_S)
