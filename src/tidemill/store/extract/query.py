"""From a plan to the query that COPY runs. COPY takes no parameters: values are literals, made by the driver alone."""

from psycopg.sql import SQL, Composable, Identifier, Literal

from tidemill.domain.exporting import ExportPlan, Filter, Order
from tidemill.domain.resource import Field
from tidemill.store.extract.cells import in_csv, in_json

_COMPARED = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def compiled(plan: ExportPlan) -> str:
    """The query whose rows are the file's. Of NDJSON, a row is one column: its object; ``t`` alone may be a column."""
    named = [SQL("{} AS {}").format(_written(field, plan), Identifier(field.name)) for field in plan.fields]
    query = SQL("SELECT {} FROM {} AS t").format(SQL(", ").join(named), Identifier(plan.table.schema, plan.table.name))
    if plan.filters:
        query += SQL(" WHERE ") + SQL(" AND ").join(map(_condition, plan.filters))
    if plan.order:
        query += SQL(" ORDER BY ") + SQL(", ").join(map(_order, plan.order))
    if plan.form.feed == "ndjson":
        query = SQL("SELECT row_to_json(t.*) FROM ({}) AS t").format(query)
    return query.as_string()


def _column(name: str) -> Composable:
    return Identifier("t", name)


def _written(field: Field, plan: ExportPlan) -> Composable:
    column = _column(field.column)
    if plan.form.feed == "csv":
        return in_csv(column, field.type, field.sql_type, spreadsheet_safe=plan.spreadsheet_safe)
    return in_json(column, field.type, field.sql_type, field.element)


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
