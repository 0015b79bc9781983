"""A child that works only when it is asked to: on one job, and for so long."""

import asyncio

from tidemill.engine.claim import OneJob
from tidemill.engine.context import Context
from tidemill.engine.control import Begin
from tidemill.engine.ingest import Ingester
from tidemill.engine.service import Service
from tidemill.engine.worker import Lane

GRACE_S = 2.0
LOOK_S = 0.1  # how often a loop looks again while another one of the slice still works


def slice_grace(stop_grace_ms: int) -> float:
    """How long items in hand may take when a slice is over: somebody waits for it, so not for long."""
    return min(stop_grace_ms / 1000, GRACE_S)


class Slices:
    """Takes slices one after the other. Between two of them nothing is asked of the database."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._grace = slice_grace(context.settings.stop_grace_ms)
        self._job = OneJob(context)
        *pages, last = context.book.pages
        self._ingester = Ingester(context, last)
        self._loops: list[Service] = [*(Lane(context, self._job, page) for page in pages), self._ingester]
        self._idle: set[Service] = set()
        self._worked = False
        self._waiting: asyncio.Queue[Begin | None] = asyncio.Queue()
        self._ended = 0  # every slice up to this number is over, or will be when its turn comes

    async def run(self) -> None:
        """Until stopped, or until a handler's thread is left behind, which only the end of the process ends."""
        book = self._context.book
        book.set_ready(True)
        while (order := await self._waiting.get()) is not None:
            if order.number > self._ended:
                await self._turn(order)
            book.set_ready(not self._context.threads_left)
            book.end_slice(order.number)
            if self._context.threads_left:
                return

    def begin(self, order: Begin) -> None:
        self._waiting.put_nowait(order)

    def end(self, number: int) -> None:
        """No further item is begun; those in hand have a moment."""
        if number > self._ended:
            self._ended = number
            self._context.stop(self._grace)
            self.wake()

    def wake(self) -> None:
        for loop in self._loops:
            loop.wake()

    def stop(self) -> None:
        """The whole child stops: a slice under way has the child's grace."""
        self._ended = max(self._ended, 1 << 62)
        self.wake()
        self._waiting.put_nowait(None)

    async def _turn(self, order: Begin) -> None:
        self._job.turn_to(order.job_id, order.kind)
        self._ingester.only = order.job_id
        self._idle.clear()
        seconds = order.milliseconds / 1000
        self._context.begin_slice(seconds)
        timer = asyncio.get_running_loop().call_later(seconds, self.end, order.number)
        async with asyncio.TaskGroup() as group:
            for loop in self._loops:
                group.create_task(self._work(loop, order.number))
        timer.cancel()

    async def _work(self, loop: Service, number: int) -> None:
        """Over when no loop has found anything since one last did."""
        while not self._context.stopping:
            delay = await loop.step()
            if not delay:
                self._idle.clear()
                self._worked = True
                continue
            self._idle.add(loop)
            if len(self._idle) == len(self._loops):
                self.end(number)
            elif not self._context.stopping:
                self._let_others_look(loop)
                await loop.pause(min(delay, LOOK_S))
                self._idle.discard(loop)

    def _let_others_look(self, loop: Service) -> None:
        """At once, and once: who found nothing before this loop's last work may find something now."""
        if self._worked:
            self._worked = False
            for other in self._loops:
                if other is not loop:
                    other.wake()
