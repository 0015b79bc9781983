"""What the rooms of one floor know of each other: protocols that app fills."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tidemill.domain.block import Block
from tidemill.domain.handler import Handler


class Source(Protocol):
    """Records from a checkpoint on. Reading from the same checkpoint gives the same records."""

    @property
    def columns(self) -> list[str] | None:
        """Their names in the file's own order; None where records name their own."""

    @property
    def first_line(self) -> int:
        """Of the first record."""

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
