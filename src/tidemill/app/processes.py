"""The parts of long-running commands: databases, workers, and the background loops of an API process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources

from tidemill.app.mill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.app.worker import Worker, make_worker
from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.engine.maintenance_loop import BulkOperationLoop, QueueDepthLoop
from tidemill.runtime import Runtime
from tidemill.store.database import Database
from tidemill.store.migrate import migrate_schema
from tidemill.store.open_database import open_database
from tidemill.tables.resource_registry import make_resource_registry

HTTP_DB_RETRY_BUDGET_S = 5.0
WORKER_DB_CONNECTIONS = 4
LOCAL_DB_CONNECTIONS = 8  # for a process with an API and two workers


async def run_worker(mill: Mill, reference: str, processes: int | None, stop: asyncio.Event) -> None:
    """Run a worker for the mill until ``stop`` is set."""
    async with open_database(mill.settings, size=WORKER_DB_CONNECTIONS) as db:
        await make_worker(db, mill, reference, processes or mill.settings.worker_pool_size).run(stop)


@asynccontextmanager
async def open_kickoff_worker_with_own_database(
    settings: Settings, mill: Mill, reference: str
) -> AsyncIterator[Worker]:
    """Run a worker with its own database whose children run only the time slices of kickoff requests."""
    async with (
        open_database(settings, size=WORKER_DB_CONNECTIONS) as db,
        open_kickoff_worker(db, mill, reference, settings.worker_pool_size) as worker,
    ):
        yield worker


@asynccontextmanager
async def open_kickoff_worker(db: Database, mill: Mill, reference: str, processes: int) -> AsyncIterator[Worker]:
    worker = make_worker(db, mill, reference, processes, on_demand=True)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


@asynccontextmanager
async def open_migrated_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database for `tidemill up` and migrate its schema."""
    async with open_database(settings, size=LOCAL_DB_CONNECTIONS, check=False) as db:
        await migrate_schema(db)
        yield db


@asynccontextmanager
async def open_http_runtime(settings: Settings, pool: Worker | None, mill: Mill | None) -> AsyncIterator[Runtime]:
    """Open the runtime of an API process; ``pool`` runs kickoffs, ``mill`` may declare resources.

    While the block runs, the process also continues bulk operations and measures the queue.
    """
    async with open_database(settings, patience=HTTP_DB_RETRY_BUDGET_S) as db:
        runtime = make_runtime(db, settings, None if mill is None else mill.registry, pool)
        loops = [BulkOperationLoop(db, runtime.operation_steps), QueueDepthLoop(db)]
        await check_declared_resources_match_tables(runtime)
        tasks = [asyncio.create_task(loop.run()) for loop in loops]
        try:
            yield runtime
        finally:
            for loop in loops:
                loop.request_stop()
            await asyncio.gather(*tasks)


async def check_declared_resources_match_tables(runtime: Runtime) -> None:
    """Raise InvalidSettings with all declared resources that do not match their tables."""
    problems = await runtime.get(make_resource_registry).find_declaration_problems(runtime.db)
    if problems:
        raise InvalidSettings("\n".join(problems))


async def create_demo_tables(db: Database) -> None:
    """Create the tables of ``demo/schema.sql`` if they do not exist."""
    async with db.transaction() as conn:
        await conn.execute((resources.files("tidemill.demo") / "schema.sql").read_bytes(), prepare=False)
