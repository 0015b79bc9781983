"""Declarations of a mill: handlers, limiters, resources, datasets, normalizers and hooks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Required, TypedDict, TypeVar, Unpack

from tidemill.app.handler_registry import (
    HandlerRegistry,
    check_result_column_names,
    make_batch_handler,
    make_item_handler,
    parse_handler_roles,
)
from tidemill.config import Settings, load_settings
from tidemill.core.errors import InvalidInput
from tidemill.core.job import Item
from tidemill.core.policies import RetryPolicy
from tidemill.limits.limiter_permit import DeferredPermit
from tidemill.store.database import Connection

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
            self.registry.add(
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
            self.registry.add(
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
