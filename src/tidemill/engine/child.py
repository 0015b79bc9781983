"""A child process: lanes and an ingester, until its parent says stop or is no more."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
import threading
import time
from uuid import UUID

from tidemill.engine.claim import Claimer
from tidemill.engine.context import Context
from tidemill.engine.control import Begin, Decoder, End, Message, Stop, Wake
from tidemill.engine.ingest import Ingester
from tidemill.engine.insight import Insight
from tidemill.engine.service import Service
from tidemill.engine.slices import Slices
from tidemill.engine.worker import Lane

PULSE_S = 0.25
STACK_BYTES = 1 << 20  # of a handler's thread: 128 of them must fit into the memory limit
ORPHAN_GRACE_S = 5.0


def limit_memory(megabytes: int) -> None:
    """A handler that eats memory gets a MemoryError, and the machine stays alive."""
    threading.stack_size(STACK_BYTES)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))


class Loops:
    """Whatever there is to do, of every job."""

    def __init__(self, context: Context) -> None:
        self._claimer = Claimer(context)
        *lanes, last = context.book.pages
        self._services: list[Service] = [Lane(context, self._claimer, page) for page in lanes]
        self._services.append(Ingester(context, last))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for service in self._services:
                group.create_task(service.run())

    def wake(self, job_id: UUID | None = None) -> None:
        self._claimer.forget()
        if job_id is not None:
            self._claimer.prefer(job_id)
        for service in self._services:
            service.wake()

    def stop(self) -> None:
        for service in self._services:
            service.stop()


class Child:
    """Does its work and hears its parent."""

    def __init__(self, context: Context, control: int, work: Loops | Slices) -> None:
        self._context = context
        self._control = control
        self._work = work
        self._grace = context.settings.stop_grace_ms / 1000

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop, self._grace)
        loop.add_signal_handler(signal.SIGINT, lambda: None)  # a terminal's Ctrl-C is for the parent
        threading.Thread(target=self._listen, args=(loop,), name="control", daemon=True).start()
        beside = [asyncio.create_task(loop) for loop in (self._pulse(), Insight(self._context).run())]
        await self._work.run()
        await self._context.limits.close()
        for task in beside:
            task.cancel()
        await self._context.close()

    def stop(self, grace: float) -> None:
        self._context.stop(grace)
        self._work.stop()

    def hear(self, message: Message) -> None:
        match message, self._work:
            case Stop(), _:
                self.stop(self._grace)
            case Wake(job_id), Loops() as loops:
                loops.wake(job_id)
            case Wake(), Slices() as slices:
                slices.wake()
            case Begin(), Slices() as slices:
                slices.begin(message)
            case End(number), Slices() as slices:
                slices.end(number)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: a handler that blocks the event loop must not outlive its parent unseen."""
        heard = Decoder()
        with contextlib.suppress(ValueError):  # a parent of another version is none
            while said := os.read(self._control, 4096):
                for message in heard.feed(said):
                    loop.call_soon_threadsafe(self.hear, message)
        # Nobody keeps our leases any more: finish quickly, and by force if that does not work.
        loop.call_soon_threadsafe(self.stop, ORPHAN_GRACE_S)
        time.sleep(2 * ORPHAN_GRACE_S)
        os._exit(70)

    async def _pulse(self) -> None:
        while True:
            self._context.book.beat()
            await asyncio.sleep(PULSE_S)
