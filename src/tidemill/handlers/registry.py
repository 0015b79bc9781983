"""The kinds of a mill, and their options checked when they are declared."""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tidemill.domain.columns import MAX_COLUMNS, NAME_MAX
from tidemill.domain.errors import InvalidInput, UnknownKind
from tidemill.domain.handler import MAX_CONCURRENCY, OWN_KINDS, Handler
from tidemill.domain.limits import LimitDesk
from tidemill.domain.resource import NORMALIZERS
from tidemill.domain.retry import RetryPolicy

MAX_ATTEMPTS = 30_000  # a smallint holds them
_KIND = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,99}")


class Registry:
    """Kind -> handler."""

    def __init__(self, own: Iterable[Handler] = (), desk: LimitDesk | None = None) -> None:
        self.normalizers: dict[str, Callable[[str], str]] = {}
        self.declared: dict[str, dict[str, Any]] = {}  # resources
        self.datasets: dict[str, dict[str, Any]] = {}
        self.producers: dict[str, Callable[..., Any]] = {}  # of datasets
        self.limiters: dict[str, dict[str, Any]] = {}
        self.desk = desk or LimitDesk()
        self._handlers = {handler.kind: handler for handler in own}

    def beside(self, own: Iterable[Handler]) -> "Registry":
        """The same kinds and the mill's own ones."""
        return Registry([*own, *self.all()], self.desk)

    def add(self, handler: Handler) -> None:
        _check(handler)
        if handler.kind in self._handlers:
            raise InvalidInput(f"kind {handler.kind!r} has a handler already")
        self._handlers[handler.kind] = handler

    def add_normalizer(self, name: str, function: Callable[[str], str]) -> None:
        if name in NORMALIZERS or name in self.normalizers:
            raise InvalidInput(f"there is a normalizer {name!r} already")
        self.normalizers[name] = function

    def get(self, kind: str) -> Handler:
        if kind not in self._handlers:
            raise UnknownKind(unknown_kind(kind, self.kinds()))
        return self._handlers[kind]

    def kinds(self) -> list[str]:
        return sorted(self._handlers)

    def all(self) -> list[Handler]:
        return [self._handlers[kind] for kind in self.kinds()]

    def providers(self) -> dict[str, str]:
        """Kind -> whom its handler calls: by the name of its limiter, else it is a provider of its own."""
        return {handler.kind: handler.limiter or handler.kind for handler in self.all()}


def unknown_kind(kind: str, known: list[str]) -> str:
    listed = ", ".join(known) if known else "none is declared yet"
    return f"there is no handler for kind {kind!r}; known kinds: {listed}"


def item_handler(kind: str, call: Callable[..., Any], **options: Any) -> Handler:
    mode = "async" if inspect.iscoroutinefunction(call) else "sync"
    return replace(Handler(kind, call, mode), **_options(options))  # type: ignore[arg-type]


def batch_handler(kind: str, call: Callable[..., Any], **options: Any) -> Handler:
    """A second parameter of the function, if it has one, is the flush transaction."""
    in_transaction = len(inspect.signature(call).parameters) > 1
    if in_transaction and not inspect.iscoroutinefunction(call):
        raise InvalidInput(f"batch handler {kind!r} takes a transaction, so it must be async")
    return replace(Handler(kind, call, "batch", concurrency=1, in_transaction=in_transaction), **_options(options))


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """Options that were given; the retry ones gathered into their policy."""
    given = {name: value for name, value in options.items() if value is not ...}
    if "columns" in given:
        given["columns"] = _columns(given["columns"])
    names = ("max_attempts", "max_attempts_not_found", "backoff", "backoff_cap", "not_found_delay")
    retry = {name: given.pop(name) for name in names if name in given}
    return given | {"retry": RetryPolicy(**retry)}


def _columns(names: Iterable[str]) -> tuple[str, ...]:
    given = () if isinstance(names, str) else tuple(names)
    if not given or not all(isinstance(name, str) for name in given):
        raise InvalidInput('columns are a list of names, as in columns=["sku", "price"]')
    return given


def _check(handler: Handler) -> None:
    retry = handler.retry
    problems = [
        problem
        for wrong, problem in (
            (not _KIND.fullmatch(handler.kind), "a kind is lower-case letters, digits and _ . : -"),
            (handler.kind.startswith(OWN_KINDS), f"kinds that begin with {OWN_KINDS!r} are Tidemill's own"),
            (not 1 <= handler.concurrency <= MAX_CONCURRENCY, f"concurrency is from 1 to {MAX_CONCURRENCY}"),
            (handler.timeout is not None and handler.timeout <= 0, "timeout is positive, or None for no limit"),
            (handler.flush_size is not None and handler.flush_size < 1, "flush_size is 1 or more"),
            (handler.limit_by is not None and handler.limiter is None, "limit_by says which member of a limit"),
            (handler.limit_by is not None and not callable(handler.limit_by), "limit_by is a function of an item"),
            (len(handler.columns) > MAX_COLUMNS, f"columns are at most {MAX_COLUMNS}"),
            (len(set(handler.columns)) < len(handler.columns), "columns have different names"),
            (
                any(len(name) > NAME_MAX or "\x00" in name for name in handler.columns),
                f"the name of a column has at most {NAME_MAX} characters, none of them NUL",
            ),
            (retry.max_attempts < 1 or retry.max_attempts_not_found < 1, "max_attempts is 1 or more"),
            (
                max(retry.max_attempts, retry.max_attempts_not_found) > MAX_ATTEMPTS,
                f"max_attempts is at most {MAX_ATTEMPTS}",
            ),
            (retry.backoff < 0 or retry.backoff_cap < 0 or retry.not_found_delay < 0, "a delay is not negative"),
        )
        if wrong
    ]
    if problems:
        raise InvalidInput(f"handler {handler.kind!r}: " + "; ".join(problems))
