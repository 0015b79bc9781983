"""From a plan to the query that COPY runs. COPY takes no parameters: values are literals, made by the driver alone."""

from collections.abc import Callable

from psycopg.sql import SQL, Composable, Identifier, Literal

from tidemill.domain.exporting import ExportPlan, Filter, Order
from tidemill.domain.formula import FORMULA
from tidemill.domain.resource import Field

# PostgreSQL writes -0, which most readers of JSON take for a whole number: its sign would be lost.
_FLOAT = "CASE WHEN {0} = 0 THEN CASE WHEN {0}::text = '-0' THEN '-0.0' ELSE '0' END::json ELSE to_json({0}) END"
_COMPARED = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def compiled(plan: ExportPlan) -> str:
    """The query whose rows are the file's. Of NDJSON, a row is one column: its object; ``t`` alone may be a column."""
    feed = plan.form.feed
    expression = _csv(plan) if feed == "csv" else _json
    named = [SQL("{} AS {}").format(expression(field), Identifier(field.name)) for field in plan.fields]
    query = SQL("SELECT {} FROM {} AS t").format(SQL(", ").join(named), Identifier(plan.table.schema, plan.table.name))
    if plan.filters:
        query += SQL(" WHERE ") + SQL(" AND ").join(map(_condition, plan.filters))
    if plan.order:
        query += SQL(" ORDER BY ") + SQL(", ").join(map(_order, plan.order))
    if feed == "ndjson":
        query = SQL("SELECT row_to_json(t.*) FROM ({}) AS t").format(query)
    return query.as_string()


def _column(name: str) -> Composable:
    return Identifier("t", name)


def _csv(plan: ExportPlan) -> Callable[[Field], Composable]:
    def expression(field: Field) -> Composable:
        column = _column(field.column)
        if field.type == "boolean":
            return SQL("{}::text").format(column)
        if plan.spreadsheet_safe and _is_text(field):
            safe = SQL("CASE WHEN {0}::text ~ {1} THEN {2} || {0}::text ELSE {0}::text END")
            return safe.format(column, Literal(FORMULA), Literal("'"))
        return column

    return expression


def _is_text(field: Field) -> bool:
    return field.type == "text" or field.sql_type.rpartition(".")[2] == "citext"


def _json(field: Field) -> Composable:
    """What may have JSON in it as somebody wrote it has no line ends: between tokens, they mean nothing."""
    column = _column(field.column)
    is_free = field.type == "json" and field.sql_type != "jsonb"
    if is_free or field.type == "other" or (field.type == "array" and field.element in ("json", "other")):
        return SQL("translate(to_json({})::text, {}, {})::json").format(column, Literal("\r\n"), Literal("  "))
    if field.type == "number" and field.sql_type in ("real", "double precision"):
        return SQL(_FLOAT).format(column)
    return column


def _condition(one: Filter) -> Composable:
    column = _column(one.column)
    values = [_value(one, text) for text in one.values]
    match one.op:
        case "is_null":
            return SQL("{} IS NULL" if one.values == ("true",) else "{} IS NOT NULL").format(column)
        case "in":
            return SQL("{} IN ({})").format(column, SQL(", ").join(values))
        case "between":
            return SQL("{} BETWEEN {} AND {}").format(column, *values)
        case "ne":
            return SQL("{} IS DISTINCT FROM {}").format(column, values[0])
        case "like":
            return SQL("{}::text LIKE {}").format(column, Literal(one.values[0]))
    return SQL("{} " + _COMPARED[one.op] + " {}").format(column, values[0])


def _value(one: Filter, text: str) -> Composable:
    """A literal without a type is of the column's, and is not cut to its length as a cast would.

    Composite types alone do not look around: theirs is said, in the catalog's own spelling.
    """
    if one.type == "other":
        return SQL("{}::{}").format(Literal(text), SQL(one.sql_type))
    return Literal(text)


def _order(one: Order) -> Composable:
    return SQL("{} DESC" if one.is_descending else "{}").format(_column(one.column))
