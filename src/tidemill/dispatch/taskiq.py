"""Wake-ups through a broker: Redis or RabbitMQ, by Taskiq. Losing one, or the broker, costs only latency."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidemill.dispatch.line import CONNECT_S, Line
from tidemill.domain.decide import describe
from tidemill.domain.envelope import Envelope, decode, encode
from tidemill.domain.errors import BrokerLost, InvalidRequest, InvalidSettings
from tidemill.domain.ports import JobHandler
from tidemill.telemetry.events import emit

if TYPE_CHECKING:
    from taskiq import AckableMessage

SCHEMES = {"redis": "redis", "rediss": "redis", "amqp": "rabbitmq", "amqps": "rabbitmq"}
SEND_S = 15.0  # for a block of hints
CLOSE_S = 2.0
LONGEST_S = 10.0


def broker_of(url: str) -> str:
    """Which broker an address names; InvalidSettings if none."""
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise InvalidSettings(f"TIDEMILL_BROKER: {scheme or url!r} is no broker: say redis://… or amqp://…")
    return SCHEMES[scheme]


def line_maker(url: str, namespace: str, kinds: Sequence[str], worker: str) -> Callable[[], Line]:
    """What makes lines to the broker at ``url``; InvalidSettings if its library is not installed."""
    try:
        if broker_of(url) == "redis":
            from tidemill.dispatch.redis import RedisLine  # noqa: PLC0415  of an extra that few installations have

            return lambda: RedisLine(url, namespace, kinds, worker)
        from tidemill.dispatch.rabbitmq import RabbitLine  # noqa: PLC0415  as above

        return lambda: RabbitLine(url, namespace, kinds)
    except ImportError as error:
        raise InvalidSettings(f"TIDEMILL_BROKER needs `pip install 'tidemill[brokers]'`: {error}") from None


def pause_after(failures: int) -> float:
    """Seconds until the next try, longer each time, and not the same for everybody."""
    return min(LONGEST_S, 0.2 * (1 << min(failures, 10))) * (0.5 + random.random() / 2)  # noqa: S311  not a secret


class BrokerDispatcher:
    """A ``JobDispatcher`` of two lines, one to send and one to receive; each is made again when it breaks."""

    def __init__(self, make_line: Callable[[], Line], kinds: Sequence[str]) -> None:
        self._make_line = make_line
        self._kinds = frozenset(kinds)
        self._sending: Line | None = None
        self._troubles: dict[str, str] = {}

    @property
    def trouble(self) -> str | None:
        """Why there is no broker now; None when all is well."""
        return next(iter(self._troubles.values()), None)

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        doing = "open"
        try:
            async with asyncio.timeout(SEND_S):
                line = await self._line()
                self._note(doing, None)
                if not envelopes:
                    return []
                doing = "send"
                answers = await _send(line, envelopes)
        except Exception as error:
            await self.close()
            self._note(doing, _words(error))
            raise BrokerLost(_words(error)) from error
        self._note(doing, None)
        return answers

    def nothing_to_send(self) -> None:
        """What could not be sent, somebody else has sent, or nobody wants it: there is no trouble any more."""
        self._note("send", None)

    async def open(self) -> None:
        """Find out whether there is a broker; BrokerLost if not."""
        await self.dispatch([])

    async def deliver(self, handler: JobHandler) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                async with _opened(self._make_line()) as line, aclosing(line.listen()) as messages:
                    await anext(messages)
                    self._note("receive", None)
                    await handler.missed()
                    await self._hand_on(messages, handler)
                    error = "the broker has closed the line"
            except Exception as failure:  # noqa: BLE001  whatever it was, work goes on without it and we try again
                error = _words(failure)
            self._note("receive", error)
            failures = 0 if time.monotonic() - began > LONGEST_S else failures  # one that held is made again soon
            await asyncio.sleep(pause_after(failures))
            failures += 1

    async def close(self) -> None:
        line, self._sending = self._sending, None
        if line is not None:
            await _shut(line)

    async def _line(self) -> Line:
        if self._sending is None:
            line = self._make_line()
            try:
                await line.startup()
            except BaseException:
                await _shut(line)
                raise
            self._sending = line
        return self._sending

    async def _hand_on(self, messages: "AsyncIterator[AckableMessage | None]", handler: JobHandler) -> None:
        while True:
            await handler.ready()
            message = await anext(messages, None)
            if message is None:
                return
            await self._hear(message, handler)
            await _acknowledge(message)

    async def _hear(self, message: "AckableMessage", handler: JobHandler) -> None:
        try:
            envelope = decode(message.data)
        except InvalidRequest as error:
            await handler.refuse(message.data, str(error))
            return
        if envelope.kind in self._kinds:
            await handler.handle(envelope.job_id)
        else:
            await handler.refuse(message.data, f"header.type is {envelope.kind[:80]!r}, which nobody here runs")

    def _note(self, what: str, error: str | None) -> None:
        """Tell of it when the broker is lost, and when it is back; not of every try in between."""
        before = self.trouble
        self._troubles.pop(what, None)
        if error is not None:
            self._troubles[what] = error
        if before is None and error is not None:
            emit("broker.lost", error=error)
        elif before is not None and self.trouble is None:
            emit("broker.found", error=before)


async def _send(line: Line, envelopes: Sequence[Envelope]) -> list[str | None]:
    answers: list[str | None] = [None] * len(envelopes)
    messages: list[tuple[str, bytes]] = []
    places: list[int] = []
    for place, envelope in enumerate(envelopes):
        try:
            messages.append((line.queue(envelope.kind), encode(envelope)))
            places.append(place)
        except InvalidRequest as error:
            answers[place] = str(error)
    for place, answer in zip(places, await line.send(messages) if messages else [], strict=True):
        answers[place] = answer
    return answers


@asynccontextmanager
async def _opened(line: Line) -> AsyncIterator[Line]:
    try:
        async with asyncio.timeout(2 * CONNECT_S):
            await line.startup()
        yield line
    finally:
        await _shut(line)


async def _shut(line: Line) -> None:
    """What is broken need not be closed with all honours."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_S):
            await line.shutdown()


async def _acknowledge(message: "AckableMessage") -> None:
    answer: Any = message.ack()
    if answer is not None:
        await answer


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the broker does not answer in time"
    return describe(error)
