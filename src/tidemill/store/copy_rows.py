"""Encodes rows for COPY in text format. Values are JSON, in which COPY has to escape only the backslash."""

from collections.abc import Sequence
from itertools import count, repeat
from typing import Any

from psycopg.sql import SQL, Composable, Literal

from tidemill.core.decide import Verdict
from tidemill.core.file_format import FORMULA_PATTERN, ColumnType, is_text_type
from tidemill.core.input_source import InputBlock
from tidemill.store.jsonb import encode_json

# PostgreSQL writes -0, which most JSON readers parse as an integer and lose its sign.
_FLOAT_TO_JSON_SQL = (
    "CASE WHEN {0} = 0 THEN CASE WHEN {0}::text = '-0' THEN '-0.0' ELSE '0' END::json ELSE to_json({0}) END"
)


def build_csv_column_sql(
    column: Composable, type_: ColumnType, sql_type: str, *, spreadsheet_safe: bool = False
) -> Composable:
    """Return an SQL expression for a column in CSV: text for booleans (COPY writes t and f), else the column."""
    if type_ == "boolean":
        return SQL("{}::text").format(column)
    if spreadsheet_safe and is_text_type(type_, sql_type):
        safe = SQL("CASE WHEN {0}::text ~ {1} THEN {2} || {0}::text ELSE {0}::text END")
        return safe.format(column, Literal(FORMULA_PATTERN), Literal("'"))
    return column


def build_json_column_sql(
    column: Composable, type_: ColumnType, sql_type: str, element: ColumnType | None = None
) -> Composable:
    """Return an SQL expression for a column in JSON.

    Types that may contain JSON with the user's formatting lose their line ends, which are only white space there. An
    array without an ``element`` type counts as such.
    """
    is_free = type_ == "json" and sql_type != "jsonb"
    if is_free or type_ == "other" or (type_ == "array" and element in (None, "json", "other")):
        return SQL("translate(to_json({})::text, {}, {})::json").format(column, Literal("\r\n"), Literal("  "))
    if type_ == "number" and sql_type in ("real", "double precision"):
        return SQL(_FLOAT_TO_JSON_SQL).format(column)
    return column


COPY_NULL = b"\\N"


def encode_item_row(head: bytes, seq: int, value: bytes, tail: bytes) -> bytes:
    """Return one row of item/copy. ``head`` is the job id and a tab; ``tail`` is a tab, the time and a line end."""
    return b"%s%d\t%s\t\\N\t\\N%s" % (head, seq, _escape_value(value), tail)


def encode_block_rows(head: bytes, lo: int, block: InputBlock, tail: bytes) -> bytes:
    """Return the rows of item/copy for the records of a source, starting at item ``lo``."""
    values: Sequence[bytes] = block.inputs
    if _needs_escape(b"".join(values)):
        values = [_escape_value(value) for value in values]
    if not block.defects and block.lines is None:  # 0.7 µs per row: the path of most rows
        return b"".join(map((head + b"%d\t%s\t\\N\t\\N" + tail).__mod__, zip(count(lo), values)))
    defects = {at: _escape_value(encode_json(defect)) for at, defect in block.defects.items()}
    lines = repeat(COPY_NULL) if block.lines is None else map(b"%d".__mod__, block.lines)
    return b"".join(
        b"%s%d\t%s\t%s\t%s%s" % (head, lo + at, value, defects.get(at, COPY_NULL), line, tail)
        for at, (value, line) in enumerate(zip(values, lines, strict=False))
    )


def encode_outcome_rows(
    head: bytes, owner_id: int, at: bytes, verdicts: list[Verdict], details: Sequence[bytes | None]
) -> bytes:
    """Return the rows of outcome/copy. ``head`` is the job id, ``details`` has one value per verdict."""
    statuses = [v.status for v in verdicts]
    columns: list[tuple[bytes, Sequence[Any]]] = [
        (b"%d", [v.seq for v in verdicts]),
        (b"%s", [status.encode() for status in (statuses[:1] if len(set(statuses)) == 1 else statuses)]),
        (b"%d", [v.attempts for v in verdicts]),
        (b"%s", _escape_column([v.result for v in verdicts])),
        (b"%s", _escape_column([v.normalized for v in verdicts])),
        (b"%s", _escape_column([v.error for v in verdicts])),
        (b"%d", [v.duration_ms for v in verdicts]),
        (b"%s", _escape_column(details)),
    ]
    # A column whose values are all equal is formatted once, not row by row.
    same = [
        (form % values[0]).replace(b"%", b"%%") if values.count(values[0]) == len(values) else None
        for form, values in columns
    ]
    parts = [form if value is None else value for (form, _), value in zip(columns, same, strict=True)]
    line = b"\t".join([head, parts[0], b"%d" % owner_id, *parts[1:3], at, *parts[3:]]) + b"\n"
    different = [values for (_, values), value in zip(columns, same, strict=True) if value is None]
    if not different:  # a single row
        return line % ()
    return b"".join(map(line.__mod__, zip(*different, strict=True)))


def _escape_column(values: Sequence[bytes | None]) -> list[bytes]:
    """Escape all values of a column at once."""
    present = [value for value in values if value is not None]
    if not present:
        return [COPY_NULL] * len(values)
    joined = b"\n".join(present)
    if joined.count(b"\n") >= len(present) or b"\t" in joined or b"\r" in joined:
        return [COPY_NULL if value is None else _escape_value(value) for value in values]
    escaped = joined.replace(b"\\", b"\\\\").split(b"\n")
    if len(present) == len(values):
        return escaped
    rest = iter(escaped)
    return [COPY_NULL if value is None else next(rest) for value in values]


def _needs_escape(data: bytes) -> bool:
    return b"\\" in data or b"\n" in data or b"\t" in data or b"\r" in data


def _escape_value(value: bytes) -> bytes:
    # Compact JSON has no tabs or line ends; a formatted input may have them between tokens.
    if b"\\" in value:
        value = value.replace(b"\\", b"\\\\")
    if b"\n" in value or b"\t" in value or b"\r" in value:
        value = value.replace(b"\n", b" ").replace(b"\t", b" ").replace(b"\r", b" ")
    return value
