"""Wake-ups by LISTEN/NOTIFY. Losing one, or the line, costs only latency: polling is the truth."""

import asyncio
import contextlib
from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.envelope import Envelope
from tidemill.domain.ports import JobHandler
from tidemill.store.database import Database
from tidemill.store.listen import announce_all, hints, listening
from tidemill.telemetry.events import emit

QUIET_S = 10.0
RECONNECT_S = 1.0


class PostgresDispatcher:
    """The ``JobDispatcher`` that needs nothing but the database. Everybody who listens hears everything."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        await self._db.run(announce_all, [envelope.job_id for envelope in envelopes])
        return [None] * len(envelopes)

    async def deliver(self, handler: JobHandler) -> None:
        while True:
            try:
                async with listening(self._db.url) as line:
                    await handler.missed()
                    while True:
                        for payload in await hints(line, QUIET_S):
                            await _hand_on(payload, handler)
            except Exception as error:  # noqa: BLE001  whatever broke the line, polling goes on and we try again
                emit("listen.lost", error=str(error).strip())
                await asyncio.sleep(RECONNECT_S)

    async def close(self) -> None:
        """Nothing is kept open between two calls."""


async def _hand_on(payload: str, handler: JobHandler) -> None:
    with contextlib.suppress(ValueError):  # anybody who may connect may notify
        await handler.handle(UUID(payload))
