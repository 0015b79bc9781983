"""A line to a broker, as the dispatcher uses it: a Taskiq broker that sends many messages in one go."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from taskiq import AckableMessage

MAX_QUEUED_HINTS = 100_000  # hints in a queue: the oldest go, and whoever polls finds their work
BROKER_CONNECT_TIMEOUT_S = 5.0
BROKER_SILENCE_TIMEOUT_S = 10.0  # a line that says nothing for so long is broken


class BrokerConnection(Protocol):
    """Opened once, used until it breaks, then thrown away."""

    def queue_name_for(self, kind: str) -> str:
        """Each kind has a queue of its own: a worker takes hints only of what it can run."""

    async def startup(self) -> None: ...

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> list[str | None]:
        """(queue, message) each, all in one go; for each of them None when the broker has it, or why it was refused."""

    def listen(self) -> "AsyncGenerator[AckableMessage | None, None]":
        """None once it is sure that we may, then what is sent to the kinds it was made for; it ends with the line."""

    async def delete_queue(self, kind: str) -> None:
        """Remove the queue of a kind, with all that is in it."""

    async def shutdown(self) -> None: ...
