"""Provides commands with a runtime and a worker in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemill.app.bootstrap import load_mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.config import load_settings
from tidemill.runtime import Runtime
from tidemill.store import workers
from tidemill.store.migrate import migrate_schema
from tidemill.store.open_database import open_database

COMMAND_DB_RETRY_BUDGET_S = 30.0


class LocalCommandHost:
    """Runs commands in this process, with settings from the environment."""

    @asynccontextmanager
    async def open_runtime(self, app: str, *, migrate: bool, check: bool) -> AsyncIterator[Runtime]:
        settings = load_settings()
        async with open_database(settings, check=check and not migrate, patience=COMMAND_DB_RETRY_BUDGET_S) as db:
            if migrate:
                await migrate_schema(db)
            yield make_runtime(db, settings, load_mill(app).registry)

    @asynccontextmanager
    async def ensure_worker(self, runtime: Runtime, kind: str, app: str, processes: int) -> AsyncIterator[bool]:
        if kind in await runtime.db.read(workers.list_live_kinds):
            yield False
            return
        from tidemill.app.worker import make_worker  # noqa: PLC0415  commands that need no worker start faster

        worker = make_worker(runtime.db, load_mill(app), app, processes)
        await worker.start()
        try:
            yield True
        finally:
            await worker.stop()

    async def register_mill_kind(self, runtime: Runtime, app: str, kind: str) -> None:
        await runtime.db.run(workers.register_kinds, [load_mill(app).registry.get(kind)])

    def list_mill_kinds(self, app: str) -> list[str]:
        return load_mill(app).registry.kinds()
