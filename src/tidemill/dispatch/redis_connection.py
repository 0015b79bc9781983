"""Sends hints through Redis streams, with Taskiq."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from redis.asyncio import Redis
from taskiq import AckableMessage
from taskiq_redis import RedisStreamBroker

from tidemill.dispatch.dispatchers import BROKER_CONNECT_TIMEOUT_S, BROKER_SILENCE_TIMEOUT_S, MAX_QUEUED_HINTS

REDIS_CONSUMER_GROUP = "tidemill"
REDIS_READ_BLOCK_MS = 2_000
REDIS_ABANDONED_HINT_MS = 60_000  # a hint that a worker did not acknowledge in this time goes to another worker
REDIS_DEAD_CONSUMER_MS = 3_600_000  # a consumer that was idle for longer is removed
REDIS_SEND_BATCH = 1_000


class RedisConnection(RedisStreamBroker):
    """A stream per kind, read by one consumer group, so that each hint reaches one worker.

    It differs from Taskiq's broker: it reads one hint at a time, so that a worker does not take hints from others; it
    passes on an entry without a message as an empty one, where Taskiq would stop listening; and it deletes acknowledged
    entries, so that the streams do not grow.
    """

    def __init__(self, url: str, namespace: str, kinds: Sequence[str], worker: str) -> None:
        self._namespace = namespace
        first, *others = map(self.queue_name_for, kinds)
        super().__init__(
            url,
            queue_name=first,
            additional_streams=dict.fromkeys(others, ">"),
            consumer_group_name=REDIS_CONSUMER_GROUP,
            consumer_name=worker,
            consumer_id="0",  # also deliver hints that were sent before the first worker listened
            xread_block=REDIS_READ_BLOCK_MS,
            max_connection_pool_size=4,
            socket_timeout=BROKER_SILENCE_TIMEOUT_S,
            socket_connect_timeout=BROKER_CONNECT_TIMEOUT_S,
        )
        self._streams = [first, *others]
        self._next_reclaim_at = 0.0

    def queue_name_for(self, kind: str) -> str:
        return f"tidemill:{{{self._namespace}}}:{kind}"  # in braces: all keys are in one slot of a cluster

    async def startup(self) -> None:
        await super().startup()
        async with Redis(connection_pool=self.connection_pool) as redis:
            for stream in self._streams:
                for consumer in await redis.xinfo_consumers(stream, REDIS_CONSUMER_GROUP):
                    if consumer["idle"] > REDIS_DEAD_CONSUMER_MS and not consumer["pending"]:
                        await redis.xgroup_delconsumer(stream, REDIS_CONSUMER_GROUP, consumer["name"])

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> list[str | None]:
        async with Redis(connection_pool=self.connection_pool) as redis:
            for start in range(0, len(messages), REDIS_SEND_BATCH):
                pipe = redis.pipeline(transaction=False)
                for queue, message in messages[start : start + REDIS_SEND_BATCH]:
                    pipe.xadd(queue, {b"data": message}, maxlen=MAX_QUEUED_HINTS, approximate=True)
                await pipe.execute()
        return [None] * len(messages)  # Redis rejects no single message; errors raise an exception

    async def listen(self) -> AsyncGenerator[AckableMessage | None, None]:  # type: ignore[override]  # see BrokerConnection
        streams: Any = dict.fromkeys(self._streams, ">")
        async with Redis(connection_pool=self.connection_pool) as redis:
            pending: Any = dict.fromkeys(self._streams, "0")  # reads no new entries before the consumer is ready
            await redis.xreadgroup(REDIS_CONSUMER_GROUP, self.consumer_name, pending, count=1)
            yield None
            while True:
                batches: Any = await redis.xreadgroup(
                    REDIS_CONSUMER_GROUP, self.consumer_name, streams, count=1, block=REDIS_READ_BLOCK_MS
                )
                if time.monotonic() >= self._next_reclaim_at:
                    self._next_reclaim_at = time.monotonic() + REDIS_ABANDONED_HINT_MS / 2_000
                    batches = [
                        *batches,
                        *[await self._reclaim_abandoned_messages(redis, stream) for stream in self._streams],
                    ]
                for stream, entries in batches:
                    for entry_id, fields in entries:
                        if entry_id is not None:  # None: the entry was deleted before it was acknowledged
                            data = (fields or {}).get(b"data", b"")
                            yield AckableMessage(data=data, ack=self._ack_generator(entry_id, stream))

    async def delete_queue(self, kind: str) -> None:
        async with Redis(connection_pool=self.connection_pool) as redis:
            await redis.delete(self.queue_name_for(kind))

    async def _reclaim_abandoned_messages(self, redis: Redis, stream: str) -> tuple[str, Any]:
        claimed: Any = await redis.xautoclaim(
            stream, REDIS_CONSUMER_GROUP, self.consumer_name, REDIS_ABANDONED_HINT_MS, count=16
        )
        return stream, claimed[1]

    def _ack_generator(self, id: str, queue_name: str) -> Callable[[], Awaitable[None]]:  # noqa: A002  Taskiq's names
        async def ack() -> None:
            async with Redis(connection_pool=self.connection_pool) as redis:
                pipe = redis.pipeline(transaction=False)
                pipe.xack(queue_name, REDIS_CONSUMER_GROUP, id)
                pipe.xdel(queue_name, id)
                await pipe.execute()

        return ack
