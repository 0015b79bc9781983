"""The only place that wires things together."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import EllipsisType
from typing import IO, Any, TypeVar
from uuid import UUID, uuid4

from tidemill.config import Settings, load_settings
from tidemill.connectors.blobs import Blobs
from tidemill.connectors.images import open_image
from tidemill.connectors.source import Sources
from tidemill.declared import load
from tidemill.dispatch.postgres import Listener
from tidemill.domain.declaration import declarations
from tidemill.domain.handler import Handler
from tidemill.domain.job import Job
from tidemill.domain.resource import NORMALIZERS
from tidemill.domain.slice import Slice
from tidemill.engine.aftermath import Aftermath
from tidemill.engine.bulk import Bulk
from tidemill.engine.context import Context
from tidemill.engine.hand import Command
from tidemill.engine.janitor import Janitor
from tidemill.engine.kickoff import Kickoff
from tidemill.engine.lease import Heartbeat
from tidemill.engine.logbook import Logbook
from tidemill.engine.slices import slice_grace
from tidemill.engine.supervise import Supervisor
from tidemill.engine.sweep import Maintenance
from tidemill.handlers import builtins
from tidemill.handlers.registry import Registry, batch_handler, item_handler
from tidemill.operations.imports import Importing
from tidemill.operations.resources import Resources
from tidemill.operations.submit import encode_inputs, submit, submit_within, submit_within_sync
from tidemill.store import embedded, jobs, maintain, workers
from tidemill.store.database import Connection, Database
from tidemill.store.migrate import check_schema
from tidemill.store.submit import Submission, SyncConnection
from tidemill.telemetry.events import bound, emit
from tidemill.telemetry.measure import measuring

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Given = EllipsisType
SIGN_OFF_S = 3.0


class Mill:
    """Handlers by kind, and the door to submit work to them."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.registry = Registry()
        self._settings = settings
        self._resources: dict[str, dict[str, Any]] = {}

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            self._settings = load_settings()
        return self._settings

    def handler(
        self,
        kind: str,
        *,
        concurrency: int | Given = ...,
        timeout: float | Given | None = ...,
        max_attempts: int | Given = ...,
        max_attempts_not_found: int | Given = ...,
        backoff: float | Given = ...,
        backoff_cap: float | Given = ...,
        not_found_delay: float | Given = ...,
        flush_size: int | Given = ...,
        permanent: tuple[type[BaseException], ...] | Given = ...,
        limit: str | Given = ...,
        columns: Sequence[str] | Given = ...,
    ) -> Callable[[F], F]:
        """Declare the handler of a kind: a function of one ``Item``, async or not.

        Args:
            kind: The name that jobs ask for.
            concurrency: Items at a time in one process (50).
            timeout: Seconds one item may take (300); None for no limit.
            max_attempts: Attempts at an item that fails (TIDEMILL_MAX_ATTEMPTS_ERROR).
            max_attempts_not_found: Attempts at an item that is not found (TIDEMILL_MAX_ATTEMPTS_NOT_FOUND).
            backoff: Seconds before the second attempt; doubled from there (2).
            backoff_cap: The longest wait in seconds (3600).
            not_found_delay: Seconds before a NotFound is tried again (30).
            flush_size: Outcomes per flush; 1 for work that must not be repeated after a crash.
            permanent: Exceptions that no retry will mend.
            limit: The limiter that the handler's calls count against.
            columns: The first columns of its results, in order; others are added as they come.
        """
        options = {name: value for name, value in locals().items() if name not in ("self", "kind", "limit")}
        return self._declare(item_handler, kind, options | {"limiter": limit})

    def batch_handler(
        self,
        kind: str,
        *,
        sparse: bool = False,
        timeout: float | Given | None = ...,
        max_attempts: int | Given = ...,
        max_attempts_not_found: int | Given = ...,
        backoff: float | Given = ...,
        backoff_cap: float | Given = ...,
        not_found_delay: float | Given = ...,
        permanent: tuple[type[BaseException], ...] | Given = ...,
        columns: Sequence[str] | Given = ...,
    ) -> Callable[[F], F]:
        """Declare a handler of whole batches: a function of a list of items, settled in one transaction.

        An async one may take a second parameter, the connection of that transaction: what it writes there
        happens exactly once. It returns None (all done) or one outcome per item. With ``sparse``, items that
        are done leave no outcome row at all. Other options are as for ``handler``.
        """
        options = {name: value for name, value in locals().items() if name not in ("self", "kind")}
        return self._declare(batch_handler, kind, options)

    def resource(self, name: str, **declaration: Any) -> None:
        """Declare a table to import into, in the words of a ``tidemill.toml``: ``table``, ``key``, ``fields``, ….

        Mistakes are told when the service or an import starts, all at once.
        """
        self._resources[name] = declaration

    def normalizer(self, name: str) -> Callable[[Callable[[str], str]], Callable[[str], str]]:
        """Declare what fields of resources may name beside ``trim``, ``collapse``, ``lower`` and ``upper``.

        The function is given a text that is not missing and returns it as it should be; ValueError is the row's error.
        """

        def declare(function: Callable[[str], str]) -> Callable[[str], str]:
            self.registry.add_normalizer(name, function)
            return function

        return declare

    def submit(
        self, kind: str, inputs: Iterable[Any], *, connection: SyncConnection | None = None, **options: Any
    ) -> UUID:
        """Make a job of these inputs; its id. In the caller's own transaction if a connection is given.

        Args:
            kind: Whose handler runs them.
            inputs: Values that JSON can hold; an iterator is not loaded into memory.
            connection: A psycopg connection; the job exists if and only if its transaction commits.
            options: ``priority``, ``params``, ``policy``, ``owner_id``, ``idem_key``.
        """
        spec, rows = self._submission(kind, inputs, options)
        if connection is not None:
            return submit_within_sync(connection, spec, rows)[0]
        return asyncio.run(self._submit_alone(spec, rows))

    async def submit_async(
        self, kind: str, inputs: Iterable[Any], *, connection: Connection | None = None, **options: Any
    ) -> UUID:
        """As ``submit``, from async code."""
        spec, rows = self._submission(kind, inputs, options)
        if connection is not None:
            return (await submit_within(connection, spec, rows))[0]
        return await self._submit_alone(spec, rows)

    def job(self, job_id: UUID) -> Job:
        """A job and how far it is."""
        return asyncio.run(self.job_async(job_id))

    async def job_async(self, job_id: UUID) -> Job:
        async with open_database(self.settings) as db:
            return await db.run(jobs.get, job_id)

    def open_image(self, input_: dict[str, Any]) -> IO[bytes]:
        """The image that an item of an image job refers to."""
        return open_image(Blobs(self.settings.blobs), input_)

    def _declare(self, make: Callable[..., Handler], kind: str, options: dict[str, Any]) -> Callable[[F], F]:
        for name in ("error", "not_found"):
            option = "max_attempts" if name == "error" else "max_attempts_not_found"
            if options[option] is ...:
                options[option] = getattr(self.settings, f"max_attempts_{name}")

        def declare(function: F) -> F:
            self.registry.add(make(kind, function, **options))
            return function

        return declare

    def _submission(
        self, kind: str, inputs: Iterable[Any], options: dict[str, Any]
    ) -> tuple[Submission, Iterable[bytes]]:
        handler = self.registry.get(kind)
        settings = self.settings
        spec = Submission(
            kind,
            sparse=handler.sparse,
            limiter=handler.limiter,
            columns=handler.columns,
            batch_size=settings.claim_max,
            **options,
        )
        return spec, encode_inputs(inputs, settings.max_row_bytes)

    async def _submit_alone(self, spec: Submission, rows: Iterable[bytes]) -> UUID:
        async with open_database(self.settings) as db:
            return (await submit(db, spec, rows))[0]


