"""Column types that files, filters and imports know, and how PostgreSQL prints them."""

from typing import Literal

ColumnType = Literal[
    "text", "integer", "number", "boolean", "date", "time", "timestamp", "uuid", "json", "bytes", "array", "other"
]


_TEXT_LIKE_SQL_TYPES = ("citext", "name", '"char"')


def is_text_type(type_: ColumnType, sql_type: str) -> bool:
    """Whether values are texts as people write them, whatever the server calls their type."""
    return type_ == "text" or sql_type.rpartition(".")[2] in _TEXT_LIKE_SQL_TYPES
