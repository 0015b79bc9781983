"""Wakes workers: by LISTEN/NOTIFY, or by hints through a broker, Redis or RabbitMQ, with Taskiq.

A lost wake-up only increases latency: workers also poll.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

from psycopg import AsyncConnection

from tidemill.core.decide import describe_exception
from tidemill.core.errors import BrokerUnavailable, InvalidRequest, InvalidSettings, escape_unprintable
from tidemill.dispatch import outbox, quarantine
from tidemill.dispatch.envelope import Envelope, decode_envelope, encode_envelope
from tidemill.failpoints import register_connection
from tidemill.store.database import Connection, Database, break_connection
from tidemill.store.statements import make_sql_loader
from tidemill.telemetry.events import emit

if TYPE_CHECKING:
    from taskiq import AckableMessage


class WakeupReceiver(Protocol):
    """Handles hints in a worker."""

    async def wake_after_reconnect(self) -> None:
        """Wake all children after a reconnect, because hints may have been missed."""

    async def wait_for_idle_lane(self) -> None:
        """Wait until a lane is idle, so that a busy worker leaves hints to other workers."""

    async def wake_for_job(self, job_id: UUID) -> None:
        """Handle a hint that this job has work."""

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        """Store a message that is not a valid hint, for inspection."""


class WakeupDispatcher(Protocol):
    """Sends and receives hints that jobs have work. A lost or repeated hint only affects latency."""

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        """Send hints together; return for each None, or why the broker rejected it.

        Raises:
            BrokerUnavailable: The broker does not respond.
        """

    async def receive_wakeups(self, handler: WakeupReceiver) -> None:
        """Pass received hints to the handler until cancelled; reconnect if the connection breaks."""

    async def close(self) -> None: ...


IDLE_LANE_POLL_S = 0.05
QUARANTINE_TRIM_EVERY_MESSAGES = 1_000  # invalid messages may arrive faster than maintenance deletes them
MAX_HINT_HOLD_S = 60.0  # brokers redeliver a message that is not acknowledged for longer


class NotificationReceiver:
    """Receives notifications of the database, which reach every worker.

    They wake the relay and, while no broker delivers hints, the children.
    """

    def __init__(
        self, wake_all: Callable[[], None], wake_relay: Callable[[], None], is_only_source: Callable[[], bool]
    ) -> None:
        self._wake_all = wake_all
        self._wake_relay = wake_relay
        self._is_only_source = is_only_source

    async def wake_after_reconnect(self) -> None:
        self._wake_all()
        self._wake_relay()

    async def wait_for_idle_lane(self) -> None:
        """Return at once: a notification reaches all workers, so none is taken from another worker."""

    async def wake_for_job(self, job_id: UUID) -> None:  # noqa: ARG002  every child chooses a job fairly
        self._wake_relay()
        if self._is_only_source():
            self._wake_all()

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        """Do nothing: invalid notifications are ignored."""


class HintReceiver:
    """Receives hints of a broker, each for one worker, and passes the job to one child."""

    def __init__(
        self,
        db: Database,
        worker: str,
        *,
        wake: Callable[[UUID], None],
        wake_all: Callable[[], None],
        has_idle_lane: Callable[[], bool],
    ) -> None:
        self._db = db
        self._worker = worker
        self._wake = wake
        self._wake_all = wake_all
        self._has_idle_lane = has_idle_lane
        self._quarantined_total = 0

    async def wake_after_reconnect(self) -> None:
        self._wake_all()

    async def wait_for_idle_lane(self) -> None:
        until = time.monotonic() + MAX_HINT_HOLD_S
        while not self._has_idle_lane() and time.monotonic() < until:  # noqa: ASYNC110  children are other processes and cannot set an event
            await asyncio.sleep(IDLE_LANE_POLL_S)

    async def wake_for_job(self, job_id: UUID) -> None:
        is_runnable = await self._db.read(outbox.can_job_use_hint, job_id)
        if is_runnable:
            self._wake(job_id)
        emit("hint.heard" if is_runnable else "hint.dropped", job=job_id)

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        """Quarantine a message. If that fails, only report it: otherwise the broker would redeliver it forever."""
        try:
            await self._db.run(quarantine.quarantine_message, self._worker, message, reason)
            self._quarantined_total += 1
            if self._quarantined_total % QUARANTINE_TRIM_EVERY_MESSAGES == 0:
                await self._db.run(quarantine.delete_surplus_quarantined)
        except Exception as error:  # noqa: BLE001  continue with the next message
            emit("loop.failed", loop="quarantine", error=describe_exception(error))
        emit("hint.quarantined", job=None, reason=reason, bytes=len(message))


sql = make_sql_loader("tidemill.dispatch")

LISTEN_TIMEOUT_S = 10.0
LISTEN_RECONNECT_DELAY_S = 1.0


class PostgresDispatcher:
    """A ``WakeupDispatcher`` that needs only the database. Every listener gets every notification."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        await self._db.run(notify_listeners, [envelope.job_id for envelope in envelopes])
        return [None] * len(envelopes)

    async def receive_wakeups(self, handler: WakeupReceiver) -> None:
        while True:
            try:
                async with open_listen_connection(self._db.url) as connection:
                    await handler.wake_after_reconnect()
                    while True:
                        for payload in await wait_for_notifications(connection, LISTEN_TIMEOUT_S):
                            await _wake_for_notification(payload, handler)
            except Exception as error:  # noqa: BLE001  workers poll in the meantime, and this loop reconnects
                emit("listen.lost", error=str(error).strip())
                await asyncio.sleep(LISTEN_RECONNECT_DELAY_S)

    async def close(self) -> None:
        """Do nothing: no connection stays open between calls."""


