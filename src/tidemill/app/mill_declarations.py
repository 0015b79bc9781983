"""Declarations of a mill: handlers, limiters, resources, datasets, normalizers and hooks, and their registry."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, Literal, Required, TypedDict, TypeVar, Unpack

from tidemill.config import Settings, load_settings
from tidemill.core.decide import describe_exception
from tidemill.core.errors import InvalidInput, StartHookFailed, UnknownKind
from tidemill.core.job import Item
from tidemill.core.kinds import BUILTIN_KIND_PREFIX, HANDLER_CONCURRENCY_MAX, KIND_REGEX, Handler
from tidemill.core.policies import RetryPolicy
from tidemill.core.principal import Role
from tidemill.core.result_grid import COLUMN_NAME_MAX_CHARS, GRID_COLUMNS_MAX
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_permit import DeferredPermit, LimiterHandle
from tidemill.runtime import Declarations
from tidemill.store.database import Connection
from tidemill.tables.resource import BUILTIN_NORMALIZERS
from tidemill.telemetry.events import emit

Hook = Callable[[], object]
HandlerFactory = Callable[[], Handler]
HOOK_TIMEOUT_S = 300.0
HANDLER_MAX_ATTEMPTS = 30_000  # attempts are stored as smallint
_KIND_PATTERN = re.compile(KIND_REGEX)


class HandlerRegistry:
    """Kind -> handler. Built-in handlers are created on the first request for their kind."""

    def __init__(
        self,
        handlers: Iterable[Handler] = (),
        limiter_handle: LimiterHandle | None = None,
        builtins: Mapping[str, HandlerFactory] | None = None,
    ) -> None:
        self.declarations = Declarations()
        self.checked_limiters: dict[str, Limiter] | None = None  # includes those of tidemill.toml once it is read
        self.limiter_handle = limiter_handle or LimiterHandle()
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self.redact_traceback: Callable[[str], str] | None = None
        self._handlers = {handler.kind: handler for handler in handlers}
        self._builtins = builtins or {}

    def copy_with_builtins(self, builtins: Mapping[str, HandlerFactory]) -> "HandlerRegistry":
        """Return a registry with the same handlers and the built-in ones."""
        return HandlerRegistry(self.list_created_handlers(), self.limiter_handle, builtins)

    def add_handler(self, handler: Handler) -> None:
        _validate_handler(handler)
        if handler.kind in self._handlers:
            raise InvalidInput(f'Kind "{handler.kind}" already has a handler')
        self.checked_limiters = None
        self._handlers[handler.kind] = handler

    def add_limiter(self, name: str, declaration: dict[str, Any]) -> None:
        self.checked_limiters = None
        self.declarations.limiters[name] = declaration

    def add_normalizer(self, name: str, function: Callable[[str], str]) -> None:
        if name in BUILTIN_NORMALIZERS or name in self.declarations.normalizers:
            raise InvalidInput(f'Normalizer "{name}" already exists')
        self.declarations.normalizers[name] = function

    def get(self, kind: str) -> Handler:
        if kind not in self._handlers:
            if kind not in self._builtins:
                raise UnknownKind(format_unknown_kind_message(kind, self.kinds()))
            self._handlers[kind] = self._builtins[kind]()
        return self._handlers[kind]

    def get_if_created(self, kind: str) -> Handler | None:
        return self._handlers.get(kind)

    def kinds(self) -> list[str]:
        return sorted({*self._handlers, *self._builtins})

    def create_all(self) -> list[Handler]:
        return [self.get(kind) for kind in self.kinds()]

    def list_created_handlers(self) -> list[Handler]:
        """Return the declared handlers, and the built-in handlers that were requested so far."""
        return list(self._handlers.values())

    @asynccontextmanager
    async def run_start_and_stop_hooks(self) -> AsyncIterator[None]:
        """Run start hooks before the block in order of declaration, and stop hooks after it in reverse order.

        Raises:
            StartHookFailed: A start hook raised an exception or timed out.
        """
        for hook in self.start_hooks:
            try:
                await _call_hook(hook)
            except Exception as error:
                raise StartHookFailed(
                    f"Start hook {_get_hook_name(hook)} failed: {describe_exception(error)}"
                ) from error
        try:
            yield
        finally:
            for hook in reversed(self.stop_hooks):
                try:
                    await _call_hook(hook)
                except Exception as error:  # noqa: BLE001  the remaining hooks must still run
                    emit("hook.failed", hook=_get_hook_name(hook), error=describe_exception(error))

    def map_kinds_to_metric_providers(self) -> dict[str, str]:
        """Return kind -> provider for metrics: the limiter of the handler, or the kind itself."""
        return {handler.kind: handler.limiter or handler.kind for handler in self.create_all()}


def _get_hook_name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", repr(hook))


async def _call_hook(hook: Hook) -> None:
    """Run an async hook in the event loop of the handlers, and any other hook in a thread."""
    async with asyncio.timeout(HOOK_TIMEOUT_S):
        if inspect.iscoroutinefunction(hook):
            await hook()
        else:
            await asyncio.to_thread(hook)


def format_unknown_kind_message(kind: str, known: list[str]) -> str:
    listed = ", ".join(known) if known else "none"
    return f'No handler for kind "{kind}". Known kinds: {listed}.'


def make_item_handler(kind: str, call: Callable[..., Any], **options: Any) -> Handler:
    """Return a handler that processes one item per call; ``options`` are fields of ``Handler``."""
    return Handler(kind, call, "async" if inspect.iscoroutinefunction(call) else "sync", **options)


def make_batch_handler(kind: str, call: Callable[..., Any], **options: Any) -> Handler:
    """Return a handler of batches. If the function has a second parameter, it receives the flush transaction."""
    in_transaction = len(inspect.signature(call).parameters) > 1
    if in_transaction and not inspect.iscoroutinefunction(call):
        raise InvalidInput(f'Batch handler "{kind}" takes a connection as its second parameter, so it must be async')
    return Handler(kind, call, "batch", concurrency=1, in_transaction=in_transaction, **options)


def check_result_column_names(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return the declared result columns of a handler as a tuple; raise InvalidInput if they are not names."""
    if names is None:
        return ()
    given = () if isinstance(names, str) else tuple(names)
    if not given or not all(isinstance(name, str) for name in given):
        raise InvalidInput('columns must be a list of names, such as columns=["sku", "price"]')
    return given


