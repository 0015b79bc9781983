"""The worker: a parent process and its child processes."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Coroutine
from typing import Any
from uuid import UUID, uuid4

from tidemill.app.mill import Mill
from tidemill.app.runtime_factory import load_limiters, make_runtime, map_builtin_handler_factories
from tidemill.config import ENV_PREFIX, Settings
from tidemill.core.job import TimeSliceResult
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.dispatch import outbox
from tidemill.dispatch.dispatchers import (
    BrokerDispatcher,
    HintReceiver,
    NotificationReceiver,
    PostgresDispatcher,
    make_connection_factory,
    parse_broker_name,
)
from tidemill.dispatch.outbox_relay import OutboxRelay
from tidemill.engine.children.child_process import ChildCommand
from tidemill.engine.children.supervisor import CrashSalvage, HeartbeatLoop, Supervisor
from tidemill.engine.children.time_slices import SliceRunner, compute_slice_grace_s
from tidemill.engine.context import INGESTERS, SPARE_LANES
from tidemill.engine.maintenance_loop import BlobCleanupLoop, BulkOperationLoop, MaintenanceLoop
from tidemill.engine.periodic_loop import CallbackLoop
from tidemill.features import import_object
from tidemill.limits import limiter_records
from tidemill.store import duties, workers
from tidemill.store.database import Database
from tidemill.telemetry.events import bind_fields, emit
from tidemill.telemetry.metrics_server import serve_worker_metrics


class WakeupLoops:
    """The loops that wake children on hints, and the relay that sends hints to the broker.

    Children that run on demand receive no hints.
    """

    def __init__(self, db: Database, settings: Settings, supervisor: Supervisor, worker: str, kinds: list[str]) -> None:
        self._db = db
        self._broker_url = settings.broker
        self._supervisor = supervisor
        self._worker = worker
        self._kinds = sorted(kinds)
        self._broker: BrokerDispatcher | None = None
        self._relay: CallbackLoop | None = None

    async def build_loops(self, *, on_demand: bool) -> list[Coroutine[Any, Any, None]]:
        """Return the loops, which may be cancelled at any time.

        Raises:
            InvalidSettings: The client library of the broker is not installed.
        """
        wake_all = self._supervisor.wake_children
        loops: list[Coroutine[Any, Any, None]] = []
        if self._broker_url is not None:
            scheme = parse_broker_name(self._broker_url)
            namespace = await self._db.run(outbox.register_broker_and_get_namespace, scheme)
            self._broker = BrokerDispatcher(
                make_connection_factory(self._broker_url, namespace, self._kinds, self._worker), self._kinds
            )
            self._relay = CallbackLoop("relay", OutboxRelay(self._db, self._broker, self._worker, scheme).tick)
            loops.append(self._relay.run())
            if not on_demand:
                loops.append(self._broker.receive_wakeups(self._make_hint_receiver()))
        receiver = NotificationReceiver(
            wake_all, self._wake_relay_if_connected, is_only_source=lambda: on_demand or not self._is_broker_available
        )
        return [*loops, PostgresDispatcher(self._db).receive_wakeups(receiver)]

    def describe_broker(self) -> dict[str, Any]:
        """Return the broker's name and its current error, for the list of workers."""
        if self._broker_url is None:
            return {}
        error = None if self._broker is None else self._broker.current_error
        return {"broker": {"name": parse_broker_name(self._broker_url), "trouble": error}}

    async def close_broker(self) -> None:
        if self._broker is not None:
            await self._broker.close()

    @property
    def _is_broker_available(self) -> bool:
        return self._broker is not None and self._broker.current_error is None

    def _wake_relay_if_connected(self) -> None:
        """Wake the relay, unless the broker is not connected: then the relay retries with a backoff."""
        if self._relay is not None and self._is_broker_available:
            self._relay.wake()

    def _make_hint_receiver(self) -> HintReceiver:
        supervisor = self._supervisor
        wake, wake_all = supervisor.wake_idlest_child, supervisor.wake_children
        return HintReceiver(
            self._db, self._worker, wake=wake, wake_all=wake_all, has_idle_lane=lambda: supervisor.has_idle_lane
        )


