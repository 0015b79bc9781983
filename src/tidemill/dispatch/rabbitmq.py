"""RabbitMQ, through Taskiq."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

from aio_pika import ExchangeType, connect
from aio_pika.abc import AbstractQueueIterator
from pamqp.common import FieldTable
from taskiq import AckableMessage, AsyncBroker
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue, QueueType
from taskiq_aio_pika.utils import merge_async_iterables

from tidemill.dispatch.confirms import publish_all
from tidemill.dispatch.line import CONNECT_S, MAX_LENGTH, QUIET_S

for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # what they warn of, our own events tell

AT_ONCE = 1_000
DEAD_LETTERS = 1_000
ONE_HINT = 1  # a worker does not take those of its neighbours


class RabbitLine(AioPikaBroker):
    """A durable queue per kind behind one exchange; every message is persistent, mandatory and confirmed.

    Taskiq's broker mends its connection behind the curtain. Here a line that breaks ends, and is made again as a whole:
    one way to recover for all brokers, and it can be seen.
    """

    def __init__(self, url: str, namespace: str, kinds: Sequence[str]) -> None:
        self._namespace = namespace
        names = [self.queue(kind) for kind in kinds]
        super().__init__(
            url,
            qos=ONE_HINT,
            exchange=Exchange(name=f"tidemill.{namespace}", type=ExchangeType.DIRECT),
            task_queues=[_queue(name, MAX_LENGTH) for name in names],
            dead_letter_queue=_queue(f"tidemill.{namespace}.dropped", DEAD_LETTERS),
        )
        self._declared = set(names)

    def queue(self, kind: str) -> str:
        return f"tidemill.{self._namespace}.{kind}"

    async def startup(self) -> None:
        await AsyncBroker.startup(self)
        line: Any = await connect(self.url, timeout=CONNECT_S, heartbeat=round(QUIET_S))
        self.read_conn = self.write_conn = line  # one that breaks is not mended but replaced
        self.write_channel = await line.channel(on_return_raises=True)
        self.read_channel = await line.channel()
        await self._declare_exchanges()
        await self._declare_queues(self.write_channel)

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> list[str | None]:
        await self._declare_others({queue for queue, _ in messages} - self._declared)
        assert self.write_channel is not None  # noqa: S101  opened
        channel = await self.write_channel.get_underlay_channel()
        answers: list[str | None] = []
        for start in range(0, len(messages), AT_ONCE):
            answers += await publish_all(channel, self._exchange.name, messages[start : start + AT_ONCE])
        # Perhaps somebody has deleted a queue: the next try makes it again.
        self._declared -= {queue for (queue, _), answer in zip(messages, answers, strict=True) if answer is not None}
        return answers

    async def listen(self) -> AsyncGenerator[AckableMessage | None, None]:  # type: ignore[override]  # see Line
        assert self.read_channel is not None  # noqa: S101  opened
        await self.read_channel.set_qos(prefetch_count=ONE_HINT)
        consumers = [queue.iterator(**words) for queue, words in await self._declare_queues(self.read_channel)]
        for consumer in consumers:
            await consumer.consume()
        yield None
        async for message in merge_async_iterables(*map(_messages, consumers)):
            yield message

    async def drop(self, kind: str) -> None:
        assert self.write_channel is not None  # noqa: S101  opened
        await self.write_channel.queue_delete(self.queue(kind))

    async def _declare_others(self, names: set[str]) -> None:
        """Queues of kinds that this worker does not run: whoever does may come later."""
        assert self.write_channel is not None  # noqa: S101  opened
        for name in sorted(names):
            queue = _queue(name, MAX_LENGTH)
            arguments: FieldTable = {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": self._dead_letter_queue.name,
                "x-queue-type": queue.type.value,
            }
            made = await self.write_channel.declare_queue(name, durable=True, arguments=arguments | queue.arguments)
            await made.bind(self._exchange.name, routing_key=name)
            self._declared.add(name)


async def _messages(consumer: AbstractQueueIterator) -> AsyncGenerator[AckableMessage, None]:
    with suppress(RuntimeError, asyncio.CancelledError):  # of a channel that closes while the consumer does
        async with consumer:
            async for message in consumer:
                yield AckableMessage(data=message.body, ack=message.ack)


def _queue(name: str, length: int) -> Queue:
    return Queue(name=name, type=QueueType.QUORUM, arguments={"x-max-length": length})
