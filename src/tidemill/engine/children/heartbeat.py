"""Keeping a worker's leases and places alive, and telling that the worker is."""

import os
import socket
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tidemill.engine.loop import Loop
from tidemill.limits import limiter_records
from tidemill.store import batch_leases, workers
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

MAX_HEARTBEAT_INTERVAL_S = 5.0


class HeartbeatLoop(Loop):
    """Runs in the parent, so that a stuck or dying handler never takes the lease keeper along.

    Only leases that are in some child's logbook are kept: one that nobody works on runs out and is swept.
    """

    name = "heartbeat"

    def __init__(
        self,
        db: Database,
        worker: str,
        *,
        lease_seconds: float,
        list_lease_ids: Callable[[], list[UUID]],
        describe_worker: Callable[[], dict[str, Any]],
        list_child_pids: Callable[[], list[int]],
    ) -> None:
        super().__init__()
        self._db = db
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._host_and_pid = (socket.gethostname(), os.getpid())
        self._list_lease_ids = list_lease_ids
        self._describe_worker = describe_worker
        self._list_child_pids = list_child_pids

    async def tick(self) -> float:
        await self._db.run_async_commit(
            batch_leases.extend_leases, self._worker, self._list_lease_ids(), self._lease_seconds
        )
        await self._db.run_async_commit(
            limiter_records.renew_slots, self._worker, self._list_child_pids(), self._lease_seconds
        )
        info = self._describe_worker()
        await self._db.run(workers.register_worker, self._worker, *self._host_and_pid, info)
        emit("worker.adapted", children=info.get("adaptive", []))
        return min(self._lease_seconds / 3, MAX_HEARTBEAT_INTERVAL_S)
