"""How the server writes a value into a file, whether a table or a declared query has it."""

from psycopg.sql import SQL, Composable, Literal

from tidemill.core.column_type import ColumnType, is_text_type
from tidemill.core.csv_injection import FORMULA_PATTERN

# PostgreSQL writes -0, which most readers of JSON take for a whole number: its sign would be lost.
_FLOAT_TO_JSON_SQL = (
    "CASE WHEN {0} = 0 THEN CASE WHEN {0}::text = '-0' THEN '-0.0' ELSE '0' END::json ELSE to_json({0}) END"
)


def build_csv_expression(
    column: Composable, type_: ColumnType, sql_type: str, *, spreadsheet_safe: bool = False
) -> Composable:
    """The column itself, unless COPY would write something else than is wanted: t and f for a boolean."""
    if type_ == "boolean":
        return SQL("{}::text").format(column)
    if spreadsheet_safe and is_text_type(type_, sql_type):
        safe = SQL("CASE WHEN {0}::text ~ {1} THEN {2} || {0}::text ELSE {0}::text END")
        return safe.format(column, Literal(FORMULA_PATTERN), Literal("'"))
    return column


def build_json_expression(
    column: Composable, type_: ColumnType, sql_type: str, element: ColumnType | None = None
) -> Composable:
    """What may have JSON in it as somebody wrote it has no line ends: between tokens, they mean nothing.

    Of an array without an ``element``, nothing is known.
    """
    is_free = type_ == "json" and sql_type != "jsonb"
    if is_free or type_ == "other" or (type_ == "array" and element in (None, "json", "other")):
        return SQL("translate(to_json({})::text, {}, {})::json").format(column, Literal("\r\n"), Literal("  "))
    if type_ == "number" and sql_type in ("real", "double precision"):
        return SQL(_FLOAT_TO_JSON_SQL).format(column)
    return column
