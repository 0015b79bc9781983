"""The columns and cells of a job's results, the same in the web interface and in every result file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tidemill.core.status import TERMINAL_ITEM_STATUSES

GRID_COLUMNS_MAX: Final = 256
COLUMN_NAME_MAX_CHARS: Final = 200  # a field with a longer name, or with a NUL in it, gets no column
RESULT_COLUMN: Final = "result"  # the column of results that are not JSON objects
META_COLUMNS: Final = ("_row", "_status", "_error_code", "_error")
LARGEST_EXACT_INTEGER: Final = 2**53 - 1  # browsers and spreadsheets round larger integers

GridCell = str | int | float | bool | None
GridRow = Mapping[str, Any]  # seq, status, and optionally result, error, input
_PASSTHROUGH_TYPES: Final = frozenset({str, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class GridColumns:
    """The column names in order, taken from the results, or from the inputs if no item has a result."""

    names: tuple[str, ...]
    value_key: Literal["result", "input"] = "result"
    meta_names: tuple[str, ...] = field(init=False)  # after the others; more underscores if a name exists already

    def __post_init__(self) -> None:
        object.__setattr__(self, "meta_names", tuple(_make_unique_name(name, self.names) for name in META_COLUMNS))

    @property
    def header(self) -> tuple[str, ...]:
        return self.names + self.meta_names


def list_columns_of_value(value: Any, scalar_column: str = RESULT_COLUMN) -> list[str]:
    """Return the columns of a value in order: the keys of an object, or one column for any other value."""
    if value is None:
        return []
    if not isinstance(value, dict):
        return [scalar_column]
    return [name for name in value if len(name) <= COLUMN_NAME_MAX_CHARS and "\x00" not in name][:GRID_COLUMNS_MAX]


def resolve_grid_columns(result_columns: Iterable[str], first_input: Any) -> GridColumns:
    """Return the columns of a job's results, or those of its first input if it has no results."""
    if names := tuple(result_columns):
        return GridColumns(names)
    return GridColumns(tuple(list_columns_of_value(first_input, "input")) or ("input",), "input")


def build_row_cells(columns: GridColumns, row: GridRow) -> list[GridCell]:
    """Return the cells of an item, one for each name of ``columns.header``.

    An open item has no result. A result from before a retry is not shown.
    """
    settled = row["status"] in TERMINAL_ITEM_STATUSES
    value = row.get(columns.value_key) if settled or columns.value_key == "input" else None
    if isinstance(value, dict):
        values = [value.get(name) for name in columns.names]
        cells = [each if type(each) in _PASSTHROUGH_TYPES else format_cell(each) for each in values]
    else:
        cells = [format_cell(value) if name == columns.value_key else None for name in columns.names]
    cells += (row["seq"] + 1, row["status"])
    error = row.get("error") if settled else None
    cells += (format_cell(error.get("code")), format_cell(error.get("reason"))) if error else (None, None)
    return cells


def format_cell(value: Any) -> GridCell:
    """Return text, numbers and booleans unchanged, and nested values as compact JSON."""
    if type(value) in _PASSTHROUGH_TYPES:
        return value  # type: ignore[no-any-return]
    if isinstance(value, int):
        return value if -LARGEST_EXACT_INTEGER <= value <= LARGEST_EXACT_INTEGER else str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def build_row_object(columns: GridColumns, row: GridRow) -> dict[str, Any]:
    """Return an item as one object: all columns, then fields without a column, then the meta columns."""
    value = (
        row.get(columns.value_key) if columns.value_key == "input" or row["status"] in TERMINAL_ITEM_STATUSES else None
    )
    whole = value if isinstance(value, dict) else {} if value is None else {columns.value_key: value}
    fields = {name: whole.get(name) for name in columns.names}
    meta = dict(zip(columns.meta_names, build_row_cells(columns, row)[len(columns.names) :], strict=True))
    if not whole.keys() <= fields.keys():
        taken = fields.keys() | meta.keys() | whole.keys()
        extra = {name: rest for name, rest in whole.items() if name not in fields}
        fields |= {_make_unique_name(name, taken) if name in meta else name: rest for name, rest in extra.items()}
    return fields | meta


def _make_unique_name(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name = "_" + name
    return name
