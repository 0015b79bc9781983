"""Distributions whose queries are slow: claims fit the database connections, and waiting inputs can be stopped."""

import asyncio
from uuid import UUID

from distributions.scenes import Scene
from support import eventually, rows
from tidemill.config import Settings
from tidemill.core.kinds import DISTRIBUTION_KIND
from tidemill.jobs import job_control
from tidemill.store.database import Database
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing.drain import DrainEngine


def make_scene(db: Database, settings: Settings, seconds: float) -> Scene:
    scene = Scene(db, settings)
    query = f"SELECT %(index_key)s AS k, pg_sleep({seconds})::text AS s"
    scene.mill.dataset("slow", query=query, fields={"index_key": "text"}, read=["user"])
    return scene


def slow_inputs(count: int) -> list[dict[str, str]]:
    return [{"index_key": f"K{n}"} for n in range(count)]


async def finish_and_list_claims(scene: Scene, job_id: UUID) -> list[int]:
    """Run a distribution to its end, and return the sizes of its claims."""
    claimed: list[int] = []

    def record_claim(event: Event) -> None:
        if event.name == "batch.claimed":
            claimed.append(event.fields["size"])

    unsubscribe = subscribe(record_claim)
    try:
        await scene.finish(job_id)
    finally:
        unsubscribe()
    return claimed


async def test_claims_of_slow_queries_fit_the_database_connections(db: Database, settings: Settings) -> None:
    """A process runs 4 queries at a time. If it claimed all inputs, other processes would be idle."""
    scene = make_scene(db, settings.model_copy(update={"worker_target_slice_ms": 200}), 0.1)
    job_id = await scene.submit_these(slow_inputs(20), "slow")
    claimed = await finish_and_list_claims(scene, job_id)
    assert claimed[0] <= 4, "the pace is not known yet"
    assert max(claimed) <= 8, "a slice has time for about 5 inputs"
    assert (await scene.job(job_id)).counts.done == 20


async def test_inputs_without_query_are_claimed_in_large_numbers(db: Database, settings: Settings) -> None:
    scene = Scene(db, settings)
    scene.mill.dataset("made", fields={"index_key": "text"}, columns=["k"], read=["user"])(_produce)
    job_id = await scene.submit_these(slow_inputs(60), "made")
    claimed = await finish_and_list_claims(scene, job_id)
    assert claimed[0] <= 4, "it is not known yet that the inputs need no connection"
    assert max(claimed) >= 50


async def _produce(values: dict[str, str]) -> list[tuple[str]]:
    await asyncio.sleep(0.2)
    return [(values["index_key"],)]


async def test_cancelled_distribution_does_not_start_queries_that_wait_for_a_connection(
    db: Database, settings: Settings
) -> None:
    scene = make_scene(db, settings, 1.0)
    job_id = await scene.submit_these(slow_inputs(20), "slow")
    engine = DrainEngine(scene.mill, db)
    engine.context.sizing.record_pace(DISTRIBUTION_KIND, 1_000, 0.1)  # earlier inputs were fast: one claim takes all
    draining = asyncio.create_task(engine.run_until_idle(retries=False))

    async def four_queries_run() -> bool:
        query = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        return len(await rows(db, query)) == 4

    await eventually(four_queries_run, 10)
    await job_control.cancel_job(db, job_id)
    await asyncio.wait_for(draining, 10)
    job = await scene.job(job_id)
    assert (job.status, job.counts.done, job.counts.cancelled) == ("cancelled", 4, 16)
