"""One run of turns, and nothing left of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.place import opened, place
from tidemill.config import Settings, load_settings
from tidemill.store import bench
from tidemill.store.database import Database

Samples = Mapping[str, Sequence[float]]
Take = Callable[[Database, Settings, Engine], Awaitable[Samples]]
Report = Callable[[Samples, dict[str, str], Settings, bool], dict[str, Any]]


def measured(take: Take, report: Report) -> dict[str, Any]:
    """What the samples that ``take`` took come to, by ``report``: of samples, server, settings, and whose server."""
    settings = load_settings()
    with place(settings) as ours:
        return asyncio.run(_measured(take, report, ours, is_own=settings.database_url is None))


async def _measured(take: Take, report: Report, settings: Settings, *, is_own: bool) -> dict[str, Any]:
    async with opened(settings, is_own=is_own) as db:
        engine = Engine(db, settings)
        try:
            with engine:
                samples = await take(db, settings, engine)
            return report(samples, await db.run(bench.server), settings, is_own)
        finally:
            if not is_own:
                await bench.clear(db, engine.jobs)
