"""Mended rows that come back: which row of the import each of them is."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tidemill.domain.importing.failures import ERRORS, ROW
from tidemill.domain.importing.mapping import fold

PROBLEMS_MAX = 100  # that are told; others are counted
KNOWN_MAX = 20  # columns that a refusal names


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
        return seq, {name: value for name, value in record.items() if self._is_data(name)}

    def _is_data(self, name: str) -> bool:
        """Ours are ours, also where the import has columns of these names: those stay as they came."""
        return name not in (ROW, ERRORS) and (name in self._known or not name.startswith("_"))


class Names:
    """Columns of a mended file as the import calls them: by the column's name or its field's, as imports are read."""

    def __init__(self, columns: Iterable[str], mapping: Mapping[str, str]) -> None:
        """``mapping``: column of the import -> field."""
        self._known = dict.fromkeys([*columns, *mapping])
        self._meant: dict[str, set[str]] = {}
        for column in self._known:
            for name in (column, mapping.get(column, "")):
                self._meant.setdefault(fold(name), set()).add(column)
        self._meant.pop("", None)  # nothing but punctuation is like nothing

    def of(self, name: str) -> str | None:
        """The import's column; a name that begins with an underscore stays; None if it is none, or could be two."""
        if name in self._known or name.startswith("_"):
            return name
        meant = self._meant.get(fold(name), set())
        return next(iter(meant)) if len(meant) == 1 else None

    def renamed(self, record: Any) -> Any:
        """A record in the import's own names; a field that is there by its own name stays that."""
        if not isinstance(record, dict) or record.keys() <= self._known.keys():
            return record
        called = {name: self.of(name) or name for name in record}
        return {name if called[name] in record else called[name]: value for name, value in record.items()}

    def problems(self, columns: Sequence[str]) -> list[str]:
        """What is wrong with the header of a mended file."""
        problems = [] if ROW in columns else [f"there is no column {ROW!r}, which says which row of the import it is"]
        strange = [name for name in columns if self.of(name) is None]
        problems += [
            f"column {name!r} is none of the import's{self._which() if at == 0 else ''}"
            for at, name in enumerate(strange)
        ]
        by_column: dict[str, list[str]] = {}
        for name in columns:
            by_column.setdefault(self.of(name) or name, []).append(name)
        twice = {column: names for column, names in by_column.items() if len(names) > 1}
        return problems + [f"columns {', '.join(map(repr, names))} are all {name!r}" for name, names in twice.items()]

    def _which(self) -> str:
        more = len(self._known) - KNOWN_MAX
        return f", which are {', '.join(list(self._known)[:KNOWN_MAX])}" + (f" and {more:,} more" if more > 0 else "")


class Cells:
    """Mended rows of a file that has texts alone. A cell that was not touched stays the value it was written from."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        """``plan``: the import's, as its job keeps it."""
        fields = (plan.get("resource") or {}).get("fields", ()) if plan.get("documents") else ()
        documents = {field["name"] for field in fields if field["type"] == "json"}
        self._documents = {column for column, name in plan.get("mapping", {}).items() if name in documents}

    def read(self, held: Any, cells: Mapping[str, Any]) -> dict[str, Any]:
        """A field that the row did not name, and has nothing in its cell, is still not named."""
        if not isinstance(held, dict):
            return {name: self._value(name, value) for name, value in cells.items()}
        touched = {name for name, value in cells.items() if written(held.get(name)) != written(value)}
        return held | {name: self._value(name, cells[name]) for name in cells if name in touched}

    def _value(self, name: str, value: Any) -> Any:
        return _document(value) if name in self._documents else value


def written(value: Any) -> str:
    """A value as a cell of a file has it; no value and empty text look the same there."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Decimal):
        value = float(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def _document(text: Any) -> Any:
    """What a cell is that was written from a document: text by itself has no quotes there."""
    try:
        return json.loads(text, parse_float=Decimal)
    except (TypeError, ValueError, RecursionError):
        return text


def row_number(said: Any) -> int | None:
    """A number, as a file has it: spreadsheets write 7 as 7.0 at times."""
    if isinstance(said, str):
        digits = said.strip().removesuffix(".0")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None  # noqa: PLR2004
    if isinstance(said, float) and said.is_integer():
        return int(said)
    return said if isinstance(said, int) and not isinstance(said, bool) else None
