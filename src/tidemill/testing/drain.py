"""Runs submitted jobs in the process of a test."""

import asyncio
import weakref
from collections.abc import Sequence

from tidemill.app.mill import Mill
from tidemill.app.runtime_factory import make_engine_context
from tidemill.core.kinds import Handler
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.context import EngineContext
from tidemill.engine.ingester import Ingester
from tidemill.engine.lane import FairClaimer, Lane
from tidemill.engine.maintenance_loop import MaintenanceLoop
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.engine.source_fetcher import SourceFetcher
from tidemill.store.database import Connection, Database
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill.testing")

MAX_DRAIN_ROUNDS = 10_000


async def drain(mill: Mill, *, retries: bool = True, db: Database | None = None) -> None:
    """Run all submitted jobs in the database of ``mill`` until no item is due.

    Retries run immediately, without their delay. With ``retries=False`` they keep waiting. Start hooks run before
    the items, stop hooks after them. A handler that ends its process ends the test, because there is no child process.
    """
    db = db or await mill.shared_database.get_for_running_loop()
    engine = _engines.get(mill)
    if engine is None or not engine.is_reusable(mill, db):
        engine = _engines[mill] = DrainEngine(mill, db)
    engine.is_running = True  # a concurrent call creates its own engine
    try:
        async with mill.registry.run_start_and_stop_hooks():
            await engine.run_until_idle(retries=retries)
    finally:
        engine.is_running = False
        await engine.context.close_handlers()


class DrainEngine:
    """The loops of a worker process, in the event loop of a test. ``drain`` keeps one for each mill between calls."""

    def __init__(self, mill: Mill, db: Database) -> None:
        shared_state = SharedState.create(2)
        shared_state.close()  # no child process inherits its file; the memory stays
        self.context: EngineContext = make_engine_context(
            db, mill.settings, mill.registry, worker="drain", shared_state=shared_state
        )
        self._declared: list[Handler] = mill.registry.list_created_handlers()
        self._event_loop = asyncio.get_running_loop()
        self.is_running = False
        lane_state, ingester_state = shared_state.lanes
        self._claimer = FairClaimer(self.context)
        self._lane = Lane(self.context, self._claimer, lane_state)
        self._ingester = Ingester(self.context, ingester_state)
        self._fetcher = SourceFetcher(self.context)

    def is_reusable(self, mill: Mill, db: Database) -> bool:
        """Return whether it is idle, has the same database and handlers, and the last run adapted nothing."""
        context = self.context
        return (
            not self.is_running
            and context.db is db
            and context.settings is mill.settings
            and self._event_loop is asyncio.get_running_loop()
            and context.handlers.list_created_handlers() == self._declared == mill.registry.list_created_handlers()
            and not context.declared_limiters
            and not mill.registry.declarations.limiters
            and all(semaphore.slots == semaphore.max_slots for semaphore in context.semaphore_by_kind.values())
        )

    async def run_until_idle(self, *, retries: bool) -> None:
        db = self.context.db
        for _ in range(MAX_DRAIN_ROUNDS):
            await self._tick_until_idle(self._lane)
            if not await db.read(has_open_jobs):
                return
            await self._tick_until_idle(self._fetcher)
            await self._fetcher.wait_for_downloads()
            has_new_items = await self._tick_until_idle(self._ingester)
            maintenance = MaintenanceLoop(db, "drain", find_kind_hooks=self.context.find_kind_hooks)
            await maintenance.finalize_due_jobs()
            if has_new_items:
                continue
            if not retries or not await db.run(make_batches_due, self.context.handlers.kinds()):
                return

    async def _tick_until_idle(self, loop: PeriodicLoop) -> bool:
        """Tick until the loop is idle; return whether it worked.

        Each tick runs in a task, as in a worker, so that context variables set by a handler do not reach the test.
        """
        has_worked = False
        self._claimer.invalidate_job_cache()
        while not await asyncio.create_task(loop.tick()):
            has_worked = True
            self._claimer.invalidate_job_cache()
        return has_worked


_engines: weakref.WeakKeyDictionary[Mill, DrainEngine] = weakref.WeakKeyDictionary()


async def has_open_jobs(conn: Connection) -> bool:
    cursor = await conn.execute(sql("testing/has_open_jobs"))
    return await cursor.fetchone() is not None


async def make_batches_due(conn: Connection, kinds: Sequence[str] | None = None) -> int:
    """Make every batch of these kinds (default: all) that waits for a retry due now; return their number."""
    cursor = await conn.execute(sql("testing/make_due"), {"kinds": None if kinds is None else list(kinds)})
    return cursor.rowcount
