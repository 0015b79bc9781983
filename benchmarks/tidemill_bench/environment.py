"""Where to measure: on DATABASE_URL, or on a server of our own that is gone afterwards.

One run of turns, and nothing left of it.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tidemill.config import Settings, load_settings
from tidemill.store.database import Database
from tidemill.store.migrate import migrate_schema
from tidemill.store.open_database import open_database
from tidemill_bench import database
from tidemill_bench.engine_driver import EngineDriver


@contextmanager
def prepare_bench_settings(settings: Settings) -> Iterator[Settings]:
    """Settings with a database to measure on, and a folder for files that is gone afterwards."""
    settings.home.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="bench-", dir=settings.home))
    folders = {"home": home, "blobs": str(home / "blobs")}
    try:
        if settings.database_url is not None:
            yield settings.model_copy(update=folders)
            return
        with database.run_durable_server(settings.home) as url:
            yield settings.model_copy(update=folders | {"database_url": url})
    finally:
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def open_bench_database(settings: Settings, *, is_own: bool) -> AsyncIterator[Database]:
    """That database, with the schema."""
    async with open_database(settings, check=not is_own) as db:
        if is_own:
            await migrate_schema(db)
        yield db


Samples = Mapping[str, Sequence[float]]
SampleCollector = Callable[[Database, Settings, EngineDriver], Awaitable[Samples]]
ReportBuilder = Callable[[Samples, dict[str, str], Settings, bool], dict[str, Any]]


def run_measurement(collect_samples: SampleCollector, build_report: ReportBuilder) -> dict[str, Any]:
    """What the samples that ``take`` took come to, by ``report``: of samples, server, settings, and whose server."""
    settings = load_settings()
    with prepare_bench_settings(settings) as ours:
        return asyncio.run(_run_measurement(collect_samples, build_report, ours, is_own=settings.database_url is None))


async def _run_measurement(
    take: SampleCollector, report: ReportBuilder, settings: Settings, *, is_own: bool
) -> dict[str, Any]:
    async with open_bench_database(settings, is_own=is_own) as db:
        engine = EngineDriver(db, settings)
        try:
            with engine:
                samples = await take(db, settings, engine)
            return report(samples, await db.run(database.read_server_settings), settings, is_own)
        finally:
            if not is_own:
                await database.remove_benchmark_data(db, engine.jobs)
