"""The protocol of broker connections: a Taskiq broker that sends many messages at once."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from taskiq import AckableMessage

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
