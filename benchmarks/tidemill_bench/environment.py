"""Run a benchmark on DATABASE_URL or on a temporary server, and remove its data at the end."""

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
    """Yield settings with a database for the benchmark and a temporary folder for its files."""
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
    """Yield the database of the settings; migrate it if it is the benchmark's own."""
    async with open_database(settings, check=not is_own) as db:
        if is_own:
            await migrate_schema(db)
        yield db


Samples = Mapping[str, Sequence[float]]
SampleCollector = Callable[[Database, Settings, EngineDriver], Awaitable[Samples]]
ReportBuilder = Callable[[Samples, dict[str, str], Settings, bool], dict[str, Any]]


def run_measurement(collect_samples: SampleCollector, build_report: ReportBuilder) -> dict[str, Any]:
    """Collect the samples and return the report on them.

    ``build_report`` gets the samples, the server's settings, Tidemill's settings, and whether the server is temporary.
    """
    settings = load_settings()
    with prepare_bench_settings(settings) as bench_settings:
        return asyncio.run(
            _run_measurement(collect_samples, build_report, bench_settings, is_own=settings.database_url is None)
        )


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
