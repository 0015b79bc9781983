"""The next records of a source, and where in their file they stood."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Block:
    """The next records of a source, encoded as JSON, in order.

    A record that is no input is kept as text, a JSON string, and has a defect: why, under its index in this block.
    ``lines`` are the physical lines of the records; None when all of them follow the plain rule of ``line_of``.
    """

    inputs: list[bytes]  # none: the source is at its end
    checkpoint: dict[str, Any]  # where the next one begins
    defects: dict[int, dict[str, Any]] = field(default_factory=dict)
    lines: list[int] | None = None


def line_of(row: int, line: int | None, first_line: int) -> int:
    """The physical line of a record: the one that was noted, or the one that its number says."""
    return row + first_line - 1 if line is None else line
