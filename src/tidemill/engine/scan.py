"""Scanning watches: one at a time in each worker, and each by one worker at a time."""

from collections.abc import Awaitable, Callable

from tidemill.engine.service import Service

Turn = Callable[[Callable[[], bool]], Awaitable[float]]


class Scanning(Service):
    """Takes turns for as long as there are any; one under way ends soon after it is told to stop."""

    name = "scan"

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    async def tick(self) -> float:
        return await self._turn(lambda: not self.stopping)
