"""One run, and nothing left of it."""

import asyncio
from itertools import cycle, islice
from typing import Any
from uuid import uuid4

from tidemill.cli.bench.mill import NOOP, mill
from tidemill.cli.bench.place import opened, place
from tidemill.cli.bench.service.measure import Measure
from tidemill.cli.bench.service.plan import Plan
from tidemill.cli.bench.service.report import report
from tidemill.cli.bench.service.server import BenchServer
from tidemill.cli.views import errors
from tidemill.config import Settings, load_settings
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.identity import Role
from tidemill.engine.janitor import Janitor
from tidemill.store import bench, bench_job, users, workers
from tidemill.store.database import Database
from tidemill.store.users import User


def run(plan: Plan) -> dict[str, Any]:
    """Measure the service."""
    settings = load_settings()
    with place(settings) as ours:
        return asyncio.run(_run(plan, ours, is_own=settings.database_url is None))


async def _run(plan: Plan, settings: Settings, *, is_own: bool) -> dict[str, Any]:
    async with opened(settings, is_own=is_own) as db:
        user = await db.run(users.add, f"bench {uuid4().hex[:8]}", Role.USER)
        try:
            return await _measured(plan, settings, db, user, is_own=is_own)
        finally:
            if not is_own:
                await bench.clear(db, await db.run(bench.jobs_of, user.id))
                await db.run(users.remove, user)
                await Janitor(db, open_blobs(settings.blobs)).clean()


async def _measured(plan: Plan, settings: Settings, db: Database, user: User, *, is_own: bool) -> dict[str, Any]:
    await db.run(workers.register_kinds, mill.registry.all())
    made = [(await db.run(users.add_key, user.id))[0] for _ in range(min(plan.clients, users.KEYS_MAX))]
    keys = list(islice(cycle(made), plan.clients))
    with errors.status(f"making a job of {plan.items:,} items"):
        job_id = await bench_job.make(db, user.id, NOOP, plan.items)
    log = settings.home / "serve.log"
    async with BenchServer(settings, log, max_file_size_mb=max(plan.upload_mb, settings.max_file_size_mb)) as server:
        measure = Measure(plan, server, job_id, keys)
        await measure.take()
    return report(plan, measure.samples, measure.pages, await db.run(bench.server), settings, is_own=is_own)
