"""Running submitted work in the test's own process."""

from tidemill.app import Mill, make_context, open_database
from tidemill.engine.claim import Claimer
from tidemill.engine.ingest import Ingester
from tidemill.engine.logbook import Logbook
from tidemill.engine.sweep import Maintenance
from tidemill.engine.worker import Lane
from tidemill.store.database import Database
from tidemill.store.testing import make_due

MAX_ROUNDS = 10_000


async def drain(mill: Mill, *, retries: bool = True, db: Database | None = None) -> None:
    """Run everything that was submitted to ``mill``'s database, until nothing of it is due.

    Retries are not waited for: what would be due later is due at once. With ``retries=False`` they stay waiting.
    A handler that ends its process ends the test: there is no child here.
    """
    if db is not None:
        await _drain(mill, db, retries)
        return
    async with open_database(mill.settings) as opened:
        await _drain(mill, opened, retries)


async def _drain(mill: Mill, db: Database, retries: bool) -> None:
    book = Logbook.create(2)
    context = make_context(db, mill.settings, mill.registry, worker="drain", book=book)
    try:
        claimer = Claimer(context)
        lane, ingester = Lane(context, claimer, book.pages[0]), Ingester(context, book.pages[1])
        for _ in range(MAX_ROUNDS):
            while not await ingester.tick():
                claimer.forget()
            while not await lane.tick():
                claimer.forget()
            claimer.forget()
            await Maintenance(db, "drain").close_jobs()
            if not retries or not await db.run(make_due, context.handlers.kinds()):
                return
    finally:
        await context.close()
        book.close()
