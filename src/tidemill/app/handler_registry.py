"""The kinds of a mill, and their options checked when they are declared."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tidemill.core.decide import describe_exception
from tidemill.core.errors import InvalidInput, StartHookFailed, UnknownKind
from tidemill.core.kinds import BUILTIN_KIND_PREFIX, HANDLER_CONCURRENCY_MAX, Handler
from tidemill.core.result_grid import COLUMN_NAME_MAX_CHARS, GRID_COLUMNS_MAX
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_permit import LimiterHandle
from tidemill.runtime import Declarations
from tidemill.tables.resource import BUILTIN_NORMALIZERS
from tidemill.telemetry.events import emit

Hook = Callable[[], object]
HandlerFactory = Callable[[], Handler]
HOOK_TIMEOUT_S = 300.0
HANDLER_MAX_ATTEMPTS = 30_000  # a smallint holds them
_KIND_PATTERN = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,99}")


class HandlerRegistry:
    """Kind -> handler. Built-in handlers are made when their kind is first requested."""

    def __init__(
        self,
        handlers: Iterable[Handler] = (),
        desk: LimiterHandle | None = None,
        builtins: Mapping[str, HandlerFactory] | None = None,
    ) -> None:
        self.declarations = Declarations()
        self.checked_limiters: dict[str, Limiter] | None = None  # with those of the config file, once they are read
        self.limiter_handle = desk or LimiterHandle()
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self._handlers = {handler.kind: handler for handler in handlers}
        self._builtins = builtins or {}

    def with_builtins(self, builtins: Mapping[str, HandlerFactory]) -> "HandlerRegistry":
        """The same kinds and the built-in ones."""
        return HandlerRegistry(self.list_made(), self.limiter_handle, builtins)

    def add(self, handler: Handler) -> None:
        _validate_handler(handler)
        if handler.kind in self._handlers:
            raise InvalidInput(f"kind {handler.kind!r} has a handler already")
        self.checked_limiters = None
        self._handlers[handler.kind] = handler

    def add_limiter(self, name: str, declaration: dict[str, Any]) -> None:
        self.checked_limiters = None
        self.declarations.limiters[name] = declaration

    def add_normalizer(self, name: str, function: Callable[[str], str]) -> None:
        if name in BUILTIN_NORMALIZERS or name in self.declarations.normalizers:
            raise InvalidInput(f"there is a normalizer {name!r} already")
        self.declarations.normalizers[name] = function

    def get(self, kind: str) -> Handler:
        if kind not in self._handlers:
            if kind not in self._builtins:
                raise UnknownKind(format_unknown_kind(kind, self.kinds()))
            self._handlers[kind] = self._builtins[kind]()
        return self._handlers[kind]

    def find(self, kind: str) -> Handler | None:
        return self._handlers.get(kind)

    def kinds(self) -> list[str]:
        return sorted({*self._handlers, *self._builtins})

    def make_all(self) -> list[Handler]:
        return [self.get(kind) for kind in self.kinds()]

    def list_made(self) -> list[Handler]:
        """Declared handlers, and those built-in ones that were requested."""
        return list(self._handlers.values())

    @asynccontextmanager
    async def run_start_and_stop_hooks(self) -> AsyncIterator[None]:
        """Start hooks before, in the order they were declared, and stop hooks after, in the reverse order.

        Raises:
            StartHookFailed: A start hook raised, or took too long.
        """
        for hook in self.start_hooks:
            try:
                await _call_hook(hook)
            except Exception as error:
                raise StartHookFailed(
                    f"start hook {_get_hook_name(hook)} failed: {describe_exception(error)}"
                ) from error
        try:
            yield
        finally:
            for hook in reversed(self.stop_hooks):
                try:
                    await _call_hook(hook)
                except Exception as error:  # noqa: BLE001  the other hooks have something to release, too
                    emit("hook.failed", hook=_get_hook_name(hook), error=describe_exception(error))

    def map_kinds_to_providers(self) -> dict[str, str]:
        """Kind -> whom its handler calls: by the name of its limiter, else it is a provider of its own."""
        return {handler.kind: handler.limiter or handler.kind for handler in self.make_all()}


def _get_hook_name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", repr(hook))


async def _call_hook(hook: Hook) -> None:
    """An async hook runs in the handlers' event loop, any other in a thread."""
    async with asyncio.timeout(HOOK_TIMEOUT_S):
        if inspect.iscoroutinefunction(hook):
            await hook()
        else:
            await asyncio.to_thread(hook)


