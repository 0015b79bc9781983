"""Failed rows as people see them: every error in the one shape, and the row in the columns of its file."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemill.domain.columns import Cell, cell

ROW, ERRORS = "_row", "_errors"
RAW = "input"  # the column of records that could not be parsed, where no other is known
_SHAPE = ("field", "value", "code", "reason")


def row_errors(error: Mapping[str, Any], row: int, line: int) -> list[dict[str, Any]]:
    """All that is wrong with a row, each in the shape that errors have everywhere."""
    retryable = bool(error.get("retryable", False))
    told = error.get("errors") or [error]
    return [{"row": row, "line": line} | _shape(one) | {"retryable": retryable} for one in told]


def _shape(one: Mapping[str, Any]) -> dict[str, Any]:
    """An offset is told where there is one: of bytes that are not in the file's encoding."""
    where = {"byte_offset": one["byte_offset"]} if "byte_offset" in one else {}
    return where | {name: one.get(name) for name in _SHAPE}


def in_words(errors: Iterable[Mapping[str, Any]]) -> str:
    """The same in a cell, for somebody who mends the row."""
    return "; ".join(
        str(error["reason"]) if error.get("field") is None else f"{error['field']}: {error['reason']}"
        for error in errors
    )


def as_record(columns: Sequence[str], value: Any) -> dict[str, Any]:
    """A row by its columns; a record that could not be parsed has its text in the first of them."""
    return value if isinstance(value, dict) else {columns[0] if columns else RAW: value}


def as_cells(columns: Sequence[str], value: Any, row: int, errors: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """A row of the file of failures: the columns of the original, then its number and what is wrong."""
    record = as_record(columns, value)
    return [*(cell(record.get(name)) for name in columns), row, in_words(errors)]