WORKER_SIGN_OFF_TIMEOUT_S = 3.0
# Defaults; the environment overrides them. Threads that share the interpreter lock do not need one malloc arena each:
# children that imported a million users used 198 MB with one arena and 207 to 211 MB with several. Of pyarrow's
# allocators, jemalloc returns memory to the system: a child that wrote Parquet used 142 MB instead of 156 MB.
CHILD_MEMORY_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"} | (
    {"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"} if sys.platform == "linux" else {}
)


class Worker:
    """Everything that `tidemill worker` runs: a parent process and its child processes.

    With ``on_demand``, children claim no batches on their own; they run only the time slices of ``kickoff``.
    """

    def __init__(
        self, db: Database, mill: Mill, command: ChildCommand, *, processes: int, on_demand: bool = False
    ) -> None:
        settings = mill.settings
        self.id = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        self._db = db
        self._settings = settings
        runtime = make_runtime(db, settings, mill.registry)
        self._registry = mill.registry.copy_with_builtins(map_builtin_handler_factories(runtime))
        self._handlers = self._registry.create_all()  # an invalid declaration stops the worker here
        self._limiters = load_limiters(runtime, mill.registry)
        provides = sorted(name for handler in self._handlers for name in handler.provides)
        self._info = {"processes": processes, "kinds": self._registry.kinds(), "on_demand": on_demand}
        self._info |= {"provides": provides}
        resolved = {"DATABASE_URL": db.url, "HOME": str(settings.home), "BLOBS": settings.blobs}
        self._environment = (
            CHILD_MEMORY_ENVIRONMENT | os.environ | {ENV_PREFIX + name: value for name, value in resolved.items()}
        )
        self._telemetry_stack = contextlib.AsyncExitStack()
        seconds = settings.lock_floor_ms / 1000
        self._supervisor = Supervisor(
            self.id,
            CrashSalvage(db, self._registry, self.id, find_kind_hooks=runtime.find_kind_hooks, lease_seconds=seconds),
            command,
            processes=processes,
            lanes=count_lane_pages(settings, on_demand=on_demand),
            env=self._environment,
            memory_mb=settings.child_memory_mb,
            silence_s=seconds,
            on_demand=on_demand,
        )
        self._wakeups = wakeups = WakeupLoops(db, settings, self._supervisor, self.id, self._registry.kinds())

        def describe_worker() -> dict[str, Any]:
            return self._info | self._supervisor.describe_children() | wakeups.describe_broker()

        heartbeat = HeartbeatLoop(
            db,
            self.id,
            lease_seconds=seconds,
            list_lease_ids=self._supervisor.list_lease_ids,
            describe_worker=describe_worker,
            list_child_pids=self._supervisor.list_child_pids,
        )
        every_s, resend_s = settings.finalizer_interval_ms / 1000, settings.resend_after_s
        maintenance = MaintenanceLoop(
            db,
            self.id,
            interval_s=every_s,
            resend_after_s=resend_s,
            housekeeping=[import_object(name) for feature in runtime.features for name in feature.housekeeping],
            find_kind_hooks=runtime.find_kind_hooks,
        )
        self._loops = [
            self._supervisor,
            heartbeat,
            maintenance,
            BlobCleanupLoop(db, runtime.blobs),
            BulkOperationLoop(db, runtime.operation_steps),
        ]
        if not on_demand:
            for feature in runtime.features:
                if feature.worker_loops is not None:
                    self._loops += import_object(feature.worker_loops)(runtime, self.id)
        self._slice_runner = SliceRunner(
            db,
            self._registry,
            self._supervisor,
            find_kind_hooks=runtime.find_kind_hooks,
            grace=compute_slice_grace_s(settings.stop_grace_ms),
        )
        self._loop_tasks: list[asyncio.Task[None]] = []
        self._wakeup_tasks: list[asyncio.Task[None]] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set or the children cannot start."""
        await self.start()
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([stopped, self._loop_tasks[0]], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await self.stop()
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    async def start(self) -> None:
        """Start the children and all loops in the caller's event loop."""
        await self._db.run(workers.register_kinds, self._handlers)
        await self._db.run(limiter_records.declare_limiters, self._limiters.values())
        with bind_fields(worker=self.id):
            metrics = serve_worker_metrics(self._settings, self._registry.map_kinds_to_metric_providers())
            self._environment.update(await self._telemetry_stack.enter_async_context(metrics))
            wakeup_loops = await self._wakeups.build_loops(on_demand=bool(self._info["on_demand"]))
            self._loop_tasks = [asyncio.create_task(service.run()) for service in self._loops]
            self._wakeup_tasks = [asyncio.create_task(loop) for loop in wakeup_loops]
            processes, kinds, on_demand = (self._info[name] for name in ("processes", "kinds", "on_demand"))
            emit("worker.started", worker=self.id, processes=processes, kinds=kinds, on_demand=on_demand)

    async def stop(self) -> None:
        """Stop the children and unregister the worker. Items that do not finish in the grace period are released."""
        tasks, self._loop_tasks = self._loop_tasks, []
        if not tasks:
            return  # not started, or stopped already
        self._supervisor.request_stop()
        with bind_fields(worker=self.id):
            await self._supervisor.stop_children(self._settings.stop_grace_ms / 1000)
        for service in self._loops:
            service.request_stop()
        for task in self._wakeup_tasks:
            task.cancel()  # they have no work to finish
        with contextlib.suppress(TimeoutError):  # without a database, the worker's row and duties expire
            async with asyncio.timeout(WORKER_SIGN_OFF_TIMEOUT_S):
                await asyncio.gather(*tasks, *self._wakeup_tasks, return_exceptions=True)
                await self._wakeups.close_broker()
                await self._db.run(duties.release_duties, self.id)
                await self._db.run(limiter_records.release_all_slots, self.id)
                await self._db.run(workers.remove_worker, self.id)
        emit("worker.stopped", worker=self.id, on_demand=self._info["on_demand"])
        await self._telemetry_stack.aclose()

    async def kickoff(
        self, job_id: UUID, kind: str, seconds: float, *, user_id: int = LOCAL_USER_ID
    ) -> TimeSliceResult:
        """Run a time slice on one job in a child of an ``on_demand`` worker. It ends early when no item is due.

        It also ends early when another user waits for a child. ``user_id`` is the user who requests the slice.

        If the caller is cancelled, the slice ends: finished items are kept, others are released without an attempt.

        Raises:
            UnknownKind: The kind has no handler.
            QuotaExceeded: The user has too many slices.
            Busy: No child became free in time.
        """
        return await self._slice_runner.run_slice(job_id, kind, seconds, user_id=user_id)


def count_lane_pages(settings: Settings, *, on_demand: bool) -> int:
    """Return the number of pages in the state of a child: one for each lane, and one for each ingester."""
    return settings.worker_lanes + (1 if on_demand else SPARE_LANES + INGESTERS)


def make_worker(db: Database, mill: Mill, reference: str, processes: int, *, on_demand: bool = False) -> Worker:
    """Return a worker for ``mill``; its children import the mill by ``reference``."""
    pages = count_lane_pages(mill.settings, on_demand=on_demand)

    def build_argv(worker_id: str, number: int, control: int, book: int) -> list[str]:
        return build_child_argv(reference, worker_id, pages, int(on_demand), number, control, book)

    return Worker(db, mill, build_argv, processes=processes, on_demand=on_demand)


def build_child_argv(reference: str, worker_id: str, *numbers: int) -> list[str]:
    """Return the command line of a child; the numbers are further arguments of ``child_main.run_child``."""
    return [sys.executable, "-m", "tidemill.app.child_main", reference, worker_id, *map(str, numbers)]
