"""A proxy in front of a service that throttles all requests for a while and records when requests arrive."""

import asyncio
import time
from dataclasses import dataclass, field

import httpx2

from support.reconciliation_services import Reply, Request

STATUS = 429


@dataclass
class Gate:
    """Forwards requests to ``url``. After ``rows`` rows it throttles all requests for ``seconds``."""

    url: str
    rows: int
    seconds: float
    passed: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    _rows: int = 0
    _until: float | None = None

    def __post_init__(self) -> None:
        self._client = httpx2.AsyncClient(trust_env=False, timeout=30, limits=httpx2.Limits(max_connections=20))

    async def answer(self, request: Request) -> Reply:
        now = time.monotonic()
        if self._is_storm(now):
            self.refused.append(now)
            remaining = max(1, round((self._until or now) - now))
            return Reply(STATUS, b"too many requests", {"Retry-After": str(remaining)})
        self.passed.append(now)
        self._rows += len(request.queries)
        headers = {"Content-Type": request.headers["content-type"]}
        response = await self._client.post(self.url, content=request.body, headers=headers)
        return Reply(response.status_code, response.content, {"Content-Type": "application/json"})

    async def close(self) -> None:
        await self._client.aclose()
        await asyncio.sleep(0)

    def _is_storm(self, now: float) -> bool:
        if self._until is None and self._rows >= self.rows:
            self._until = now + self.seconds
        return self._until is not None and now < self._until
