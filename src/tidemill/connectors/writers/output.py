"""Where writers write to, and what they have in common."""

from collections.abc import Sequence
from typing import Protocol

from tidemill.domain.columns import Cell
from tidemill.domain.formula import defuse


class Output(Protocol):
    """Takes pieces and gives nothing back: it need not be a file."""

    def write(self, piece: bytes, /) -> int: ...
    def flush(self) -> None: ...


def defused(cells: Sequence[Cell]) -> list[Cell]:
    """Cells of which no text can be read as a formula by a spreadsheet."""
    return [defuse(cell) if isinstance(cell, str) else cell for cell in cells]