def database_url(settings: Settings) -> str:
    """The configured server, or the embedded one, started if need be."""
    return settings.database_url or embedded.start(settings.home)


@asynccontextmanager
async def open_database(
    settings: Settings, *, size: int | None = None, check: bool = True, patience: float | None = None
) -> AsyncIterator[Database]:
    url = await asyncio.to_thread(database_url, settings)
    async with Database(
        url,
        size=size or settings.db_max_conns,
        timeout=settings.db_timeout_ms / 1000,
        prepare=settings.db_prepare,
        patience=patience,
        slow_ms=settings.slow_query_ms,
    ) as db:
        if check:
            await check_schema(db)
        yield db


def make_sources(settings: Settings) -> Sources:
    """What opens the files of jobs: stored ones, and remote ones that are fetched first."""

    def fetch(url: str, blob_id: str, going_on: Callable[[], bool]) -> object:
        # Few processes ever fetch anything: the others are spared an HTTP client, 10 MB and 0.1 s of every start.
        from tidemill.connectors.remote.download import Remote  # noqa: PLC0415
        from tidemill.connectors.remote.limits import RemoteLimits  # noqa: PLC0415

        return Remote(blobs, RemoteLimits.of(settings)).download(url, blob_id, going_on=going_on)

    blobs, unpacked = Blobs(settings.blobs), settings.max_unpacked_mb << 20
    return Sources(blobs, max_row_bytes=settings.max_row_bytes, max_unpacked_bytes=unpacked, fetch=fetch)


