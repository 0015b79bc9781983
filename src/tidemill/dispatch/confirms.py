"""Many messages to RabbitMQ in one write, each confirmed.

The library publishes one message a turn of the event loop, 0.4 ms each here. What it does for one message is done for
all of them under its lock; what comes back is its own business again. Measured: 5,000 hints in 0.9 s instead of 2.5.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiormq import spec
from aiormq.abc import ChannelFrame
from aiormq.exceptions import DeliveryError
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

PERSISTENT = 2


async def publish_all(channel: Any, exchange: str, messages: Sequence[tuple[str, bytes]]) -> list[str | None]:
    """(queue, message) each: None when RabbitMQ has it, or why not. Raises when the line broke before all was said."""
    confirmations: list[asyncio.Future[Any]] = []
    frames: list[Any] = []
    names: list[str] = []
    try:
        async with channel.lock:
            for queue, body in messages:
                channel.delivery_tag += 1
                confirmation, name = channel.create_future(), str(channel.delivery_tag)
                channel.confirmations[channel.delivery_tag] = confirmation
                channel.message_id_delivery_tag[name] = channel.delivery_tag  # by it, one that is returned is known
                confirmations.append(confirmation)
                names.append(name)
                frames += _frames(exchange, queue, name, body)
            await channel.write_queue.put(ChannelFrame.marshall(frames=frames, channel_number=channel.number))
        answers = await asyncio.gather(*confirmations, return_exceptions=True)
    finally:
        for name in names:
            channel.message_id_delivery_tag.pop(name, None)
    return [_refusal(answer) for answer in answers]


def _frames(exchange: str, queue: str, name: str, body: bytes) -> list[Any]:
    """A message of ours is far smaller than the smallest frame."""
    properties = spec.Basic.Properties(delivery_mode=PERSISTENT, content_type="application/json", message_id=name)
    publish = spec.Basic.Publish(exchange=exchange, routing_key=queue, mandatory=True)
    header = ContentHeader(properties=properties, body_size=len(body))
    return [publish, header, ContentBody(body)] if body else [publish, header]


def _refusal(answer: Any) -> str | None:
    if isinstance(answer, DeliveryError):
        return f"RabbitMQ refused it: {answer}"
    if isinstance(answer, asyncio.CancelledError):
        raise ConnectionError("the line to RabbitMQ broke")
    if isinstance(answer, BaseException):
        raise answer
    return None
