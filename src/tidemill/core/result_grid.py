"""The columns and cells of a job's results, the same in the web interface and in every result file."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from tidemill.core.errors import InvalidInput, format_suggestion
from tidemill.core.status import TERMINAL_ITEM_STATUSES

GRID_COLUMNS_MAX: Final = 256
COLUMN_NAME_MAX_CHARS: Final = 200  # a field with a longer name, or with a NUL in it, gets no column
RESULT_COLUMN: Final = "result"  # the column of results that are not JSON objects
INPUT_COLUMN: Final = "input"  # the column of inputs that are not JSON objects
NESTED_FIELDS_MAX_DEPTH: Final = 8
LISTED_COLUMNS_MAX: Final = 30  # in an error
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
    return GridColumns(tuple(list_columns_of_value(first_input, INPUT_COLUMN)) or (INPUT_COLUMN,), "input")


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


def format_cell_as_text(cell: GridCell) -> str:
    """Return a cell as text: booleans as true and false, numbers with all their digits."""
    return json.dumps(cell) if isinstance(cell, bool) else str(cell)


INPUT_COLUMNS_MAX: Final = 16_384  # as in a workbook
ColumnSource = Literal["input", "result", "row", "status", "error_code", "error", "attempts"]
_META_HEADERS: Final[Mapping[ColumnSource, str]] = {
    "row": "_row",
    "status": "_status",
    "error_code": "_error_code",
    "error": "_error",
    "attempts": "_attempts",
}
ALL_COLUMNS, ALL_INPUT_COLUMNS, ALL_RESULT_COLUMNS = "*", "input.*", "result.*"
_WILDCARDS: Final[Mapping[str, tuple[ColumnSource, ...]]] = {
    ALL_COLUMNS: ("input", "result", *_META_HEADERS),
    ALL_INPUT_COLUMNS: ("input",),
    ALL_RESULT_COLUMNS: ("result",),
}


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result file: its header, and the field of the input or the result that it shows.

    ``name`` has dots before fields of nested objects. It is None for the other sources.
    """

    header: str
    source: ColumnSource
    name: str | None = None