async def _wake_for_notification(payload: str, handler: WakeupReceiver) -> None:
    with contextlib.suppress(ValueError):  # any database user may send notifications
        await handler.wake_for_job(UUID(payload))


@asynccontextmanager
async def open_listen_connection(url: str) -> AsyncIterator[Connection]:
    conn = await AsyncConnection.connect(url, autocommit=True, connect_timeout=10, application_name="tidemill listen")
    register_connection(conn, break_connection)
    try:
        await conn.execute(b"LISTEN tidemill")
        yield conn
    finally:
        await conn.close()


async def wait_for_notifications(conn: Connection, seconds: float) -> list[str]:
    """Wait up to ``seconds`` for a notification; return the job IDs that arrived with it.

    If none arrives, run a query, which detects a broken connection.
    """
    payloads = [notify.payload async for notify in conn.notifies(timeout=seconds, stop_after=1)]
    if not payloads:
        await conn.execute(b"SELECT 1")
    return payloads


async def notify_listeners(conn: Connection, job_ids: Sequence[UUID]) -> None:
    """Notify all listeners that these jobs have work."""
    await conn.execute(sql("outbox/announce_all"), {"job_ids": list(job_ids)})


MAX_QUEUED_HINTS = 100_000  # per queue; the oldest are dropped, and workers find their jobs by polling
BROKER_CONNECT_TIMEOUT_S = 5.0
BROKER_SILENCE_TIMEOUT_S = 10.0  # a connection without traffic for longer counts as broken


class BrokerConnection(Protocol):
    """A connection that is opened once, used until it breaks, and then replaced."""

    def queue_name_for(self, kind: str) -> str:
        """Return the queue of a kind. Each kind has its own, so that a worker gets only hints that it can use."""

    async def startup(self) -> None: ...

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> list[str | None]:
        """Send (queue, message) pairs together; return for each None, or why the broker rejected it."""

    def listen(self) -> "AsyncGenerator[AckableMessage | None, None]":
        """Yield None when the connection is ready, then the messages of its kinds; end when it is closed."""

    async def delete_queue(self, kind: str) -> None:
        """Delete the queue of a kind with all its messages."""

    async def shutdown(self) -> None: ...


BROKER_BY_SCHEME = {"redis": "redis", "rediss": "redis", "amqp": "rabbitmq", "amqps": "rabbitmq"}
BROKER_SEND_TIMEOUT_S = 15.0  # per block of hints
BROKER_CLOSE_TIMEOUT_S = 2.0
MAX_RECONNECT_DELAY_S = 10.0


def parse_broker_name(url: str) -> str:
    """Return which broker a URL is for; raise InvalidSettings if its scheme is unknown."""
    scheme = urlsplit(url).scheme
    if scheme not in BROKER_BY_SCHEME:
        raise InvalidSettings(f'TIDEMILL_BROKER: unknown broker "{scheme or url}"; use redis://… or amqp://…')
    return BROKER_BY_SCHEME[scheme]


def make_connection_factory(
    url: str, namespace: str, kinds: Sequence[str], worker: str
) -> Callable[[], BrokerConnection]:
    """Return a function that creates connections to the broker; raise InvalidSettings if its library is missing."""
    try:
        if parse_broker_name(url) == "redis":
            from tidemill.dispatch.redis_connection import RedisConnection  # noqa: PLC0415  an optional dependency

            return lambda: RedisConnection(url, namespace, kinds, worker)
        from tidemill.dispatch.rabbitmq_connection import RabbitMQConnection  # noqa: PLC0415  as above

        return lambda: RabbitMQConnection(url, namespace, kinds)
    except ImportError as error:
        raise InvalidSettings(f"TIDEMILL_BROKER requires `pip install 'tidemill[brokers]'`: {error}") from None


def compute_reconnect_delay(failures: int) -> float:
    """Return the seconds until the next attempt: exponential backoff with jitter."""
    return min(MAX_RECONNECT_DELAY_S, 0.2 * (1 << min(failures, 10))) * (0.5 + random.random() / 2)  # noqa: S311  not a secret


