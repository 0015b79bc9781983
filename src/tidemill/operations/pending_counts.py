"""How much is open, asked often and summed seldom."""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tidemill.domain.status import ItemStatus
from tidemill.operations.inspect import open_sums
from tidemill.store.database import Database
from tidemill.store.lists.batches import OpenSums

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
        self._summed: dict[int | None, tuple[float, asyncio.Future[OpenSums]]] = {}

    async def get(
        self, owner_id: int | None = None, *, statuses: Collection[ItemStatus] = (), kind: str | None = None
    ) -> PendingCount:
        """Of these statuses, and of this kind, if that is said."""
        at, sum_ = self._summed.get(owner_id, (float("-inf"), None))
        if sum_ is None or self._clock() - at >= self._keep_s:
            at, sum_ = self._clock(), asyncio.ensure_future(open_sums(self._db, owner_id))
            self._forget_old()
            self._summed[owner_id] = (at, sum_)
        try:
            sums = await asyncio.shield(sum_)
        except Exception:
            self._summed.pop(owner_id, None)  # the next one tries again
            raise
        wanted = (n for (of, status), n in sums.items() if kind in (None, of) and (not statuses or status in statuses))
        return PendingCount(sum(wanted), self._clock() - at)

    def _forget_old(self) -> None:
        if len(self._summed) >= MOST_OWNERS:
            now = self._clock()
            self._summed = {who: kept for who, kept in self._summed.items() if now - kept[0] < self._keep_s}
