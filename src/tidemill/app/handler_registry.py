"""The handlers of a mill by kind. Options are validated when a handler is declared."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tidemill.core.decide import describe_exception
from tidemill.core.errors import InvalidInput, StartHookFailed, UnknownKind
from tidemill.core.kinds import BUILTIN_KIND_PREFIX, HANDLER_CONCURRENCY_MAX, KIND_REGEX, Handler
from tidemill.core.principal import Role
from tidemill.core.result_grid import COLUMN_NAME_MAX_CHARS, GRID_COLUMNS_MAX
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_permit import LimiterHandle
from tidemill.runtime import Declarations
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
        desk: LimiterHandle | None = None,
        builtins: Mapping[str, HandlerFactory] | None = None,
    ) -> None:
        self.declarations = Declarations()
        self.checked_limiters: dict[str, Limiter] | None = None  # includes those of tidemill.toml once it is read
        self.limiter_handle = desk or LimiterHandle()
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self.redact_traceback: Callable[[str], str] | None = None
        self._handlers = {handler.kind: handler for handler in handlers}
        self._builtins = builtins or {}

    def copy_with_builtins(self, builtins: Mapping[str, HandlerFactory]) -> "HandlerRegistry":
        """Return a registry with the same handlers and the built-in ones."""
        return HandlerRegistry(self.list_created_handlers(), self.limiter_handle, builtins)

    def add(self, handler: Handler) -> None:
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