def parse_handler_roles(names: Iterable[str] | None) -> tuple[Role, ...] | None:
    """Return the declared roles of a handler; raise InvalidInput if one is unknown."""
    try:
        return None if names is None else tuple(Role(name) for name in names)
    except ValueError:
        raise InvalidInput('roles must be a list of "user" and "admin", such as roles=["admin"]') from None


def _validate_handler(handler: Handler) -> None:
    retry = handler.retry
    problems = [
        problem
        for wrong, problem in (
            (not _KIND_PATTERN.fullmatch(handler.kind), "kind must consist of lower-case letters, digits and _ . : -"),
            (
                handler.kind.startswith(BUILTIN_KIND_PREFIX),
                f'kinds that start with "{BUILTIN_KIND_PREFIX}" are reserved',
            ),
            (
                not 1 <= handler.concurrency <= HANDLER_CONCURRENCY_MAX,
                f"concurrency must be from 1 to {HANDLER_CONCURRENCY_MAX}",
            ),
            (handler.timeout is not None and handler.timeout <= 0, "timeout must be positive, or None for no limit"),
            (handler.flush_size is not None and handler.flush_size < 1, "flush_size must be at least 1"),
            (handler.limit_by is not None and handler.limiter is None, "limit_by requires limit"),
            (
                handler.limit_by is not None and not callable(handler.limit_by),
                "limit_by must be a function that takes an item",
            ),
            (len(handler.columns) > GRID_COLUMNS_MAX, f"columns must have at most {GRID_COLUMNS_MAX} names"),
            (len(set(handler.columns)) < len(handler.columns), "columns must have unique names"),
            (
                any(len(name) > COLUMN_NAME_MAX_CHARS or "\x00" in name for name in handler.columns),
                f"column names must have at most {COLUMN_NAME_MAX_CHARS} characters and no NUL",
            ),
            (retry.max_attempts < 1 or retry.max_attempts_not_found < 1, "max_attempts must be at least 1"),
            (
                max(retry.max_attempts, retry.max_attempts_not_found) > HANDLER_MAX_ATTEMPTS,
                f"max_attempts must be at most {HANDLER_MAX_ATTEMPTS}",
            ),
            (
                retry.backoff < 0 or retry.backoff_cap < 0 or retry.not_found_delay < 0,
                "backoff, backoff_cap and not_found_delay must not be negative",
            ),
        )
        if wrong
    ]
    if problems:
        raise InvalidInput(f'Handler "{handler.kind}": ' + "; ".join(problems))


RoleName = Literal["user", "admin"]
ItemFunction = TypeVar("ItemFunction", bound=Callable[[Item], object])
BatchFunction = TypeVar(
    "BatchFunction",
    bound=Callable[[list[Item]], object] | Callable[[list[Item], Connection], Awaitable[object]],
)
Producer = TypeVar("Producer", bound=Callable[..., object])
HookFunction = TypeVar("HookFunction", bound=Callable[[], object])


