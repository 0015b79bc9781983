"""One service as a process speaks to it: so many requests at a time, each with a permit, none for work nobody wants."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext

from tidemill.domain.errors import InvalidInput
from tidemill.domain.services import CallFailed, Reach, Refused, Service, failure_of
from tidemill.domain.services.calls import NOTHING_THERE, Answered, Headers
from tidemill.domain.services.permits import CallPermit, Permits
from tidemill.domain.services.service import SECRET
from tidemill.telemetry.events import emit

Insist = Callable[[], Awaitable[None]]
"""Raises when nobody wants the work any more."""


class ServiceDesk:
    """Waits for a place and a permit, asks, and tells of it."""

    def __init__(self, service: Service, reach: Reach, environment: Mapping[str, str], permits: Permits) -> None:
        # Few processes ever call anybody: the others are spared an HTTP client, 4 MB and 0.04 s of every start.
        from tidemill.connectors.remote.calls import Bounds, Caller  # noqa: PLC0415

        self.service = service
        self.batch_size: int | None = None  # rows in a request, once the service has said so
        self.batch_size_from = 0.0  # when to ask for it, by our own clock
        self._places = asyncio.Semaphore(service.concurrency)
        self._permits = permits
        self._secret = service.secret(environment)
        bounds = Bounds(service.timeout, service.max_bytes, service.concurrency)
        self._caller = Caller(reach, bounds, secret=self._header())

    async def enter(self) -> None:
        """Take a place; whoever has one asks soon, and leaves."""
        await self._places.acquire()

    def leave(self) -> None:
        self._places.release()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        insist: Insist,
        headers: Headers | None = None,
        content: bytes = b"",
        rows: int = 1,
    ) -> Answered:
        """An answer with a good status, or one that says that nothing is there; CallFailed for any other.

        The caller has a place. The permit is of this one request, however many rows it is about.
        """
        if self._secret is not None and not _can_be_sent(self._secret):
            reason = f"{self.service.secret_env} is not set where this worker runs, or cannot be sent in a header"
            raise CallFailed("service_secret", reason)
        service = self.service
        if service.limit is not None:
            await insist()  # before too: a permit for nothing is one that others wait for
        async with self._permit():
            await insist()
            started = time.monotonic()
            answered, failure = await self._call(method, service.url.rstrip("/") + path, headers, content)
            self._tell(answered, failure, rows, time.monotonic() - started)
            if failure is not None:
                raise failure
        return answered

    async def close(self) -> None:
        await self._caller.close()

    def _permit(self) -> CallPermit:
        if self.service.limit is None:
            return nullcontext()
        try:
            return self._permits.permit(self.service.limit, "")
        except InvalidInput as error:  # it is not declared
            raise CallFailed("unknown_limiter", str(error)) from None

    async def _call(
        self, method: str, url: str, headers: Headers | None, content: bytes
    ) -> tuple[Answered, CallFailed | None]:
        try:
            answered = await self._caller.call(method, url, headers, content)
        except CallFailed as error:
            return Answered(0, b"", None), error
        failure = None if answered.status in NOTHING_THERE else failure_of(answered.status, answered.after)
        return answered, failure

    def _tell(self, answered: Answered, failure: CallFailed | None, rows: int, seconds: float) -> None:
        name, ms = self.service.name, round(seconds * 1000, 1)
        if isinstance(failure, Refused):
            emit("service.refused", service=name, status=answered.status, rows=rows, after=failure.after)
        elif failure is not None:
            emit("service.failed", service=name, status=answered.status, rows=rows, code=failure.code, ms=ms)
        else:
            emit("service.called", service=name, status=answered.status, rows=rows, ms=ms)

    def _header(self) -> tuple[str, str] | None:
        if self.service.header is None or not self._secret or not _can_be_sent(self._secret):
            return None
        return self.service.header, self.service.value.replace(SECRET, self._secret)


def _can_be_sent(secret: str) -> bool:
    return bool(secret) and secret.isascii() and secret.isprintable()
