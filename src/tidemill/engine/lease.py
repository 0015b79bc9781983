"""Keeping a worker's leases and places alive, and telling that the worker is."""

import os
import socket
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tidemill.engine.service import Service
from tidemill.store import leases, limiters, workers
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

LONGEST_S = 5.0


class Heartbeat(Service):
    """Runs in the parent, so that a stuck or dying handler never takes the lease keeper along.

    Only leases that are in some child's logbook are kept: one that nobody works on runs out and is swept.
    """

    name = "heartbeat"

    def __init__(
        self,
        db: Database,
        worker: str,
        *,
        seconds: float,
        in_hand: Callable[[], list[UUID]],
        info: Callable[[], dict[str, Any]],
        children: Callable[[], list[int]],
    ) -> None:
        super().__init__()
        self._db = db
        self._worker = worker
        self._seconds = seconds
        self._place = (socket.gethostname(), os.getpid())
        self._in_hand = in_hand
        self._info = info
        self._children = children

    async def tick(self) -> float:
        await self._db.run(leases.heartbeat, self._worker, self._in_hand(), self._seconds)
        await self._db.run(limiters.renew, self._worker, self._children(), self._seconds)
        info = self._info()
        await self._db.run(workers.register, self._worker, *self._place, info)
        emit("worker.adapted", children=info.get("adaptive", []))
        return min(self._seconds / 3, LONGEST_S)
