"""The next records of a source, and where in their file they stood.

What the rooms of one floor know of each other: protocols that app fills.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class InputBlock:
    """The next records of a source, encoded as JSON, in order.

    A record that is no input is kept as text, a JSON string, and has a defect: why, under its index in this block.
    ``lines`` are the physical lines of the records; None when all of them follow the plain rule of ``line_of``.
    """

    inputs: list[bytes]  # none: the source is at its end
    checkpoint: dict[str, Any]  # where the next one begins
    defects: dict[int, dict[str, Any]] = field(default_factory=dict)
    lines: list[int] | None = None


def resolve_line_number(row: int, line: int | None, first_line: int) -> int:
    """The physical line of a record: the one that was noted, or the one that its number says."""
    return row + first_line - 1 if line is None else line


class InputSource(Protocol):
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

    def read(self, rows: int, size: int) -> InputBlock:
        """So many rows and about so many bytes at most, but one record at least; none at the end."""

    def close(self) -> None: ...


class InputSourceOpener(Protocol):
    """Blocks, for long if the source must be fetched first; Interrupted soon after ``going_on`` says no."""

    def __call__(
        self, reference: dict[str, Any], checkpoint: dict[str, Any], should_continue: Callable[[], bool] = ...
    ) -> InputSource: ...


class InputObserver(Protocol):
    """Looks at the inputs of a job while they are read, in order and from the first one on.

    ``params`` are the job's, with what is known now that its source is open; ``held`` says that nobody may begin
    before the source is read to its end.
    """

    params: dict[str, Any]
    held: bool

    def observe(self, lo: int, inputs: Sequence[bytes]) -> list[tuple[int, int, int]]:
        """The next inputs, the first of which has this seq: who loses to whom, and in which key (seq, other, place)."""

    def close(self) -> None: ...
