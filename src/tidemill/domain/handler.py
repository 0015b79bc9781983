"""A kind of work and how it wants to be run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tidemill.domain.retry import RetryPolicy

Mode = Literal["async", "sync", "batch"]
MAX_CONCURRENCY = 1_000
OWN_KINDS = "tidemill."  # kinds that begin so are built in


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and its options, as declared with ``@mill.handler`` or ``@mill.batch_handler``."""

    kind: str
    call: Callable[..., Any]
    mode: Mode
    concurrency: int = 50
    timeout: float | None = 300.0
    flush_size: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    permanent: tuple[type[BaseException], ...] = ()
    sparse: bool = False
    in_transaction: bool = False
    exact: bool = False  # fractions of inputs come as Decimal, with all their digits
    limiter: str | None = None
    limit_by: Callable[..., str] | None = None  # (item) -> the member of the limiter that it counts against
    columns: tuple[str, ...] = ()
    batch_size: int | None = None  # items of a batch; without it, what the settings say
    intake: Callable[..., Any] | None = None  # (params, source) -> Intake: looks at the inputs as they come
    close: Callable[[], Awaitable[None]] | None = None  # lets go of what the handler holds between items

    @property
    def is_batch(self) -> bool:
        return self.mode == "batch"
