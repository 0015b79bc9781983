"""One reader per kind of value in a declaration: the value as we keep it, or a ValueError that says what was wanted."""

import re
from collections.abc import Callable, Collection
from datetime import date, datetime, time
from typing import Any, get_args

from tidemill.domain.catalog.names import parts_of
from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.errors import InvalidInput
from tidemill.domain.identity import Role
from tidemill.domain.resource import Table, Type

Reader = Callable[[Any], Any]
_SOME_MOMENT = datetime(2026, 11, 15, 13, 45, 7)  # noqa: DTZ001  only written and read again


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text is wanted, which is not empty")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false is wanted")  # noqa: TRY004  as for every other mistake
    return value


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number is wanted, 0 or more")
    return value


def plain(value: Any) -> str:
    """A single value in the text form of its type."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            raise ValueError("a single value is wanted: a text, a number, true or false, a date")


def several(read: Reader, *, least: int = 1) -> Reader:
    def read_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) < least:
            raise ValueError("a list is wanted" + (", with something in it" if least else ""))
        found = tuple(read(one) for one in value)
        if len(set(found)) < len(found):
            raise ValueError("the same is in the list twice")
        return found

    return read_all


def one_of(known: Collection[str]) -> Reader:
    def read_one(value: Any) -> str:
        if value not in known:
            raise ValueError(f"{value!r} is none of {', '.join(known)}{did_you_mean(value, known)}")
        return str(value)

    return read_one


def role(value: Any) -> Role:
    return Role(one_of([role.value for role in Role])(value))


def type_(value: Any) -> str:
    return str(one_of([name for name in get_args(Type) if name not in ("array", "other")])(value))


def pattern(value: Any) -> str:
    try:
        re.compile(f"(?:{text(value)})")  # it must also do as a part of a larger one
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return str(value)


def date_format(value: Any) -> str:
    try:
        datetime.strptime(_SOME_MOMENT.strftime(text(value)), value)  # noqa: DTZ007  no zone is needed for a trial
    except ValueError:
        raise ValueError(f"{value!r} is not a format of dates, as %d.%m.%Y is") from None
    return str(value)


def columns(value: Any) -> tuple[str, ...] | None:
    if value == "all":
        return None
    if value == "declared":
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError('"all", "declared" or a list of columns is wanted')  # noqa: TRY004  as above
    return several(text)(value)  # type: ignore[no-any-return]


def table_name(value: Any) -> str:
    """A name as it is looked up later, along the search path if it has no schema."""
    try:
        parts_of(text(value))
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return str(value)


def table(value: Any) -> Table:
    try:
        parts = parts_of(text(value))
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    if len(parts) == 1:
        raise ValueError(f"name the schema too: public.{value}")
    return _allowed(Table(parts[0][0], parts[1][0]))


def column_of_table(value: Any) -> tuple[Table, str]:
    """``public.users.id``."""
    try:
        parts = parts_of(text(value), most=3)
    except InvalidInput:
        parts = []
    if len(parts) != 3:  # noqa: PLR2004  schema, table, column
        raise ValueError("a column with its table and schema is wanted: public.users.id")
    return _allowed(Table(parts[0][0], parts[1][0])), parts[2][0]


def _allowed(found: Table) -> Table:
    """Whether a value is in a table can be told from its errors; so ours and the server's are not for that either."""
    if found.is_forbidden:
        raise ValueError(f"schema {found.schema} is not to be looked into")
    return found
