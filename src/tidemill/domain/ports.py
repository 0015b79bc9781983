"""What the rooms of one floor know of each other: protocols that app fills."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from tidemill.domain.block import Block
from tidemill.domain.envelope import Envelope
from tidemill.domain.handler import Handler


class Source(Protocol):
    """Records from a checkpoint on. Reading from the same checkpoint gives the same records."""

    @property
    def columns(self) -> list[str] | None:
        """Their names in the file's own order; None where records name their own."""

    @property
    def first_line(self) -> int:
        """Of the first record."""

    @property
    def layout(self) -> Mapping[str, Any]:
        """What its file was taken for; empty where whoever opened it had said so."""

    def read(self, rows: int, size: int) -> Block:
        """So many rows and about so many bytes at most, but one record at least; none at the end."""

    def close(self) -> None: ...


class OpenSource(Protocol):
    """Blocks, for long if the source must be fetched first; Interrupted soon after ``going_on`` says no."""

    def __call__(
        self, reference: dict[str, Any], checkpoint: dict[str, Any], going_on: Callable[[], bool] = ...
    ) -> Source: ...


class Intake(Protocol):
    """Looks at the inputs of a job while they are read, in order and from the first one on.

    ``params`` are the job's, with what is known now that its source is open; ``held`` says that nobody may begin
    before the source is read to its end.
    """

    params: dict[str, Any]
    held: bool

    def see(self, lo: int, inputs: Sequence[bytes]) -> list[tuple[int, int, int]]:
        """The next inputs, the first of which has this seq: who loses to whom, and in which key (seq, other, place)."""

    def close(self) -> None: ...


class Handlers(Protocol):
    """The kinds a worker can run."""

    def get(self, kind: str) -> Handler: ...
    def kinds(self) -> list[str]: ...
    def all(self) -> list[Handler]: ...


class Permit(Protocol):
    """Leave to begin one call: waited for on the way in, given back on the way out.

    A refusal (429, 503) that passes through is told to the limiter, and to no other. ``Wait`` is raised when the
    limiter is blocked for longer than anybody would wait here: the item goes back and comes again then, uncharged.
    """

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...


class Limits(Protocol):
    """The limiters of the installation, as one process asks them.

    A handler that makes one call per item names its limiter (``limit=``, and ``limit_by=`` a function of the item for a
    member per domain): then its items begin when there is a permit, and it need not ask. A batch handler has one permit
    per batch. One that makes several calls, or calls others beside, asks for each of them:
    ``async with limits.permit("shop")``. A mill's ``registry.desk.limit`` is the same, before there is a worker.
    """

    def permit(self, name: str, key: str = "") -> Permit: ...


class JobHandler(Protocol):
    """What a worker does when it hears that a job has work."""

    async def missed(self) -> None:
        """The line is new: nobody knows what was said before."""

    async def ready(self) -> None:
        """Wait until somebody here has nothing to do: whoever is busy should leave hints to others."""

    async def handle(self, job_id: UUID) -> None:
        """A hint: have the job looked at."""

    async def refuse(self, message: bytes, reason: str) -> None:
        """A message that is no hint: keep it for people to see."""


class JobDispatcher(Protocol):
    """Tells workers which jobs have work. Its messages are hints: what is lost or repeated changes only latency."""

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        """Send them in one go: for each of them None, or why it was refused. BrokerLost if there is nobody to ask."""

    async def deliver(self, handler: JobHandler) -> None:
        """Hand on what others dispatch, until cancelled. A line that breaks is made again."""

    async def close(self) -> None: ...
