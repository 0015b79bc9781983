"""The columns of a job's grid, and what stands in a cell: one answer for the screen and for every file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tidemill.domain.status import TERMINAL

MAX_COLUMNS: Final = 256
NAME_MAX: Final = 200  # characters; whatever has a longer name, or a NUL in it, gets no column of its own
RESULT: Final = "result"  # the column of results that are no objects
OWN: Final = ("_row", "_status", "_error_code", "_error")
LARGEST_EXACT: Final = 2**53 - 1  # browsers and spreadsheets round whole numbers beyond it

Cell = str | int | float | bool | None
Row = Mapping[str, Any]  # seq, status, and as far as it has them: result, error, input
_AS_IT_IS: Final = frozenset({str, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Columns:
    """What the grid shows: names in order, and whether they are of results or, where there are none, of inputs."""

    names: tuple[str, ...]
    of: Literal["result", "input"] = "result"
    own: tuple[str, ...] = field(init=False)  # behind the others; underscores keep them apart from the same names

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", tuple(_apart(name, self.names) for name in OWN))

    @property
    def header(self) -> tuple[str, ...]:
        return self.names + self.own


def names_in(value: Any, whole: str = RESULT) -> list[str]:
    """The columns that a value needs, in its order: the keys of an object, or one for anything else."""
    if value is None:
        return []
    if not isinstance(value, dict):
        return [whole]
    return [name for name in value if len(name) <= NAME_MAX and "\x00" not in name][:MAX_COLUMNS]


def columns_of(result_columns: Iterable[str], first_input: Any) -> Columns:
    """A job's columns: those of its results; of a job without any, those of its first input."""
    if names := tuple(result_columns):
        return Columns(names)
    return Columns(tuple(names_in(first_input, "input")) or ("input",), "input")


def cells(columns: Columns, row: Row) -> list[Cell]:
    """The cells of an item, one for each name of ``columns.header``.

    What is open has no result: one that it had before it was sent round again is not shown.
    """
    settled = row["status"] in TERMINAL
    value = row.get(columns.of) if settled or columns.of == "input" else None
    if isinstance(value, dict):
        found = [value.get(name) for name in columns.names]
        line = [each if type(each) in _AS_IT_IS else cell(each) for each in found]
    else:
        line = [cell(value) if name == columns.of else None for name in columns.names]
    line += (row["seq"] + 1, row["status"])
    error = row.get("error") if settled else None
    line += (cell(error.get("code")), cell(error.get("reason"))) if error else (None, None)
    return line


def cell(value: Any) -> Cell:
    """Text, numbers and booleans as they are, anything nested as compact JSON."""
    if type(value) in _AS_IT_IS:
        return value  # type: ignore[no-any-return]
    if isinstance(value, int):
        return value if -LARGEST_EXACT <= value <= LARGEST_EXACT else str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def record(columns: Columns, row: Row) -> dict[str, Any]:
    """An item as one object: every column, then what has none of its own, then the mill's. Nothing is cut."""
    value = row.get(columns.of) if columns.of == "input" or row["status"] in TERMINAL else None
    whole = value if isinstance(value, dict) else {} if value is None else {columns.of: value}
    found = {name: whole.get(name) for name in columns.names}
    own = dict(zip(columns.own, cells(columns, row)[len(columns.names) :], strict=True))
    if not whole.keys() <= found.keys():
        taken = found.keys() | own.keys() | whole.keys()
        extra = {name: rest for name, rest in whole.items() if name not in found}
        found |= {_apart(name, taken) if name in own else name: rest for name, rest in extra.items()}
    return found | own


def _apart(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name = "_" + name
    return name
