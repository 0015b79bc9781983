"""The columns of a job's grid, and what stands in a cell: one answer for the screen and for every file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tidemill.core.status import TERMINAL_ITEM_STATUSES

GRID_COLUMNS_MAX: Final = 256
COLUMN_NAME_MAX_CHARS: Final = 200  # characters; whatever has a longer name, or a NUL in it, gets no column of its own
RESULT_COLUMN: Final = "result"  # the column of results that are no objects
META_COLUMNS: Final = ("_row", "_status", "_error_code", "_error")
LARGEST_EXACT_INTEGER: Final = 2**53 - 1  # browsers and spreadsheets round whole numbers beyond it

GridCell = str | int | float | bool | None
GridRow = Mapping[str, Any]  # seq, status, and as far as it has them: result, error, input
_PASSTHROUGH_TYPES: Final = frozenset({str, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class GridColumns:
    """What the grid shows: names in order, and whether they are of results or, where there are none, of inputs."""

    names: tuple[str, ...]
    value_key: Literal["result", "input"] = "result"
    meta_names: tuple[str, ...] = field(
        init=False
    )  # behind the others; underscores keep them apart from the same names

    def __post_init__(self) -> None:
        object.__setattr__(self, "meta_names", tuple(_make_unique_name(name, self.names) for name in META_COLUMNS))

    @property
    def header(self) -> tuple[str, ...]:
        return self.names + self.meta_names


def list_column_names(value: Any, scalar_column: str = RESULT_COLUMN) -> list[str]:
    """The columns that a value needs, in its order: the keys of an object, or one for anything else."""
    if value is None:
        return []
    if not isinstance(value, dict):
        return [scalar_column]
    return [name for name in value if len(name) <= COLUMN_NAME_MAX_CHARS and "\x00" not in name][:GRID_COLUMNS_MAX]


def resolve_grid_columns(result_columns: Iterable[str], first_input: Any) -> GridColumns:
    """A job's columns: those of its results; of a job without any, those of its first input."""
    if names := tuple(result_columns):
        return GridColumns(names)
    return GridColumns(tuple(list_column_names(first_input, "input")) or ("input",), "input")


def build_row_cells(columns: GridColumns, row: GridRow) -> list[GridCell]:
    """The cells of an item, one for each name of ``columns.header``.

    What is open has no result: one that it had before it was sent round again is not shown.
    """
    settled = row["status"] in TERMINAL_ITEM_STATUSES
    value = row.get(columns.value_key) if settled or columns.value_key == "input" else None
    if isinstance(value, dict):
        found = [value.get(name) for name in columns.names]
        line = [each if type(each) in _PASSTHROUGH_TYPES else format_cell(each) for each in found]
    else:
        line = [format_cell(value) if name == columns.value_key else None for name in columns.names]
    line += (row["seq"] + 1, row["status"])
    error = row.get("error") if settled else None
    line += (format_cell(error.get("code")), format_cell(error.get("reason"))) if error else (None, None)
    return line


def format_cell(value: Any) -> GridCell:
    """Text, numbers and booleans as they are, anything nested as compact JSON."""
    if type(value) in _PASSTHROUGH_TYPES:
        return value  # type: ignore[no-any-return]
    if isinstance(value, int):
        return value if -LARGEST_EXACT_INTEGER <= value <= LARGEST_EXACT_INTEGER else str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def build_row_object(columns: GridColumns, row: GridRow) -> dict[str, Any]:
    """An item as one object: every column, then what has none of its own, then the mill's. Nothing is cut."""
    value = (
        row.get(columns.value_key) if columns.value_key == "input" or row["status"] in TERMINAL_ITEM_STATUSES else None
    )
    whole = value if isinstance(value, dict) else {} if value is None else {columns.value_key: value}
    found = {name: whole.get(name) for name in columns.names}
    own = dict(zip(columns.meta_names, build_row_cells(columns, row)[len(columns.names) :], strict=True))
    if not whole.keys() <= found.keys():
        taken = found.keys() | own.keys() | whole.keys()
        extra = {name: rest for name, rest in whole.items() if name not in found}
        found |= {_make_unique_name(name, taken) if name in own else name: rest for name, rest in extra.items()}
    return found | own


def _make_unique_name(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name = "_" + name
    return name
