"""All the limiters that one process asks."""

import asyncio
from collections.abc import Mapping

from tidemill.domain.errors import InvalidInput
from tidemill.domain.handler import Handler
from tidemill.domain.limits import Limiter
from tidemill.engine.limits.entrance import Entrance
from tidemill.engine.limits.line import Line
from tidemill.engine.limits.permit import CallPermit
from tidemill.engine.limits.trips import PATIENCE_S, Trips
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

MOST_LINES = 1_000  # those that nobody stands in are forgotten beyond


class ProcessLimits:
    """Lines by limiter and member, each made when somebody comes."""

    def __init__(
        self, db: Database, declared: Mapping[str, Limiter], *, worker: str, child: int, seconds: float
    ) -> None:
        self._trips = Trips(db, declared, worker=worker, child=child, seconds=seconds)
        self._lines: dict[tuple[str, str], Line] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    def entrance(self, handler: Handler) -> Entrance | None:
        """Where the items of a handler stand in line, if it names a limiter."""
        self.loop = asyncio.get_running_loop()
        return None if handler.limiter is None else Entrance(self, handler)

    def line(self, name: str, key: str = "") -> Line:
        line = self._lines.get((name, key))
        if line is None:
            if name not in self._trips.declared:
                known = ", ".join(sorted(self._trips.declared)) or "none is declared"
                raise InvalidInput(f"there is no limiter {name!r}; declared are: {known}")
            if len(self._lines) >= MOST_LINES:
                self._forget()
            line = self._lines[name, key] = Line(self._trips, self._trips.declared[name], key)
        return line

    def permit(self, name: str, key: str = "") -> CallPermit:
        """For a handler that asks by itself."""
        return CallPermit(self, name, key)

    def is_closed(self, handler: Handler) -> bool:
        """Whether items of a handler need not be claimed: none may begin for a while."""
        return handler.limiter is not None and handler.limit_by is None and self.is_shut(handler.limiter)

    def is_shut(self, name: str) -> bool:
        """Whether a limiter lets nobody begin for a while, as far as this process knows."""
        line = self._lines.get((name, ""))
        if line is None or line.blocked_s() <= PATIENCE_S:
            return False
        line.look_again()
        return True

    def pace(self, handler: Handler) -> float | None:
        """Items a second that a handler's limiter lets begin, for everybody; None if it does not count them."""
        if handler.limiter is None or handler.limit_by is not None or handler.limiter not in self._trips.declared:
            return None
        line = self._lines.get((handler.limiter, ""))
        return self._trips.declared[handler.limiter].pace if line is None else line.pace

    def dismiss(self, run: object) -> None:
        for line in self._lines.values():
            if line.waiting:
                line.dismiss(run)

    def waiting(self) -> dict[str, int]:
        """How many items of this process wait for each limiter."""
        found: dict[str, int] = {}
        for (name, _), line in self._lines.items():
            found[name] = found.get(name, 0) + line.waiting
        return found

    def tell(self) -> None:
        """How many calls began since this was last told, and how long they waited."""
        told: dict[str, tuple[int, float]] = {}
        for (name, _), line in self._lines.items():
            permits, waited = told.get(name, (0, 0.0))
            told[name] = permits + line.permits, waited + line.waited_s
            line.permits, line.waited_s = 0, 0.0
        for name, (permits, waited) in told.items():
            if permits:
                emit("limiter.taken", limiter=name, permits=permits, waited_s=round(waited, 3))

    async def close(self) -> None:
        """What was to be told is told."""
        self.tell()
        await self._trips.close()

    def _forget(self) -> None:
        self._lines = {place: line for place, line in self._lines.items() if not line.is_idle or line.blocked_s()}
