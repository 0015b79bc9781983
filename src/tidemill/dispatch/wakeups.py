"""The protocols between a dispatcher and a worker that it wakes."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from tidemill.dispatch.envelope import Envelope


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
