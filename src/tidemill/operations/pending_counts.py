"""How much is open, asked often and summed seldom."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.operations.inspect import pending_count
from tidemill.store.database import Database

KEEP_S = 30.0
MOST_OWNERS = 10_000


@dataclass(frozen=True, slots=True)
class PendingCount:
    """How many items are open, and how long ago that was summed."""

    count: int
    age_s: float


class PendingCounts:
    """Remembers the sum of each owner for 30 s; whoever asks meanwhile, however many at once, causes no second one."""

    def __init__(self, db: Database, *, keep_s: float = KEEP_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._keep_s = keep_s
        self._clock = clock
        self._summed: dict[int | None, tuple[float, asyncio.Future[int]]] = {}

    async def get(self, owner_id: int | None = None) -> PendingCount:
        at, sum_ = self._summed.get(owner_id, (float("-inf"), None))
        if sum_ is None or self._clock() - at >= self._keep_s:
            at, sum_ = self._clock(), asyncio.ensure_future(pending_count(self._db, owner_id))
            self._forget_old()
            self._summed[owner_id] = (at, sum_)
        try:
            return PendingCount(await asyncio.shield(sum_), self._clock() - at)
        except Exception:
            self._summed.pop(owner_id, None)  # the next one tries again
            raise

    def _forget_old(self) -> None:
        if len(self._summed) >= MOST_OWNERS:
            now = self._clock()
            self._summed = {who: kept for who, kept in self._summed.items() if now - kept[0] < self._keep_s}