class LimiterOptions(TypedDict, total=False):
    """The keys of ``[limiters.NAME]`` in ``tidemill.toml``, besides ``rate``."""

    delay: str | float | None
    burst: int | None
    concurrency: int | None
    adaptive: bool
    lowest: str | float | None


class ResourceOptions(TypedDict, total=False):
    """The keys of ``[resources.NAME]`` in ``tidemill.toml``."""

    table: Required[str]
    key: Sequence[str] | None
    unique: Sequence[Sequence[str]]
    columns: Sequence[str] | Mapping[str, Any] | str | None
    read: Sequence[str]
    write: Sequence[str]
    fields: Mapping[str, Mapping[str, Any]]
    references: Sequence[Mapping[str, Any]]
    conditions: Sequence[Mapping[str, Any]]
    formats: Mapping[str, str]
    assume: bool
    constants: Mapping[str, Any]
    computed: Mapping[str, str]
    skip: Sequence[str]


class DatasetOptions(TypedDict, total=False):
    """The keys of ``[datasets.NAME]`` in ``tidemill.toml``."""

    fields: Required[Mapping[str, str | Mapping[str, Any]]]
    query: str | None
    date_field: str | None
    columns: Sequence[str]
    format: str
    compression: str
    read: Sequence[str]
    version: str


