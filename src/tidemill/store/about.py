"""Telling of a job for which nobody has its facts at hand: what users do to it, and what happens once in its life."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from tidemill.store.bulk import Step
from tidemill.store.database import Database
from tidemill.store.jobs import facts
from tidemill.telemetry.events import bound, emit


@asynccontextmanager
async def about(db: Database, job_id: UUID) -> AsyncIterator[None]:
    """Every event inside names the job, its kind, and the request that made it."""
    known = await db.run(facts, job_id)
    with bound(job=job_id, **known):
        yield


async def tell_step(db: Database, step: Step) -> None:
    """Items of a job go round again or were cancelled, whoever carried the operation this far."""
    if step.job_id is not None and step.items:
        with bound(request_id=step.request_id):
            async with about(db, step.job_id):
                name = "items.cancelled" if step.verb == "cancel" else "job.reprocessed"
                emit(name, job=step.job_id, items=step.items)