@dataclass(frozen=True, slots=True)
class KnownFields:
    """The fields of the inputs and the results of a job, in order. Others may follow unless they are final."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]
    are_inputs_final: bool = True
    are_results_final: bool = True


class ResultFileColumns:
    """The columns of a result file. Builds the cells of a row and its object.

    An open item has no result and no error. Those from before a retry are not shown.
    """

    def __init__(self, columns: Iterable[ResultColumn], *, has_all_fields: bool = False) -> None:
        """``has_all_fields``: objects also have the fields without a column."""
        self.columns = tuple(columns)
        self.header = tuple(column.header for column in self.columns)
        self.reads_inputs = has_all_fields or any(column.source == "input" for column in self.columns)
        self._has_all_fields = has_all_fields
        self._names = {
            source: {each.name for each in self.columns if each.source == source and each.name is not None}
            for source in ("input", "result")
        }
        self._nested_names = {
            source: {name.partition(".")[0] for name in names if "." in name} for source, names in self._names.items()
        }
        # A value that is not an object is in the column of this name. The text of a row that could not be parsed is in
        # the first column of the inputs.
        inputs = [column.name for column in self.columns if column.source == "input"]
        text_column = INPUT_COLUMN if INPUT_COLUMN in inputs else next(iter(inputs), INPUT_COLUMN)
        self._scalar_columns = {"input": text_column, "result": RESULT_COLUMN}

    def build_cells(self, row: GridRow) -> list[GridCell]:
        """Return the cells of an item, one for each name of ``header``."""
        return [value if type(value) in _PASSTHROUGH_TYPES else format_cell(value) for value in self._list_values(row)]

    def build_object(self, row: GridRow) -> dict[str, Any]:
        """Return an item as one object. With all fields, those without a column are last."""
        made = dict(zip(self.header, self._list_values(row), strict=True))
        if self._has_all_fields:
            settled = row["status"] in TERMINAL_ITEM_STATUSES
            for source in ("input", "result") if settled else ("input",):
                value, names = row.get(source), self._names[source]
                if isinstance(value, dict) and not value.keys() <= names:
                    for name in value:
                        if name not in names and name not in self._nested_names[source]:
                            made[_make_unique_name(name, made)] = value[name]
        return made

    def _list_values(self, row: GridRow) -> list[Any]:
        settled = row["status"] in TERMINAL_ITEM_STATUSES
        error = (row.get("error") if settled else None) or {}
        values = {
            "input": row.get("input"),
            "result": row.get("result") if settled else None,
            "row": row["seq"] + 1,
            "status": str(row["status"]),
            "error_code": error.get("code"),
            "error": error.get("reason"),
            "attempts": row.get("attempts", 0),
        }
        scalars = self._scalar_columns
        cells = []
        for column in self.columns:
            value, name = values[column.source], column.name
            if name is not None:
                if type(value) is dict:
                    value = value[name] if name in value else _find_nested_value(value, name)
                elif name != scalars[column.source]:
                    value = None
            cells.append(value)
        return cells


CellType = Literal["text", "integer", "number", "boolean"]


class CellTypes:
    """Learns the type of each column from the cells of all rows. A column with values of several types is text."""

    def __init__(self, columns: ResultFileColumns) -> None:
        self._columns = columns
        self._seen: list[set[type]] = [set() for _ in columns.header]

    def learn(self, rows: Iterable[GridRow]) -> None:
        for row in rows:
            for seen, cell in zip(self._seen, self._columns.build_cells(row), strict=True):
                seen.add(type(cell))

    def list_types(self) -> list[CellType]:
        return [self._choose_type(seen - {type(None)}) for seen in self._seen]

    @staticmethod
    def _choose_type(seen: set[type]) -> CellType:
        if seen == {bool}:
            return "boolean"
        if seen == {int}:
            return "integer"
        return "number" if seen and seen <= {int, float} else "text"


def _find_nested_value(value: Any, name: str) -> Any:
    """Return the field of a nested object, or None. A field whose name contains dots goes first."""
    at = name.find(".")
    while at > 0 and isinstance(value, dict):
        inner, rest = value.get(name[:at]), name[at + 1 :]
        if isinstance(inner, dict):
            found = inner[rest] if rest in inner else _find_nested_value(inner, rest)
            if found is not None:
                return found
        at = name.find(".", at + 1)
    return None


def list_nested_fields(value: Mapping[str, Any], depth: int = 0) -> list[str]:
    """Return the fields of an object in order, with those of nested objects in their place: price.amount."""
    names = []
    for name, each in value.items():
        if isinstance(each, dict) and each and depth < NESTED_FIELDS_MAX_DEPTH:
            names += [f"{name}.{inner}" for inner in list_nested_fields(each, depth + 1)]
        else:
            names.append(name)
    return names


def resolve_result_file_columns(wanted: Sequence[str], known: KnownFields) -> ResultFileColumns:
    """Return the columns of a result file: those of the inputs, of the results, and of the items' states; or a choice.

    A field of a result that has the name of an input column gets the header ``result.NAME``.

    Raises:
        InvalidInput: A wanted column does not exist or is listed twice.
    """
    all_columns = _list_all_columns(known)
    if not wanted:
        return ResultFileColumns(all_columns, has_all_fields=True)
    chosen: dict[tuple[ColumnSource, str | None], ResultColumn] = {}
    by_header = {column.header: column for column in all_columns}
    named = set()
    for text in wanted:
        if text in _WILDCARDS and text not in by_header:
            for column in all_columns:
                if column.source in _WILDCARDS[text]:
                    chosen.setdefault((column.source, column.name), column)
            continue
        column = by_header.get(text) or _find_column(text, known, by_header)
        key = (column.source, column.name)
        if key in named:
            raise InvalidInput(f'Invalid columns: "{text}" is listed twice')
        named.add(key)
        chosen.setdefault(key, column)
    return ResultFileColumns(_make_headers_unique(chosen.values()))


def _list_all_columns(known: KnownFields) -> list[ResultColumn]:
    columns = [ResultColumn(name, "input", name) for name in known.inputs]
    taken = set(known.inputs)
    for name in known.results:
        header = name if name not in taken else _make_unique_name(f"result.{name}", taken)
        columns.append(ResultColumn(header, "result", name))
        taken.add(header)
    for source, header in _META_HEADERS.items():
        columns.append(ResultColumn(_make_unique_name(header, taken), source))
    return columns


def _find_column(text: str, known: KnownFields, by_header: Mapping[str, ResultColumn]) -> ResultColumn:
    """Return the column of a field that is nested, has the prefix of its source, or is not known yet."""
    sources: list[tuple[ColumnSource, tuple[str, ...], bool]] = [
        ("input", known.inputs, known.are_inputs_final),
        ("result", known.results, known.are_results_final),
    ]
    for source, names, is_final in sources:
        name = text.removeprefix(f"{source}.")
        if name in ("", text):
            continue
        for column in by_header.values():
            if (column.source, column.name) == (source, name):
                return column
        if not is_final or _has_head(name, names):
            return ResultColumn(text if name in by_header else name, source, name)
    for source, names, _ in sources:
        if _has_head(text, names):
            return ResultColumn(text, source, text)
    hint = (
        ""
        if known.are_inputs_final and known.are_results_final
        else (f' For a field that only later rows have, use "input.{text}" or "result.{text}".')
    )
    similar = format_suggestion(text, by_header) or f". Columns: {', '.join([*by_header][:LISTED_COLUMNS_MAX])}."
    raise InvalidInput(f'Unknown column "{text}"{similar}{hint}')


def _has_head(name: str, names: Iterable[str]) -> bool:
    """Return whether the first part of a dotted name, or the whole name, is one of the names."""
    return any(name == each or name.startswith(f"{each}.") for each in names)


def _make_headers_unique(columns: Iterable[ResultColumn]) -> list[ResultColumn]:
    made: list[ResultColumn] = []
    taken: set[str] = set()
    for column in columns:
        header = (
            column.header if column.header not in taken else _make_unique_name(f"{column.source}.{column.name}", taken)
        )
        made.append(replace(column, header=header))
        taken.add(header)
    return made


def _make_unique_name(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name = "_" + name
    return name