class BrokerDispatcher:
    """A ``WakeupDispatcher`` with two connections, one to send and one to receive; each is replaced when it breaks."""

    def __init__(self, make_connection: Callable[[], BrokerConnection], kinds: Sequence[str]) -> None:
        self._make_connection = make_connection
        self._kinds = frozenset(kinds)
        self._send_connection: BrokerConnection | None = None
        self._error_by_action: dict[str, str] = {}

    @property
    def current_error(self) -> str | None:
        """Why the broker is unavailable, or None."""
        return next(iter(self._error_by_action.values()), None)

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        action = "open"
        try:
            async with asyncio.timeout(BROKER_SEND_TIMEOUT_S):
                connection = await self._get_or_open_send_connection()
                self._record_broker_error_or_recovery(action, None)
                if not envelopes:
                    return []
                action = "send"
                errors = await _send_envelopes(connection, envelopes)
        except Exception as error:
            await self.close()
            self._record_broker_error_or_recovery(action, _describe_broker_error(error))
            raise BrokerUnavailable(_describe_broker_error(error)) from error
        self._record_broker_error_or_recovery(action, None)
        return errors

    def clear_send_error(self) -> None:
        """Clear the last error of sending, because no hints are left to send."""
        self._record_broker_error_or_recovery("send", None)

    async def ensure_send_connection(self) -> None:
        """Connect if necessary; raise BrokerUnavailable if that fails."""
        await self.dispatch([])

    async def receive_wakeups(self, handler: WakeupReceiver) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            try:
                async with (
                    _open_connection(self._make_connection()) as connection,
                    _open_message_stream(connection) as messages,
                ):
                    self._record_broker_error_or_recovery("receive", None)
                    await handler.wake_after_reconnect()
                    await self._handle_and_acknowledge_messages(messages, handler)
                    error = "The broker closed the connection"
            except Exception as failure:  # noqa: BLE001  workers continue without the broker, and this loop reconnects
                error = _describe_broker_error(failure)
            self._record_broker_error_or_recovery("receive", error)
            if time.monotonic() - started > MAX_RECONNECT_DELAY_S:
                failures = 0  # the connection worked for a while: reconnect soon
            await asyncio.sleep(compute_reconnect_delay(failures))
            failures += 1

    async def close(self) -> None:
        line, self._send_connection = self._send_connection, None
        if line is not None:
            await _close_quietly(line)

    async def _get_or_open_send_connection(self) -> BrokerConnection:
        if self._send_connection is None:
            line = self._make_connection()
            try:
                await line.startup()
            except BaseException:
                await _close_quietly(line)
                raise
            self._send_connection = line
        return self._send_connection

    async def _handle_and_acknowledge_messages(
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
                message.data,
                escape_unprintable(f'header.type: this worker does not run kind "{envelope.kind[:80]}"'),
            )

    def _record_broker_error_or_recovery(self, what: str, error: str | None) -> None:
        """Emit an event when the broker is lost and when it is back, but not for every attempt in between."""
        before = self.current_error
        self._error_by_action.pop(what, None)
        if error is not None:
            self._error_by_action[what] = error
        if before is None and error is not None:
            emit("broker.lost", error=error)
        elif before is not None and self.current_error is None:
            emit("broker.found", error=before)


async def _send_envelopes(line: BrokerConnection, envelopes: Sequence[Envelope]) -> list[str | None]:
    errors: list[str | None] = [None] * len(envelopes)
    messages: list[tuple[str, bytes]] = []
    indexes: list[int] = []
    for index, envelope in enumerate(envelopes):
        try:
            messages.append((line.queue_name_for(envelope.kind), encode_envelope(envelope)))
            indexes.append(index)
        except InvalidRequest as invalid:
            errors[index] = str(invalid)
    for index, error in zip(indexes, await line.send(messages) if messages else [], strict=True):
        errors[index] = error
    return errors


@asynccontextmanager
async def _open_connection(line: BrokerConnection) -> AsyncIterator[BrokerConnection]:
    try:
        async with asyncio.timeout(2 * BROKER_CONNECT_TIMEOUT_S):
            await line.startup()
        yield line
    finally:
        await _close_quietly(line)


@asynccontextmanager
async def _open_message_stream(line: BrokerConnection) -> "AsyncIterator[AsyncIterator[AckableMessage | None]]":
    """Yield the messages of the queues that the connection consumes.

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
    """Close a connection that may be broken; ignore errors."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(BROKER_CLOSE_TIMEOUT_S):
            await line.shutdown()


async def _acknowledge_message(message: "AckableMessage") -> None:
    answer: Any = message.ack()
    if answer is not None:
        await answer


def _describe_broker_error(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "The broker does not respond in time"
    return describe_exception(error)