class MillDeclarations:
    """The methods of a ``Mill`` that declare handlers, limiters, resources and datasets."""

    def __init__(
        self, settings: Settings | None = None, *, redact_traceback: Callable[[str], str] | None = None
    ) -> None:
        """Create a mill.

        Args:
            settings: The settings; by default, they are read from the environment.
            redact_traceback: A function that takes the traceback of a handler's exception and returns the text to store
                and log, for example without secrets. If the function raises, the traceback is not kept.
        """
        if redact_traceback is not None and not callable(redact_traceback):
            raise InvalidInput("redact_traceback must be None or a function that takes a string")
        self.registry = HandlerRegistry()
        self.registry.redact_traceback = redact_traceback
        if settings is not None:
            self.settings = settings

    @cached_property
    def settings(self) -> Settings:
        """The settings that the constructor received; by default, they are read from the environment on first use."""
        return load_settings()

    def handler(
        self,
        kind: str,
        *,
        concurrency: int = 50,
        timeout: float | None = 300.0,
        max_attempts: int | None = None,
        max_attempts_not_found: int | None = None,
        backoff: float = 2.0,
        backoff_cap: float = 3600.0,
        not_found_delay: float = 30.0,
        flush_size: int | None = None,
        permanent: tuple[type[BaseException], ...] = (),
        limit: str | None = None,
        limit_by: Callable[[Item], str] | None = None,
        columns: Sequence[str] | None = None,
        roles: Sequence[RoleName] | None = None,
    ) -> Callable[[ItemFunction], ItemFunction]:
        """Declare the handler for a kind: a function that takes one ``Item``, async or not.

        Args:
            kind: The name that jobs are submitted with.
            concurrency: Maximum number of items that one process runs concurrently.
            timeout: Timeout for one item in seconds; None for no limit.
            max_attempts: Maximum attempts if an item fails; TIDEMILL_MAX_ATTEMPTS_ERROR by default.
            max_attempts_not_found: Maximum attempts if an item is not found; default: TIDEMILL_MAX_ATTEMPTS_NOT_FOUND.
            backoff: Seconds before the second attempt; the delay doubles with each further attempt.
            backoff_cap: Maximum delay between attempts, in seconds.
            not_found_delay: Seconds before an item that was not found is retried.
            flush_size: Outcomes per flush; adaptive by default. With 1, a crash repeats the fewest finished items.
            permanent: Exceptions that are not retried.
            limit: The limiter that grants a permit before an item starts.
            limit_by: Returns the limiter member of an item, such as a domain. Each member has its own limit.
            columns: The first columns of the results, in order; further columns are added as they occur.
            roles: Roles of users that may run the kind over HTTP, "user" or "admin"; TIDEMILL_KIND_ROLES by default.
                An empty list closes the kind for all users. Python code of the mill can always submit it.
        """
        retry = self._make_retry_policy(max_attempts, max_attempts_not_found, backoff, backoff_cap, not_found_delay)

        def register_handler(function: ItemFunction) -> ItemFunction:
            self.registry.add_handler(
                make_item_handler(
                    kind,
                    function,
                    concurrency=concurrency,
                    timeout=timeout,
                    retry=retry,
                    flush_size=flush_size,
                    permanent=permanent,
                    limiter=limit,
                    limit_by=limit_by,
                    columns=check_result_column_names(columns),
                    roles=parse_handler_roles(roles),
                )
            )
            return function

        return register_handler

    def batch_handler(
        self,
        kind: str,
        *,
        sparse: bool = False,
        timeout: float | None = 300.0,
        max_attempts: int | None = None,
        max_attempts_not_found: int | None = None,
        backoff: float = 2.0,
        backoff_cap: float = 3600.0,
        not_found_delay: float = 30.0,
        permanent: tuple[type[BaseException], ...] = (),
        limit: str | None = None,
        columns: Sequence[str] | None = None,
        roles: Sequence[RoleName] | None = None,
    ) -> Callable[[BatchFunction], BatchFunction]:
        """Declare a batch handler: a function that takes a list of items. One transaction writes all of their outcomes.

        An async function can take a second parameter, the connection of that transaction. Writes on this connection
        happen exactly once. The function returns None if all items are done, or a list with one outcome per item.
        With ``sparse``, done items have no outcome row. A batch needs one permit from the limiter ``limit``. The other
        options are as for ``handler``.
        """
        retry = self._make_retry_policy(max_attempts, max_attempts_not_found, backoff, backoff_cap, not_found_delay)

        def register_handler(function: BatchFunction) -> BatchFunction:
            self.registry.add_handler(
                make_batch_handler(
                    kind,
                    function,
                    sparse=sparse,
                    timeout=timeout,
                    retry=retry,
                    permanent=permanent,
                    limiter=limit,
                    columns=check_result_column_names(columns),
                    roles=parse_handler_roles(roles),
                )
            )
            return function

        return register_handler

    def on_start(self, function: HookFunction) -> HookFunction:
        """Declare a function, async or not, that runs once in each worker process before its first item.

        If it raises, the worker prints the traceback and stops.
        """
        self.registry.start_hooks.append(function)
        return function

    def on_stop(self, function: HookFunction) -> HookFunction:
        """Declare a function, async or not, that runs once in each worker process after its last item.

        Stop hooks run in the reverse order of their declaration. They do not run in a process that crashes.
        """
        self.registry.stop_hooks.append(function)
        return function

    def limiter(self, name: str, rate: str | float | None = None, **declaration: Unpack[LimiterOptions]) -> None:
        """Declare a limiter. The options are the keys of ``tidemill.toml``: ``burst``, ``concurrency``, ….

        All workers share the limiter. A worker validates the declaration when it starts.
        """
        self.registry.add_limiter(name, ({} if rate is None else {"rate": rate}) | dict(declaration))

    def limit(self, name: str, key: str = "") -> DeferredPermit:
        """Return a permit for one call in a handler: ``async with mill.limit("shop"):``, or ``with`` in a sync handler.

        ``key`` is the member of a limiter that has one limit per member, such as a domain.
        """
        return self.registry.limiter_handle.defer_permit(name, key)

    def resource(self, name: str, **declaration: Unpack[ResourceOptions]) -> None:
        """Declare a resource: a table to import into and export from.

        The options are the keys of ``tidemill.toml``: ``table``, ``key``, …. The declaration is validated when the
        API or an import starts.
        """
        self.registry.declarations.resources[name] = dict(declaration)

    def dataset(self, name: str, **declaration: Unpack[DatasetOptions]) -> Callable[[Producer], Producer]:
        """Declare a dataset for distributions. The options are the keys of ``tidemill.toml``: ``fields``, ….

        The function produces the rows of one input's file. It gets the input as a dict and returns or yields dicts, or
        tuples if ``columns`` are declared; it can be async. With a ``query``, no function is needed. The
        declaration is validated when the API or a worker starts.
        """
        self.registry.declarations.datasets[name] = dict(declaration)

        def register_producer(function: Producer) -> Producer:
            self.registry.declarations.dataset_functions[name] = function
            return function

        return register_producer

    def normalizer(self, name: str) -> Callable[[Callable[[str], str]], Callable[[str], str]]:
        """Declare a normalizer for fields of resources, in addition to ``trim``, ``collapse``, ``lower`` and ``upper``.

        The function takes a string and returns the normalized string. If it raises ValueError, the row fails with the
        message of that exception.
        """

        def register_normalizer(function: Callable[[str], str]) -> Callable[[str], str]:
            self.registry.add_normalizer(name, function)
            return function

        return register_normalizer

    def _make_retry_policy(
        self,
        max_attempts: int | None,
        max_attempts_not_found: int | None,
        backoff: float,
        backoff_cap: float,
        not_found_delay: float,
    ) -> RetryPolicy:
        return RetryPolicy(
            self.settings.max_attempts_error if max_attempts is None else max_attempts,
            self.settings.max_attempts_not_found if max_attempts_not_found is None else max_attempts_not_found,
            backoff,
            backoff_cap,
            not_found_delay,
        )
