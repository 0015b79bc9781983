"""Wake-ups through a broker: Redis or RabbitMQ, by Taskiq. Losing one, or the broker, costs only latency."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidemill.core.decide import describe_exception
from tidemill.core.errors import BrokerUnavailable, InvalidRequest, InvalidSettings
from tidemill.dispatch.broker_connection import BROKER_CONNECT_TIMEOUT_S, BrokerConnection
from tidemill.dispatch.envelope import Envelope, WakeupReceiver, decode_envelope, encode_envelope
from tidemill.telemetry.events import emit

if TYPE_CHECKING:
    from taskiq import AckableMessage

BROKER_BY_SCHEME = {"redis": "redis", "rediss": "redis", "amqp": "rabbitmq", "amqps": "rabbitmq"}
BROKER_SEND_TIMEOUT_S = 15.0  # for a block of hints
BROKER_CLOSE_TIMEOUT_S = 2.0
MAX_RECONNECT_DELAY_S = 10.0


def parse_broker_name(url: str) -> str:
    """Which broker an address names; InvalidSettings if none."""
    scheme = urlsplit(url).scheme
    if scheme not in BROKER_BY_SCHEME:
        raise InvalidSettings(f"TIDEMILL_BROKER: {scheme or url!r} is no broker: say redis://… or amqp://…")
    return BROKER_BY_SCHEME[scheme]


def make_connection_factory(
    url: str, namespace: str, kinds: Sequence[str], worker: str
) -> Callable[[], BrokerConnection]:
    """What makes lines to the broker at ``url``; InvalidSettings if its library is not installed."""
    try:
        if parse_broker_name(url) == "redis":
            from tidemill.dispatch.redis_connection import RedisConnection  # noqa: PLC0415  of an extra that few installations have

            return lambda: RedisConnection(url, namespace, kinds, worker)
        from tidemill.dispatch.rabbitmq_connection import RabbitMQConnection  # noqa: PLC0415  as above

        return lambda: RabbitMQConnection(url, namespace, kinds)
    except ImportError as error:
        raise InvalidSettings(f"TIDEMILL_BROKER needs `pip install 'tidemill[brokers]'`: {error}") from None


def compute_reconnect_delay(failures: int) -> float:
    """Seconds until the next try, longer each time, and not the same for everybody."""
    return min(MAX_RECONNECT_DELAY_S, 0.2 * (1 << min(failures, 10))) * (0.5 + random.random() / 2)  # noqa: S311  not a secret


class BrokerDispatcher:
    """A ``JobDispatcher`` of two lines, one to send and one to receive; each is made again when it breaks."""

    def __init__(self, make_connection: Callable[[], BrokerConnection], kinds: Sequence[str]) -> None:
        self._make_connection = make_connection
        self._kinds = frozenset(kinds)
        self._send_connection: BrokerConnection | None = None
        self._error_by_action: dict[str, str] = {}

    @property
    def current_error(self) -> str | None:
        """Why there is no broker now; None when all is well."""
        return next(iter(self._error_by_action.values()), None)

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        doing = "open"
        try:
            async with asyncio.timeout(BROKER_SEND_TIMEOUT_S):
                line = await self._get_send_connection()
                self._record_action_result(doing, None)
                if not envelopes:
                    return []
                doing = "send"
                answers = await _send_envelopes(line, envelopes)
        except Exception as error:
            await self.close()
            self._record_action_result(doing, _describe_broker_error(error))
            raise BrokerUnavailable(_describe_broker_error(error)) from error
        self._record_action_result(doing, None)
        return answers

    def clear_send_error(self) -> None:
        """What could not be sent, somebody else has sent, or nobody wants it: there is no trouble any more."""
        self._record_action_result("send", None)

    async def check_connection(self) -> None:
        """Find out whether there is a broker; BrokerLost if not."""
        await self.dispatch([])

    async def receive_wakeups(self, handler: WakeupReceiver) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                async with _open_connection(self._make_connection()) as line, _open_messages(line) as messages:
                    self._record_action_result("receive", None)
                    await handler.wake_after_reconnect()
                    await self._receive_messages(messages, handler)
                    error = "the broker has closed the line"
            except Exception as failure:  # noqa: BLE001  whatever it was, work goes on without it and we try again
                error = _describe_broker_error(failure)
            self._record_action_result("receive", error)
            failures = (
                0 if time.monotonic() - began > MAX_RECONNECT_DELAY_S else failures
            )  # one that held is made again soon
            await asyncio.sleep(compute_reconnect_delay(failures))
            failures += 1

    async def close(self) -> None:
        line, self._send_connection = self._send_connection, None
        if line is not None:
            await _close_quietly(line)

    async def _get_send_connection(self) -> BrokerConnection:
        if self._send_connection is None:
            line = self._make_connection()
            try:
                await line.startup()
            except BaseException:
                await _close_quietly(line)
                raise
            self._send_connection = line
        return self._send_connection

    async def _receive_messages(
        self, messages: "AsyncIterator[AckableMessage | None]", handler: WakeupReceiver
    ) -> None:
        while True:
            await handler.wait_for_idle_lane()
            message = await anext(messages, None)
            if message is None:
                return
            await self._handle_message(message, handler)
            await _acknowledge_message(message)

    async def _handle_message(self, message: "AckableMessage", handler: WakeupReceiver) -> None:
        try:
            envelope = decode_envelope(message.data)
        except InvalidRequest as error:
            await handler.quarantine_invalid_message(message.data, str(error))
            return
        if envelope.kind in self._kinds:
            await handler.wake_for_job(envelope.job_id)
        else:
            await handler.quarantine_invalid_message(
                message.data, f"header.type is {envelope.kind[:80]!r}, which nobody here runs"
            )

    def _record_action_result(self, what: str, error: str | None) -> None:
        """Tell of it when the broker is lost, and when it is back; not of every try in between."""
        before = self.current_error
        self._error_by_action.pop(what, None)
        if error is not None:
            self._error_by_action[what] = error
        if before is None and error is not None:
            emit("broker.lost", error=error)
        elif before is not None and self.current_error is None:
            emit("broker.found", error=before)


async def _send_envelopes(line: BrokerConnection, envelopes: Sequence[Envelope]) -> list[str | None]:
    answers: list[str | None] = [None] * len(envelopes)
    messages: list[tuple[str, bytes]] = []
    places: list[int] = []
    for place, envelope in enumerate(envelopes):
        try:
            messages.append((line.queue_name_for(envelope.kind), encode_envelope(envelope)))
            places.append(place)
        except InvalidRequest as error:
            answers[place] = str(error)
    for place, answer in zip(places, await line.send(messages) if messages else [], strict=True):
        answers[place] = answer
    return answers


@asynccontextmanager
async def _open_connection(line: BrokerConnection) -> AsyncIterator[BrokerConnection]:
    try:
        async with asyncio.timeout(2 * BROKER_CONNECT_TIMEOUT_S):
            await line.startup()
        yield line
    finally:
        await _close_quietly(line)


@asynccontextmanager
async def _open_messages(line: BrokerConnection) -> "AsyncIterator[AsyncIterator[AckableMessage | None]]":
    """The messages of the queues that ``line`` consumes.

    A broker that was killed may accept a connection and then never answer the request to consume, or to stop
    consuming: both have a timeout.
    """
    messages = line.listen()
    try:
        async with asyncio.timeout(2 * BROKER_CONNECT_TIMEOUT_S):
            await anext(messages)
        yield messages
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(BROKER_CLOSE_TIMEOUT_S):
                await messages.aclose()


async def _close_quietly(line: BrokerConnection) -> None:
    """What is broken need not be closed with all honours."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(BROKER_CLOSE_TIMEOUT_S):
            await line.shutdown()


async def _acknowledge_message(message: "AckableMessage") -> None:
    answer: Any = message.ack()
    if answer is not None:
        await answer


def _describe_broker_error(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the broker does not answer in time"
    return describe_exception(error)
