"""Mended rows that come back: which row of the import each of them is."""

from collections.abc import Container
from typing import Any

from tidemill.domain.importing.failures import ROW

PROBLEMS_MAX = 100  # that are told; others are counted


class Problems:
    """What is wrong with a file of mended rows: the first of it in sentences."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.count = 0

    def add(self, problem: str) -> None:
        self.count += 1
        if len(self.told) < PROBLEMS_MAX:
            self.told.append(problem)


class Matcher:
    """Finds the row of each record by its number, and those that are there twice: a bit for each row of the import."""

    def __init__(self, total: int, problems: Problems, known: Container[str] = ()) -> None:
        """``known``: columns that are the import's, even if they begin with an underscore."""
        self._total = total
        self._known = known
        self._seen = bytearray(total // 8 + 1)
        self._problems = problems

    def match(self, record: Any, line: int) -> tuple[int, dict[str, Any]] | None:
        """The row's seq and its mended fields, without ours; None when it is none, which is told."""
        said = record.get(ROW) if isinstance(record, dict) else None
        if said in (None, ""):
            self._problems.add(f"line {line}: there is no {ROW}, so nobody knows which row it is")
            return None
        row = row_number(said)
        if row is None or not 0 < row <= self._total:
            self._problems.add(f"line {line}: the import has no row {str(said)[:40]!r}")
            return None
        seq = row - 1
        if self._seen[seq >> 3] >> (seq & 7) & 1:
            self._problems.add(f"line {line}: row {row} is there twice")
            return None
        self._seen[seq >> 3] |= 1 << (seq & 7)
        return seq, {name: value for name, value in record.items() if name in self._known or not name.startswith("_")}


def row_number(said: Any) -> int | None:
    """A number, as a file has it: spreadsheets write 7 as 7.0 at times."""
    if isinstance(said, str):
        digits = said.strip().removesuffix(".0")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None  # noqa: PLR2004
    if isinstance(said, float) and said.is_integer():
        return int(said)
    return said if isinstance(said, int) and not isinstance(said, bool) else None
