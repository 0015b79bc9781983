"""One run, and nothing left of it."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidemill.app import open_database
from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.plan import Plan
from tidemill.cli.bench.report import report
from tidemill.cli.bench.turns import Turns
from tidemill.config import Settings, load_settings
from tidemill.store import bench
from tidemill.store.bench import Bare
from tidemill.store.migrate import migrate


def run(plan: Plan) -> dict[str, Any]:
    """Measure on DATABASE_URL, or on a server of our own that is gone afterwards."""
    settings = load_settings()
    with _database(settings) as ours:
        return asyncio.run(_run(plan, ours, is_own=settings.database_url is None))


@contextmanager
def _database(settings: Settings) -> Iterator[Settings]:
    """Settings with a database to measure on, and a folder for files that is gone afterwards."""
    settings.home.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="bench-", dir=settings.home))
    try:
        if settings.database_url is not None:
            yield settings.model_copy(update={"home": home})
            return
        with bench.own_server(settings.home) as url:
            yield settings.model_copy(update={"home": home, "database_url": url})
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _run(plan: Plan, settings: Settings, *, is_own: bool) -> dict[str, Any]:
    async with open_database(settings, check=not is_own) as db:
        if is_own:
            await migrate(db)
        engine = Engine(db, settings)
        try:
            with engine, Bare(db.url) as bare:
                samples = await Turns(plan, db, engine, bare, settings.home).take()
            return report(plan, samples, await db.run(bench.server), settings, is_own=is_own)
        finally:
            if not is_own:
                await bench.clear(db, engine.jobs)