def format_unknown_kind(kind: str, known: list[str]) -> str:
    listed = ", ".join(known) if known else "none is declared yet"
    return f"there is no handler for kind {kind!r}; known kinds: {listed}"


def make_item_handler(kind: str, call: Callable[..., Any], **options: Any) -> Handler:
    """``options`` are fields of ``Handler``."""
    return Handler(kind, call, "async" if inspect.iscoroutinefunction(call) else "sync", **options)


def make_batch_handler(kind: str, call: Callable[..., Any], **options: Any) -> Handler:
    """A second parameter of the function, if it has one, is the flush transaction."""
    in_transaction = len(inspect.signature(call).parameters) > 1
    if in_transaction and not inspect.iscoroutinefunction(call):
        raise InvalidInput(f"batch handler {kind!r} takes a transaction, so it must be async")
    return Handler(kind, call, "batch", concurrency=1, in_transaction=in_transaction, **options)


def normalize_column_names(names: Iterable[str] | None) -> tuple[str, ...]:
    """The declared columns of a handler's results; None for none."""
    if names is None:
        return ()
    given = () if isinstance(names, str) else tuple(names)
    if not given or not all(isinstance(name, str) for name in given):
        raise InvalidInput('columns are a list of names, as in columns=["sku", "price"]')
    return given


def _validate_handler(handler: Handler) -> None:
    retry = handler.retry
    problems = [
        problem
        for wrong, problem in (
            (not _KIND_PATTERN.fullmatch(handler.kind), "a kind is lower-case letters, digits and _ . : -"),
            (
                handler.kind.startswith(BUILTIN_KIND_PREFIX),
                f"kinds that begin with {BUILTIN_KIND_PREFIX!r} are Tidemill's own",
            ),
            (
                not 1 <= handler.concurrency <= HANDLER_CONCURRENCY_MAX,
                f"concurrency is from 1 to {HANDLER_CONCURRENCY_MAX}",
            ),
            (handler.timeout is not None and handler.timeout <= 0, "timeout is positive, or None for no limit"),
            (handler.flush_size is not None and handler.flush_size < 1, "flush_size is 1 or more"),
            (handler.limit_by is not None and handler.limiter is None, "limit_by says which member of a limit"),
            (handler.limit_by is not None and not callable(handler.limit_by), "limit_by is a function of an item"),
            (len(handler.columns) > GRID_COLUMNS_MAX, f"columns are at most {GRID_COLUMNS_MAX}"),
            (len(set(handler.columns)) < len(handler.columns), "columns have different names"),
            (
                any(len(name) > COLUMN_NAME_MAX_CHARS or "\x00" in name for name in handler.columns),
                f"the name of a column has at most {COLUMN_NAME_MAX_CHARS} characters, none of them NUL",
            ),
            (retry.max_attempts < 1 or retry.max_attempts_not_found < 1, "max_attempts is 1 or more"),
            (
                max(retry.max_attempts, retry.max_attempts_not_found) > HANDLER_MAX_ATTEMPTS,
                f"max_attempts is at most {HANDLER_MAX_ATTEMPTS}",
            ),
            (retry.backoff < 0 or retry.backoff_cap < 0 or retry.not_found_delay < 0, "a delay is not negative"),
        )
        if wrong
    ]
    if problems:
        raise InvalidInput(f"handler {handler.kind!r}: " + "; ".join(problems))
