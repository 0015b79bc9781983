"""Which type of Arrow holds the values of a column."""

import re
from typing import Any

from tidemill.domain.form import Column

PRECISION_MAX = 38  # of a decimal of 128 bits
_NUMERIC = re.compile(r"numeric\((?P<precision>[0-9]+)(?:,(?P<scale>-?[0-9]+))?\)").fullmatch


def arrow_type(column: Column, pa: Any) -> Any:
    """As it is read from COPY's text; text where no type holds every value. Bytes come as text, too."""
    match column.type:
        case "integer":
            return {"smallint": pa.int16(), "integer": pa.int32()}.get(column.sql_type, pa.int64())
        case "number":
            return _number(column.sql_type, pa)
        case "boolean":
            return pa.bool_()
        case "date":
            return pa.date32()
        case "timestamp":
            return pa.timestamp("us", None if "without time zone" in column.sql_type else "UTC")
        case _:
            return pa.string()


def _number(sql_type: str, pa: Any) -> Any:
    """A numeric that is not declared has no bounds."""
    if sql_type in ("real", "double precision"):
        return pa.float64()
    found = _NUMERIC(sql_type)
    if found is None or int(found["precision"]) > PRECISION_MAX:
        return pa.string()
    precision, scale = int(found["precision"]), int(found["scale"] or 0)
    return pa.decimal128(precision, scale) if 0 <= scale <= precision else pa.string()
