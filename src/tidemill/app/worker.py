"""A worker: a parent process and its children."""

import asyncio
import contextlib
import os
import socket
import sys
from typing import Any
from uuid import UUID, uuid4

from tidemill.app.hearing import Hearing
from tidemill.app.mill import Mill
from tidemill.app.wiring import make_builtins, make_limiters, make_resources, make_scanner
from tidemill.config import PREFIX
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.slice import Slice
from tidemill.engine.aftermath import Aftermath
from tidemill.engine.bulk import Bulk
from tidemill.engine.hand import Command
from tidemill.engine.janitor import Janitor
from tidemill.engine.kickoff import Kickoff
from tidemill.engine.lease import Heartbeat
from tidemill.engine.scan import Scanning
from tidemill.engine.slices import slice_grace
from tidemill.engine.supervise import Supervisor
from tidemill.engine.sweep import Maintenance
from tidemill.store import limiters, maintain, workers
from tidemill.store.database import Database
from tidemill.telemetry.events import bound, emit
from tidemill.telemetry.measure import measuring

SIGN_OFF_S = 3.0
# Unless somebody has said otherwise. Threads that share the interpreter's lock need no memory each of their own: with
# it, children that imported a million users had 207 and 211 MB, without it 198. And of the allocators that pyarrow has,
# this one gives memory back: a child that wrote Parquet had 142 MB, with the usual one 156.
THRIFTY = {"MALLOC_ARENA_MAX": "1"} | ({"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"} if sys.platform == "linux" else {})


class Worker:
    """A parent process and its children: everything `tidemill worker` runs.

    With ``on_demand`` the children claim nothing by themselves: they work in the slices that ``kickoff`` asks for.
    """

    def __init__(self, db: Database, mill: Mill, command: Command, *, processes: int, on_demand: bool = False) -> None:
        settings = mill.settings
        self.id = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        self._db = db
        self._settings = settings
        blobs = open_blobs(settings.blobs)
        self._registry = mill.registry.beside(make_builtins(db, settings, mill.registry))
        self._limiters = make_limiters(settings, mill.registry)
        self._info = {"processes": processes, "kinds": self._registry.kinds(), "on_demand": on_demand}
        ours = {"DATABASE_URL": db.url, "HOME": str(settings.home), "BLOBS": settings.blobs}
        self._environment = THRIFTY | os.environ | {PREFIX + name: value for name, value in ours.items()}
        self._measuring = contextlib.AsyncExitStack()
        seconds = settings.lock_floor_ms / 1000
        self._supervisor = Supervisor(
            self.id,
            Aftermath(db, self._registry, self.id, lease_seconds=seconds),
            command,
            processes=processes,
            pages=settings.worker_lanes + 1,
            env=self._environment,
            memory_mb=settings.child_memory_mb,
            silence_s=seconds,
            on_demand=on_demand,
        )
        in_hand, state = self._supervisor.lease_ids, self._supervisor.state
        self._hearing = hearing = Hearing(db, settings, self._supervisor, self.id, self._registry.kinds())

        def info() -> dict[str, Any]:
            return self._info | state() | hearing.state()

        children = self._supervisor.pids
        heartbeat = Heartbeat(db, self.id, seconds=seconds, in_hand=in_hand, info=info, children=children)
        every_s, resend_s = settings.finalizer_interval_ms / 1000, settings.resend_after_s
        maintenance = Maintenance(db, self.id, every_s=every_s, resend_after_s=resend_s)
        self._services = [self._supervisor, heartbeat, maintenance, Janitor(db, blobs), Bulk(db)]
        if settings.scan_watches and not on_demand:
            resources = make_resources(settings, mill.registry)
            self._services.append(Scanning(make_scanner(db, settings, resources, worker=self.id).turn))
        self._kickoff = Kickoff(db, self._registry, self._supervisor, grace=slice_grace(settings.stop_grace_ms))
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: list[asyncio.Task[None]] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set, or the children cannot start."""
        await self.start()
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([stopped, self._tasks[0]], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await self.stop()
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    async def start(self) -> None:
        """Start the children and what looks after them, in the event loop of the caller."""
        await self._db.run(workers.register_kinds, self._registry.all())
        await self._db.run(limiters.declare, self._limiters.values())
        with bound(worker=self.id):
            measured = measuring(self._settings, self._registry.providers())
            self._environment.update(await self._measuring.enter_async_context(measured))
            heard = await self._hearing.loops(on_demand=bool(self._info["on_demand"]))
            self._tasks = [asyncio.create_task(service.run()) for service in self._services]
            self._listening = [asyncio.create_task(loop) for loop in heard]
            emit("worker.started", worker=self.id, processes=self._info["processes"], kinds=self._info["kinds"])

    async def stop(self) -> None:
        """Stop the children: what they finish in the grace is kept, the rest goes back. Then sign off."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return  # not started, or stopped already
        self._supervisor.stop()
        with bound(worker=self.id):
            await self._supervisor.drain(self._settings.stop_grace_ms / 1000)
        for service in self._services:
            service.stop()
        for task in self._listening:
            task.cancel()  # these have no work to finish
        with contextlib.suppress(TimeoutError):  # without a database, the worker's row and duty run out by themselves
            async with asyncio.timeout(SIGN_OFF_S):
                await asyncio.gather(*tasks, *self._listening, return_exceptions=True)
                await self._hearing.close()
                await self._db.run(maintain.resign, self.id)
                await self._db.run(limiters.leave_all, self.id)
                await self._db.run(workers.remove, self.id)
        emit("worker.stopped", worker=self.id)
        await self._measuring.aclose()

    async def kickoff(self, job_id: UUID, kind: str, seconds: float) -> Slice:
        """Work on one job for so many seconds, in a child of an ``on_demand`` worker; less when nothing is due.

        If the caller is cancelled the slice ends: what is finished is kept, the rest goes back uncharged.

        Raises:
            UnknownKind: There is no handler for the kind.
            Busy: No child was free within a moment.
        """
        return await self._kickoff.run(job_id, kind, seconds)
