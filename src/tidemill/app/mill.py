"""A mill: handlers by kind, and the door to submit work to them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import EllipsisType
from typing import IO, Any, TypeVar
from uuid import UUID

from tidemill.app.wiring import make_services, open_database
from tidemill.config import Settings, load_settings
from tidemill.connectors.blobs import open_blobs
from tidemill.connectors.images import open_image
from tidemill.domain.handler import Handler
from tidemill.domain.identity import Role
from tidemill.domain.item import Item
from tidemill.domain.job import Job
from tidemill.domain.limits.desk import AskedPermit
from tidemill.handlers.registry import Registry, batch_handler, item_handler
from tidemill.operations.services import KINDS, service_kind
from tidemill.operations.submit import encode_inputs, submit, submit_within, submit_within_sync
from tidemill.store import jobs
from tidemill.store.database import Connection
from tidemill.store.submit import Submission, SyncConnection

F = TypeVar("F", bound=Callable[..., Any])
Given = EllipsisType


class Mill:
    """Handlers by kind, and the door to submit work to them."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.registry = Registry()
        self._settings = settings

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
        limit_by: Callable[[Item], str] | Given = ...,
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
            limit: The limiter that the handler's calls count against: an item begins when it permits it.
            limit_by: Which member of it, from the item: a domain, say. Members are limited each by itself.
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
        limit: str | Given = ...,
        columns: Sequence[str] | Given = ...,
    ) -> Callable[[F], F]:
        """Declare a handler of whole batches: a function of a list of items, settled in one transaction.

        An async one may take a second parameter, the connection of that transaction: what it writes there
        happens exactly once. It returns None (all done) or one outcome per item. With ``sparse``, items that
        are done leave no outcome row at all. A ``limit`` is asked once for each batch. Other options are as for
        ``handler``.
        """
        options = {name: value for name, value in locals().items() if name not in ("self", "kind", "limit")}
        return self._declare(batch_handler, kind, options | {"limiter": limit})

    def limiter(self, name: str, rate: str | float | None = None, **declaration: Any) -> None:
        """Declare how often somebody may be called, in the words of a ``tidemill.toml``: ``burst``, ``concurrency``, ….

        It holds for all workers of the installation together. Mistakes are told when a worker starts, all at once.
        """
        self.registry.limiters[name] = declaration if rate is None else {"rate": rate} | declaration

    def limit(self, name: str, key: str = "") -> AskedPermit:
        """In a handler: ``async with mill.limit("shop"):`` around a call, beside what the handler counts against.

        ``key`` is the member, of a limiter that has one per domain. ``with`` does in handlers that are not async.
        """
        return self.registry.desk.limit(name, key)

    def resource(self, name: str, **declaration: Any) -> None:
        """Declare a table to import into, in the words of a ``tidemill.toml``: ``table``, ``key``, ``fields``, ….

        Mistakes are told when the service or an import starts, all at once.
        """
        self.registry.declared[name] = declaration

    def dataset(self, name: str, **declaration: Any) -> Callable[[F], F]:
        """Declare a dataset of distributions, in the words of a ``tidemill.toml``: ``fields``, ``date_field``, ….

        The function makes the rows of an input's file. It is given the input as a dict, and returns or yields dicts, or
        tuples if ``columns`` are declared; it may be async. With a ``query``, no function is needed. Mistakes are told
        when the service or a worker starts, all at once.
        """
        self.registry.datasets[name] = declaration

        def declare(function: F) -> F:
            self.registry.producers[name] = function
            return function

        return declare

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
        return open_image(open_blobs(self.settings.blobs), input_)

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
        settings = self.settings
        if service_kind(kind) is not None and kind not in self.registry.kinds():
            spec = Submission(kind, batch_size=settings.claim_max, **options)
            return make_services(settings).prepare(spec, Role.ADMIN), encode_inputs(inputs, settings.max_row_bytes)
        handler = self.registry.get(kind)
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
            return (await submit(db, spec, rows, built_in=spec.kind in KINDS))[0]
