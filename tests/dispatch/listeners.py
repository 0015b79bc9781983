"""Listeners and senders for tests of dispatchers."""

import asyncio
import contextlib
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from support import eventually
from tidemill.dispatch.dispatchers import BrokerDispatcher, HintReceiver
from tidemill.dispatch.envelope import Envelope
from tidemill.store.database import Database


def envelope(kind: str = "test", job_id: UUID | None = None, **fields: Any) -> Envelope:
    return Envelope(job_id or uuid4(), kind, datetime(2026, 11, 16, tzinfo=UTC), **fields)


class Ear:
    """A receiver that records hints."""

    def __init__(self, *, busy: bool = False) -> None:
        self.heard: list[UUID] = []
        self.refused: list[tuple[bytes, str]] = []
        self.began = 0
        self.free = asyncio.Event()
        if not busy:
            self.free.set()

    def listening(self, dispatcher: Any, stack: AsyncExitStack) -> "Ear":
        task = asyncio.create_task(dispatcher.receive_wakeups(self))

        async def end() -> None:
            for _ in range(60):  # a library may swallow it while its connection breaks
                if task.done():
                    break
                task.cancel()
                await asyncio.wait([task], timeout=1)
            assert task.done(), "the dispatcher ignores its cancellation"
            with contextlib.suppress(asyncio.CancelledError):
                task.result()

        stack.push_async_callback(end)
        return self

    async def wake_after_reconnect(self) -> None:
        self.began += 1

    async def wait_for_idle_lane(self) -> None:
        await self.free.wait()

    async def wake_for_job(self, job_id: UUID) -> None:
        self.heard.append(job_id)

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        self.refused.append((message, reason))

    async def has_begun(self, times: int = 1) -> None:
        await eventually(lambda: _true(self.began >= times))

    async def has_heard(self, *job_ids: UUID) -> None:
        await eventually(lambda: _true(set(job_ids) <= set(self.heard)))

    async def has_refused(self, n: int) -> None:
        await eventually(lambda: _true(len(self.refused) >= n))


class WorkersEar(Ear):
    """A receiver that behaves like a worker."""

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._hints = HintReceiver(db, "w1", wake=self.heard.append, wake_all=lambda: None, has_idle_lane=lambda: True)

    async def wake_for_job(self, job_id: UUID) -> None:
        await self._hints.wake_for_job(job_id)

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        await self._hints.quarantine_invalid_message(message, reason)
        await super().quarantine_invalid_message(message, reason)


async def _true(value: object) -> bool:
    return bool(value)


async def send_raw(dispatcher: BrokerDispatcher, kind: str, *messages: bytes) -> None:
    """Send arbitrary messages, as any client of the broker can."""
    line = dispatcher._make_connection()
    await line.startup()
    try:
        await line.send([(line.queue_name_for(kind), message) for message in messages])
    finally:
        await line.shutdown()
