"""A kind of work and the options of its handler."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tidemill.core.policies import RetryPolicy
from tidemill.core.principal import Role


class ResourceGate:
    """Lets ``width`` tasks of a process use a resource at a time.

    The engine claims no more items than can use it, and withdraws items that wait for it when their job stops.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.requests = 0  # for the resource, since the start of the process
        self.limits_items = True  # whether items of the last batch needed the resource; assumed before the first batch
        self._semaphore = asyncio.Semaphore(width)
        self._waiting: set[asyncio.Task[Any]] = set()

    def is_waiting(self, task: "asyncio.Task[Any]") -> bool:
        return task in self._waiting

    @contextmanager
    def while_waiting(self) -> Iterator[None]:
        """Mark the current task as waiting, so that the engine may cancel it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine runs in a task
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)

    @asynccontextmanager
    async def hold_resource(self) -> AsyncIterator[None]:
        """Wait for the resource, and hold it in this context."""
        self.requests += 1
        with self.while_waiting():
            await self._semaphore.acquire()
        try:
            yield
        finally:
            self._semaphore.release()


HandlerMode = Literal["async", "sync", "batch"]
HANDLER_CONCURRENCY_MAX = 1_000
KIND_REGEX = r"[a-z0-9][a-z0-9_.:-]{0,99}"
BUILTIN_KIND_PREFIX = "tidemill."
IMPORT_KIND = "tidemill.import"
EXPORT_KIND = "tidemill.export"
DISTRIBUTION_KIND = "tidemill.distribute"
MATCH_KIND = "tidemill.match"
ENRICH_KIND = "tidemill.enrich"
SERVICE_KINDS = (MATCH_KIND, ENRICH_KIND)  # kinds that call an external service


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and its options, as declared with ``@mill.handler`` or ``@mill.batch_handler``."""

    kind: str
    call: Callable[..., Any]
    mode: HandlerMode
    concurrency: int = 50
    gate: ResourceGate | None = None  # limits fewer calls than ``concurrency``, if they need its resource
    timeout: float | None = 300.0
    statement_timeout: float | None = None  # seconds per statement of a handler that runs in the flush transaction
    flush_size: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    permanent: tuple[type[BaseException], ...] = ()
    sparse: bool = False
    in_transaction: bool = False
    exact: bool = False  # decode fractional numbers in inputs as Decimal, with all digits
    limiter: str | None = None
    limit_by: Callable[..., str] | None = None  # (item) -> the member of the limiter that the item counts against
    columns: tuple[str, ...] = ()
    provides: frozenset[str] = frozenset()  # what jobs can require, such as "dataset:prices"
    roles: tuple[Role, ...] | None = None  # that may run the kind; None: as configured in the settings
    batch_size: int | None = None  # items per batch; None: as configured in the settings
    make_input_observer: Callable[..., Any] | None = None  # (params, source) -> InputObserver
    after_flush: Callable[..., Awaitable[None]] | None = None  # (conn, lease, done verdicts), in the flush transaction
    close: Callable[[], Awaitable[None]] | None = None  # releases resources that the handler keeps between items

    is_batch: bool = field(init=False, repr=False, compare=False)  # mode == "batch"

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_batch", self.mode == "batch")


class HandlerLookup(Protocol):
    """The kinds that a worker can run."""

    def get(self, kind: str) -> Handler: ...
    def kinds(self) -> list[str]: ...
    def create_all(self) -> list[Handler]: ...
    def list_created_handlers(self) -> list[Handler]: ...
