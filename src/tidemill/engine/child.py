"""A child process: lanes and an ingester, until its parent says stop or is no more."""

import asyncio
import os
import resource
import signal
import sys
import threading
import time

from tidemill.engine.claim import Claimer
from tidemill.engine.context import Context
from tidemill.engine.ingest import Ingester
from tidemill.engine.service import Service
from tidemill.engine.worker import Lane

WAKE, STOP = b"w", b"s"
PULSE_S = 0.25
STACK_BYTES = 1 << 20  # of a handler's thread: 128 of them must fit into the memory limit
ORPHAN_GRACE_S = 5.0


def limit_memory(megabytes: int) -> None:
    """A handler that eats memory gets a MemoryError, and the machine stays alive."""
    threading.stack_size(STACK_BYTES)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))


class Child:
    """The loops of a child process."""

    def __init__(self, context: Context, control: int) -> None:
        self._context = context
        self._control = control
        self._claimer = Claimer(context)
        *lanes, last = context.book.pages
        self._services: list[Service] = [Lane(context, self._claimer, page) for page in lanes]
        self._services.append(Ingester(context, last))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        grace = self._context.settings.stop_grace_ms / 1000
        loop.add_signal_handler(signal.SIGTERM, self.stop, grace)
        loop.add_signal_handler(signal.SIGINT, lambda: None)  # a terminal's Ctrl-C is for the parent
        threading.Thread(target=self._listen, args=(loop, grace), name="control", daemon=True).start()
        pulse = asyncio.create_task(self._pulse())
        async with asyncio.TaskGroup() as group:
            for service in self._services:
                group.create_task(service.run())
        pulse.cancel()

    def stop(self, grace: float) -> None:
        self._context.stop(grace)
        for service in self._services:
            service.stop()

    def wake(self) -> None:
        self._claimer.forget()
        for service in self._services:
            service.wake()

    def _listen(self, loop: asyncio.AbstractEventLoop, grace: float) -> None:
        """In a thread: a handler that blocks the event loop must not outlive its parent unseen."""
        while said := os.read(self._control, 4096):
            if STOP in said:
                loop.call_soon_threadsafe(self.stop, grace)
            elif WAKE in said:
                loop.call_soon_threadsafe(self.wake)
        # Nobody keeps our leases any more: finish quickly, and by force if that does not work.
        loop.call_soon_threadsafe(self.stop, ORPHAN_GRACE_S)
        time.sleep(2 * ORPHAN_GRACE_S)
        os._exit(70)

    async def _pulse(self) -> None:
        while True:
            self._context.book.beat()
            await asyncio.sleep(PULSE_S)