def make_resources(settings: Settings, mill: Mill | None = None) -> Resources:
    """What is declared in the file of the settings, and by a mill; InvalidSettings with every mistake."""
    if mill is None:
        return Resources(load(settings.config))
    names = [*NORMALIZERS, *mill.registry.normalizers]
    return Resources(load(settings.config, names) | declarations({"resources": mill._resources}, names))  # noqa: SLF001


def make_importing(db: Database, settings: Settings) -> Importing:
    return Importing(db, Blobs(settings.blobs), make_sources(settings))


def make_context(db: Database, settings: Settings, registry: Registry, *, worker: str, book: Logbook) -> Context:
    handlers = registry.beside(builtins(db, Blobs(settings.blobs), registry.normalizers))
    return Context(db, settings, handlers, make_sources(settings), worker, book)


class Worker:
    """A parent process and its children: everything `tidemill worker` runs.

    With ``on_demand`` the children claim nothing by themselves: they work in the slices that ``kickoff`` asks for.
    """

    def __init__(self, db: Database, mill: Mill, command: Command, *, processes: int, on_demand: bool = False) -> None:
        settings = mill.settings
        self.id = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        self._db = db
        self._settings = settings
        blobs = Blobs(settings.blobs)
        self._registry = mill.registry.beside(builtins(db, blobs, mill.registry.normalizers))
        self._info = {"processes": processes, "kinds": self._registry.kinds(), "on_demand": on_demand}
        self._environment = os.environ | {"TIDEMILL_DATABASE_URL": db.url, "TIDEMILL_HOME": str(settings.home)}
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
        heartbeat = Heartbeat(db, self.id, seconds=seconds, in_hand=in_hand, info=lambda: self._info | state())
        self._services = [self._supervisor, heartbeat, Maintenance(db, self.id), Janitor(db, blobs), Bulk(db)]
        self._kickoff = Kickoff(db, self._registry, self._supervisor, grace=slice_grace(settings.stop_grace_ms))
        self._listener = Listener(db.url, self._supervisor.wake_children)
        self._tasks: list[asyncio.Task[None]] = []

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
        with bound(worker=self.id):
            measured = measuring(self._settings, self._registry.providers())
            self._environment.update(await self._measuring.enter_async_context(measured))
            loops = [*(service.run() for service in self._services), self._listener.run()]
            self._tasks = [asyncio.create_task(loop) for loop in loops]
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
        tasks[-1].cancel()  # the listener has no work to finish
        with contextlib.suppress(TimeoutError):  # without a database, the worker's row and duty run out by themselves
            async with asyncio.timeout(SIGN_OFF_S):
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._db.run(maintain.resign, self.id)
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


def run_in(settings: Settings, action: Callable[[Database], Awaitable[T]], **options: Any) -> T:
    """Run one action with a database, for entrances that are not async."""

    async def main() -> T:
        async with open_database(settings, **options) as db:
            return await action(db)

    return asyncio.run(main())
