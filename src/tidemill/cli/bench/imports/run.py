"""One run, and nothing left of it."""

import asyncio
from typing import Any

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.imports.plan import Plan
from tidemill.cli.bench.imports.report import report
from tidemill.cli.bench.imports.turns import Turns
from tidemill.cli.bench.place import opened, place
from tidemill.config import Settings, load_settings
from tidemill.store import bench
from tidemill.store.bench_import import BareTable


def run(plan: Plan) -> dict[str, Any]:
    """Measure imports."""
    settings = load_settings()
    with place(settings) as ours:
        return asyncio.run(_run(plan, ours, is_own=settings.database_url is None))


async def _run(plan: Plan, settings: Settings, *, is_own: bool) -> dict[str, Any]:
    async with opened(settings, is_own=is_own) as db:
        engine = Engine(db, settings)
        try:
            with engine, BareTable(db.url) as bare:
                samples = await Turns(plan, db, settings, engine, bare).take()
            return report(plan, samples, await db.run(bench.server), is_own=is_own)
        finally:
            if not is_own:
                await bench.clear(db, engine.jobs)
