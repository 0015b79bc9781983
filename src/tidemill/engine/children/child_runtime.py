"""A child process: runs lanes and an ingester until its parent stops it or dies."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
import threading
import time
from contextlib import AbstractAsyncContextManager
from uuid import UUID

from tidemill.core.child_exit import EXIT_LOOP_FAILED
from tidemill.engine.adaptive_state_report import AdaptiveStateLoop
from tidemill.engine.children.control_pipe import (
    ControlDecoder,
    ControlMessage,
    EndSliceMessage,
    StartSliceMessage,
    StopMessage,
    WakeMessage,
)
from tidemill.engine.children.time_slices import TimeSliceWork
from tidemill.engine.context import INGESTERS, SPARE_LANES, EngineContext
from tidemill.engine.ingester import Ingester, IngestOwners
from tidemill.engine.lane import FairClaimer, Lane
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.engine.source_fetcher import SourceFetcher

PULSE_INTERVAL_S = 0.25
HANDLER_STACK_BYTES = 1 << 20  # stack of a handler's thread: 128 of them must fit into the memory limit
ORPHAN_GRACE_S = 5.0


def limit_process_memory(megabytes: int) -> None:
    """Limit the memory of this process: a handler that exceeds it gets a MemoryError."""
    threading.stack_size(HANDLER_STACK_BYTES)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))


class ContinuousWork:
    """Works on all jobs continuously."""

    def __init__(self, context: EngineContext) -> None:
        pages, owners = context.shared_state.lanes, IngestOwners()
        lanes, ingesters = pages[:-INGESTERS], pages[-INGESTERS:]
        self._claimer = FairClaimer(context, max_lanes_per_owner=len(lanes) - SPARE_LANES)
        self.loops: list[PeriodicLoop] = [Lane(context, self._claimer, page) for page in lanes]
        self.loops += [*(Ingester(context, page, owners) for page in ingesters), SourceFetcher(context)]
        self._is_stopping = False

    async def run(self) -> None:
        """Run until stopped. Raises RuntimeError if a loop ended earlier: a handler has cancelled its task."""
        tasks = [asyncio.create_task(service.run()) for service in self.loops]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not self._is_stopping:
            raise RuntimeError("A loop of the child process ended although the process was not stopped")
        await asyncio.gather(*tasks)

    def wake(self, job_id: UUID | None = None) -> None:
        self._claimer.invalidate_job_cache()
        if job_id is not None:
            self._claimer.prefer_hinted_job(job_id)
        for service in self.loops:
            service.wake()

    def request_stop(self) -> None:
        self._is_stopping = True
        for service in self.loops:
            service.request_stop()


class ChildRuntime:
    """Runs the work of a child and handles the control messages of its parent."""

    def __init__(
        self,
        context: EngineContext,
        control: int,
        work: ContinuousWork | TimeSliceWork,
        hooks: AbstractAsyncContextManager[None],
    ) -> None:
        """``hooks`` is entered before the first item and exited after the last."""
        self._context = context
        self._control_fd = control
        self._work = work
        self._hooks = hooks
        self._grace = context.settings.stop_grace_ms / 1000

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.request_stop, self._grace)
        loop.add_signal_handler(signal.SIGINT, lambda: None)  # a terminal's Ctrl-C is for the parent
        threading.Thread(
            target=self._read_messages_until_parent_exits, args=(loop,), name="control", daemon=True
        ).start()
        beside = [
            asyncio.create_task(loop) for loop in (self._keep_updating_pulse(), AdaptiveStateLoop(self._context).run())
        ]
        async with self._hooks:
            await self._work.run()
        await self._context.limiter_registry.close()
        for task in beside:
            task.cancel()
        await self._context.close_handlers()

    def request_stop(self, grace: float) -> None:
        self._context.request_stop(grace)
        self._work.request_stop()

    def handle_message(self, message: ControlMessage) -> None:
        match message, self._work:
            case StopMessage(), _:
                self.request_stop(self._grace)
            case WakeMessage(job_id), ContinuousWork() as loops:
                loops.wake(job_id)
            case WakeMessage(), TimeSliceWork() as slices:
                slices.wake()
            case StartSliceMessage(), TimeSliceWork() as slices:
                slices.enqueue_slice(message)
            case EndSliceMessage(number), TimeSliceWork() as slices:
                slices.end_slice_with_grace(number)

    def _read_messages_until_parent_exits(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read messages in a thread, so that the child exits after its parent even if a handler blocks the loop."""
        decoder = ControlDecoder()
        with contextlib.suppress(ValueError):  # an unknown message: the parent has another version, so stop
            while data := os.read(self._control_fd, 4096):
                for message in decoder.feed(data):
                    loop.call_soon_threadsafe(self.handle_message, message)
        # The parent is gone, so the leases are not extended any more: stop quickly, then exit by force.
        loop.call_soon_threadsafe(self.request_stop, ORPHAN_GRACE_S)
        time.sleep(2 * ORPHAN_GRACE_S)
        os._exit(70)

    async def _keep_updating_pulse(self) -> None:
        """Update the pulse; end the process if a loop keeps failing, because an item may have damaged the process."""
        with contextlib.suppress(MemoryError):  # a process that cannot even wait is damaged, too
            while not any(loop.is_broken for loop in self._work.loops):
                self._context.shared_state.update_pulse()
                await asyncio.sleep(PULSE_INTERVAL_S)
        # Not a normal stop, which could hang. The parent recovers the work of all lanes.
        os._exit(EXIT_LOOP_FAILED)
