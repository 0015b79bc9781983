"""One lane of a worker: claim, process, decide, flush, again and again."""

import asyncio
import time
from uuid import uuid4

from tidemill.domain.batch import Lease
from tidemill.domain.errors import StaleLease
from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.engine import finalize, logbook, tell
from tidemill.engine.batchwise import BatchRun, LetGo
from tidemill.engine.claim import Chooser
from tidemill.engine.context import Context
from tidemill.engine.flush import Flusher, count
from tidemill.engine.logbook import Page
from tidemill.engine.process import ItemRun
from tidemill.engine.service import Service
from tidemill.store import items as store
from tidemill.store import leases
from tidemill.store.flush import Flushed
from tidemill.telemetry.events import emit


class Lane(Service):
    """Turns one batch at a time."""

    name = "lane"

    def __init__(self, context: Context, claimer: Chooser, page: Page) -> None:
        super().__init__()
        self._context = context
        self._claimer = claimer
        self._page = page

    async def tick(self) -> float:
        lease_id = uuid4()
        self._page.begin(lease_id)
        lease = await self._claimer.claim(lease_id)
        if lease is None:
            self._page.end()
            return self._claimer.pause_s
        with tell.turning(lease):
            try:
                await self._turn(lease)
            except Exception:
                # A bug, or a schema that is not ours. Nobody works on the batch any more: it must not stay leased.
                await self._context.db.run(leases.release, lease, speaking_for_the_dead=True, losses=1)
                emit("batch.released", job=lease.job_id, batch=lease.batch_id, items=lease.open)
                self._page.end()
                raise
        self._page.end()  # not for what ends the process: its parent reads the page then
        return 0

    async def _turn(self, lease: Lease) -> None:
        handler = self._context.handlers.get(lease.kind)
        self._page.set_timeout(handler.timeout)
        async with self._context.gate.passing(alone=lease.isolated):
            read = store.read_whole if handler.is_batch else store.read
            items = await self._context.db.run(read, lease, exact=handler.exact)
            turn = self._turn_batch if handler.is_batch else self._turn_items
            failed = await turn(lease, handler, items)
        await finalize.after_batch(self._context.db, lease.job_id, failed=failed)

    async def _turn_items(self, lease: Lease, handler: Handler, items: list[Item]) -> int:
        """How many items failed."""
        flusher = Flusher(self._context, lease, handler, self._page)
        started = finished = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(flusher.run())
                await ItemRun(self._context, handler, self._page, flusher, alone=lease.isolated).run(items)
                finished = time.monotonic()  # the last flush is not the items' time: of one alone it would be the most
                flusher.close()
        except* StaleLease:
            flusher.lost = True
        if not flusher.lost:
            await self._release_rest(flusher.lease)
            self._learn(lease, lease.open - flusher.lease.open, finished - started)
        return flusher.failed

    async def _turn_batch(self, lease: Lease, handler: Handler, items: list[Item]) -> int:
        """How many items failed."""
        if self._context.stopping:
            await self._release_rest(lease)
            return 0
        run = BatchRun(self._context, lease, handler, self._page)
        try:
            result = await run.run(items)
        except LetGo:
            await self._release_rest(lease)
            return 0
        finally:
            self._learn(lease, len(items), run.seconds)
        if result is Flushed.STALE:
            self._context.book.count(logbook.STALE, len(items))
            emit("batch.stale", job=lease.job_id, batch=lease.batch_id, items=len(items))
        if result is not Flushed.APPLIED:
            return 0
        tally = tell.flushed(lease, run.decided.verdicts, seconds=None, plain=run.decided.plain)
        count(self._context.book, tally)
        await self._release_rest(lease.flushed(len(items)))
        return tally.failed

    def _learn(self, lease: Lease, items: int, seconds: float) -> None:
        # One that must run alone says nothing of the others' pace, and neither does a batch that was never begun.
        if seconds > 0 and not lease.isolated:
            self._context.learn(lease.kind, items, seconds)

    async def _release_rest(self, lease: Lease) -> None:
        if lease.open:
            await self._context.db.run(leases.release, lease)
            emit("batch.released", job=lease.job_id, batch=lease.batch_id, items=lease.open)
