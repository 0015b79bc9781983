"""Running submitted work in the test's own process."""

from collections.abc import Sequence

from tidemill.app.build import make_engine_context
from tidemill.app.mill import Mill
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.claimer import FairClaimer
from tidemill.engine.context import EngineContext
from tidemill.engine.ingester import Ingester
from tidemill.engine.lane import Lane
from tidemill.engine.maintenance.maintenance_loop import MaintenanceLoop
from tidemill.store.database import Connection, Database
from tidemill.store.statements import load_sql

sql = load_sql("tidemill.testing")

MAX_DRAIN_ROUNDS = 10_000


async def drain(mill: Mill, *, retries: bool = True, db: Database | None = None) -> None:
    """Run everything that was submitted to ``mill``'s database, until nothing of it is due.

    Retries are not waited for: what would be due later is due at once. With ``retries=False`` they stay waiting.
    Start hooks run before and stop hooks after. A handler that ends its process ends the test: there is no child here.
    """
    db = db or await mill.shared_database.get()
    book = SharedState.create(2)
    context = make_engine_context(db, mill.settings, mill.registry, worker="drain", shared_state=book)
    try:
        async with mill.registry.run_hooks():
            await _run_until_idle(context, retries)
    finally:
        await context.close_handlers()
        book.close()


async def _run_until_idle(context: EngineContext, retries: bool) -> None:
    db, (lane_page, ingester_page) = context.db, context.shared_state.lanes
    claimer = FairClaimer(context)
    lane, ingester = Lane(context, claimer, lane_page), Ingester(context, ingester_page)
    for _ in range(MAX_DRAIN_ROUNDS):
        while not await ingester.tick():
            claimer.invalidate_cache()
        while not await lane.tick():
            claimer.invalidate_cache()
        claimer.invalidate_cache()
        await MaintenanceLoop(db, "drain").close_finished_jobs()
        if not retries or not await db.run(make_batches_due, context.handlers.kinds()):
            return


async def make_batches_due(conn: Connection, kinds: Sequence[str] | None = None) -> int:
    """Let every batch, of these kinds or of any, that is to be tried again be due now; how many there are."""
    cursor = await conn.execute(sql("testing/make_due"), {"kinds": None if kinds is None else list(kinds)})
    return cursor.rowcount
