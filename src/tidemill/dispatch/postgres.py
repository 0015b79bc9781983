"""Wake-ups by LISTEN/NOTIFY. Losing one, or the line, costs only latency: polling is the truth."""

import asyncio
from collections.abc import Callable

from tidemill.store.listen import hints, listening
from tidemill.telemetry.events import emit

QUIET_S = 10.0
RECONNECT_S = 1.0


class Listener:
    """Calls ``wake`` whenever somebody announces work, on a line that is made again when it breaks."""

    def __init__(self, url: str, wake: Callable[[], None]) -> None:
        self._url = url
        self._wake = wake

    async def run(self) -> None:
        while True:
            try:
                async with listening(self._url) as line:
                    self._wake()  # whatever was announced while nobody listened
                    while True:
                        if await hints(line, QUIET_S):
                            self._wake()
            except Exception as error:  # noqa: BLE001  whatever broke the line, polling goes on and we try again
                emit("listen.lost", error=str(error).strip())
                await asyncio.sleep(RECONNECT_S)
