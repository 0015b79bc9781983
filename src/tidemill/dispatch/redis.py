"""Redis streams, through Taskiq."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from redis.asyncio import Redis
from taskiq import AckableMessage
from taskiq_redis import RedisStreamBroker

from tidemill.dispatch.line import CONNECT_S, MAX_LENGTH, QUIET_S

GROUP = "tidemill"
BLOCK_MS = 2_000
ABANDONED_MS = 60_000  # a hint that a worker took and did not answer for so long is somebody else's
GONE_MS = 3_600_000  # a consumer that has been silent for so long is no more
AT_ONCE = 1_000


class RedisLine(RedisStreamBroker):
    """A stream per kind, read by one group: each hint reaches one worker.

    Differs from Taskiq's broker in what hints need: one at a time, so that a worker does not take those of its
    neighbours; an entry without a message is handed on as an empty one, where Taskiq would stop listening; and what is
    acknowledged is deleted, so that Redis does not grow.
    """

    def __init__(self, url: str, namespace: str, kinds: Sequence[str], worker: str) -> None:
        self._namespace = namespace
        first, *others = map(self.queue, kinds)
        super().__init__(
            url,
            queue_name=first,
            additional_streams=dict.fromkeys(others, ">"),
            consumer_group_name=GROUP,
            consumer_name=worker,
            consumer_id="0",  # what was sent before anybody listened counts too
            xread_block=BLOCK_MS,
            max_connection_pool_size=4,
            socket_timeout=QUIET_S,
            socket_connect_timeout=CONNECT_S,
        )
        self._streams = [first, *others]
        self._look_at = 0.0

    def queue(self, kind: str) -> str:
        return f"tidemill:{{{self._namespace}}}:{kind}"  # in braces: one slot of a cluster has them all

    async def startup(self) -> None:
        await super().startup()
        async with Redis(connection_pool=self.connection_pool) as redis:
            for stream in self._streams:
                for consumer in await redis.xinfo_consumers(stream, GROUP):
                    if consumer["idle"] > GONE_MS and not consumer["pending"]:
                        await redis.xgroup_delconsumer(stream, GROUP, consumer["name"])

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> list[str | None]:
        async with Redis(connection_pool=self.connection_pool) as redis:
            for start in range(0, len(messages), AT_ONCE):
                pipe = redis.pipeline(transaction=False)
                for queue, message in messages[start : start + AT_ONCE]:
                    pipe.xadd(queue, {b"data": message}, maxlen=MAX_LENGTH, approximate=True)
                await pipe.execute()
        return [None] * len(messages)  # what Redis refuses, it refuses to all: that was an exception

    async def listen(self) -> AsyncGenerator[AckableMessage | None, None]:  # type: ignore[override]  # see Line
        streams: Any = dict.fromkeys(self._streams, ">")
        async with Redis(connection_pool=self.connection_pool) as redis:
            ours: Any = dict.fromkeys(self._streams, "0")  # what we have: nothing is taken before we are ready
            await redis.xreadgroup(GROUP, self.consumer_name, ours, count=1)
            yield None
            while True:
                found: Any = await redis.xreadgroup(GROUP, self.consumer_name, streams, count=1, block=BLOCK_MS)
                if time.monotonic() >= self._look_at:
                    self._look_at = time.monotonic() + ABANDONED_MS / 2_000
                    found = [*found, *[await self._abandoned(redis, stream) for stream in self._streams]]
                for stream, entries in found:
                    for entry_id, fields in entries:
                        if entry_id is not None:  # one that was deleted while a worker had it
                            data = (fields or {}).get(b"data", b"")
                            yield AckableMessage(data=data, ack=self._ack_generator(entry_id, stream))

    async def drop(self, kind: str) -> None:
        async with Redis(connection_pool=self.connection_pool) as redis:
            await redis.delete(self.queue(kind))

    async def _abandoned(self, redis: Redis, stream: str) -> tuple[str, Any]:
        claimed: Any = await redis.xautoclaim(stream, GROUP, self.consumer_name, ABANDONED_MS, count=16)
        return stream, claimed[1]

    def _ack_generator(self, id: str, queue_name: str) -> Callable[[], Awaitable[None]]:  # noqa: A002  Taskiq's names
        async def ack() -> None:
            async with Redis(connection_pool=self.connection_pool) as redis:
                pipe = redis.pipeline(transaction=False)
                pipe.xack(queue_name, GROUP, id)
                pipe.xdel(queue_name, id)
                await pipe.execute()

        return ack
