"""The items of a handler that names a limiter, each at its line.

A permit that a handler asks for by itself.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Self

from tidemill.core.errors import InvalidInput
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import Retry, Wait
from tidemill.core.throttling import is_throttling_error, read_retry_after_s
from tidemill.limits.limiter_queue import LimiterQueue

if TYPE_CHECKING:
    from tidemill.limits.limiter_registry import LimiterRegistry

MAX_MEMBER_KEY_LENGTH = 255
LIMIT_BY_KEY_ERROR = "limit_by must return a text: which member of the limiter an item counts against"


class LimiterAdmission:
    """Of one run: ``open`` it before the first item, ``close`` it after the last."""

    def __init__(self, limits: "LimiterRegistry", handler: Handler) -> None:
        self._registry = limits
        self._limiter_name = handler.limiter or ""
        self._limit_by = handler.limit_by
        self.queue = limits.get_queue(self._limiter_name)

    @property
    def has_members(self) -> bool:
        """Whether items stand in different lines, so that one need not wait for another."""
        return self._limit_by is not None

    def get_item_queue(self, item: Item) -> LimiterQueue:
        """Whatever the user's function raises is the item's error."""
        return (
            self.queue
            if self._limit_by is None
            else self._registry.get_queue(self._limiter_name, self._get_member_key(item))
        )

    def interleave_members(self, items: Sequence[Item]) -> list[Item]:
        """Where there are several lines: the first of each, then the second of each: none holds up the others."""
        if self._limit_by is None:
            return list(items)
        lines: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            try:
                key = "" if item.defect is not None else self._get_member_key(item)
            except Exception:  # noqa: BLE001  it is told when the item's turn comes
                key = ""
            lines[key].append(item)
        return [item for item in chain.from_iterable(zip_longest(*lines.values())) if item is not None]

    def enter_run(self) -> None:
        if self._limit_by is None:
            self.queue.enter_run()

    def leave_run(self) -> None:
        if self._limit_by is None:
            self.queue.leave_run()

    def cancel_waiters(self, owner: object) -> None:
        self._registry.cancel_waiters(owner)

    def _get_member_key(self, item: Item) -> str:
        return normalize_member_key(None if self._limit_by is None else self._limit_by(item), LIMIT_BY_KEY_ERROR)


def normalize_member_key(key: object, error_message: str) -> str:
    """A member's name, as PostgreSQL can hold it."""
    if not isinstance(key, str):
        raise TypeError(error_message)
    return key[:MAX_MEMBER_KEY_LENGTH].encode(errors="replace").decode().replace("\x00", "")


class RateLimited(Wait):
    """What becomes of an item that would wait too long in a worker's hand: it comes again then, and is not charged."""

    def __init__(self, line: LimiterQueue, seconds: float) -> None:
        member = f" for {line.key}" if line.key else ""
        super().__init__(f"limiter {line.name}{member} lets nobody begin before", after=seconds, code="limited")
        self.limiter = None if line.key else line.name  # that lets nobody begin at all, if it is not a member only


if TYPE_CHECKING:
    from tidemill.limits.limiter_registry import LimiterRegistry


PERMIT_KEY_ERROR = "the member of a limiter is named by a text"


class LimiterPermit:
    """For one call: ``async with``, or ``with`` in a handler that runs in a thread."""

    def __init__(self, limits: "LimiterRegistry", name: str, key: str) -> None:
        self._registry = limits
        self._queue = limits.get_queue(name, normalize_member_key(key, PERMIT_KEY_ERROR))
        self._started_at = 0.0

    async def __aenter__(self) -> Self:
        wait = await self._queue.acquire(self)
        if wait is not None:
            raise RateLimited(self._queue, wait)
        self._started_at = time.monotonic()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None and is_throttled_error(error):
                said = error.after if isinstance(error, Retry) else read_retry_after_s(error)
                self._queue.report_throttled(said, self._started_at)
                mark_throttle_reported(error)
        finally:  # what a handler raises may be odd in any way
            self._queue.release(time.monotonic() - self._started_at)

    def __enter__(self) -> Self:
        loop = self._registry.loop
        if loop is None:
            raise InvalidInput("a limiter was asked outside of a worker")
        return asyncio.run_coroutine_threadsafe(self.__aenter__(), loop).result()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._registry.loop is not None:
            asyncio.run_coroutine_threadsafe(self.__aexit__(kind, error, trace), self._registry.loop).result()


def is_throttled_error(error: BaseException) -> bool:
    return bool(error.throttled) if isinstance(error, Retry) else is_throttling_error(error)


def mark_throttle_reported(error: BaseException) -> None:
    """The limiter whose call it was knows: the handler's own is not to blame."""
    with suppress(Exception):
        error.tidemill_throttle_reported = True  # type: ignore[attr-defined]


def is_throttle_reported(error: BaseException) -> bool:
    return bool(getattr(error, "tidemill_throttle_reported", False))
