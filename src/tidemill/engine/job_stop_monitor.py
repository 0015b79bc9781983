"""Watches whether the jobs of running batches were stopped."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from uuid import UUID

from tidemill.core.decide import describe_exception
from tidemill.store import job_lifecycle
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

MAX_STOP_POLL_S = 1.0
StopCallback = Callable[[], None]


class JobStopMonitor:
    """Polls the jobs of running batches with one query per interval, and no query while no batch runs."""

    def __init__(self, db: Database, poll_s: float) -> None:
        self._db = db
        self._poll_s = min(poll_s, MAX_STOP_POLL_S)
        self._callbacks: dict[UUID, list[StopCallback]] = {}
        self._polling: asyncio.Task[None] | None = None

    @property
    def is_watching(self) -> bool:
        """Whether a batch runs whose job has not stopped."""
        return bool(self._callbacks)

    @contextlib.contextmanager
    def watch_job(self, job_id: UUID, on_stop: StopCallback) -> Iterator[None]:
        """Call ``on_stop`` at most once if the job may not run any more while the context is open."""
        self._callbacks.setdefault(job_id, []).append(on_stop)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll_until_unused())
        try:
            yield
        finally:
            waiting = self._callbacks.get(job_id, [])
            if on_stop in waiting:
                waiting.remove(on_stop)
                if not waiting:
                    del self._callbacks[job_id]

    async def _poll_until_unused(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            if not self._callbacks:
                return
            try:
                stopped = await self._db.read(job_lifecycle.list_stopped_jobs, list(self._callbacks))
            except Exception as error:  # noqa: BLE001  the database may be available again at the next poll
                emit("loop.failed", loop="job stop monitor", error=describe_exception(error))
                continue
            for job_id in stopped:
                for on_stop in self._callbacks.pop(job_id, []):
                    on_stop()
