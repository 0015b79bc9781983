"""Writing into a user's own table, in the flush transaction: set-based, and never a value in a statement's text."""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.sql import SQL, Composable, Identifier, Placeholder

from tidemill.domain.resource import Field, Reference, Resource
from tidemill.domain.values.columns import Texts
from tidemill.store.database import Connection, is_transient
from tidemill.store.statements import sql

HAS_INPUT_CHECKS = 160000
_BETWEEN, _NO_VALUE = "\x1e", "\x1f"
TRIAL = Identifier("pg_temp", "tidemill_trial")
Rows = Sequence[tuple[str | None, ...]]
_LINE = re.compile(r"^COPY .*, line (\d+)", re.MULTILINE)
_GONE = {
    "42P01": "the table is gone",
    "3F000": "the schema is gone",
    "42703": "a column is gone",
    "42804": "a column has another type now",
    "42501": "permission denied",
    "25006": "the database is read-only",
    "0A000": "the table does not take rows",
}
_CODES = {"23505": "exists", "23503": "unknown_reference", "23502": "required", "23514": "check", "23P01": "exclusion"}


class Gone(Exception):
    """The target is no target any more: no row will ever get in."""


class Refusal(Exception):
    """The table refused rows. ``place`` is that of the bad one, where the server says so."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__((error.diag.message_primary or str(error)).splitlines()[0])
        self.reason = str(self)
        self.code = _CODES.get(error.sqlstate or "", "refused")
        self.column = error.diag.column_name
        self.may_be_seen = self.code in ("exists", "unknown_reference")  # by another look at the keys
        line = _LINE.search(error.diag.context or "")
        self.place = None if line is None else int(line[1]) - 1


class Target:
    """One table, and statements about its rows: fields by their name, values as text."""

    def __init__(self, conn: Connection, resource: Resource) -> None:
        self._conn = conn
        self._resource = resource
        self._table = Identifier(resource.table.schema, resource.table.name)
        self._fields = {field.name: field for field in resource.fields}

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """All that is written within, or nothing of it: a Refusal leaves the transaction as it was."""
        try:
            async with self._conn.transaction():
                yield
        except psycopg.Error as error:
            self.raise_gone(error)
            if is_transient(error):
                raise
            raise Refusal(error) from error

    def raise_gone(self, error: psycopg.Error) -> None:
        state = error.sqlstate or ""
        if state in _GONE:
            raise Gone(f"{self._resource.table}: {_GONE[state]} ({str(error).splitlines()[0]})") from error

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self.raise_gone(error)
            raise

    async def existing(self, fields: Sequence[str], rows: Rows) -> set[int]:
        """Places of rows whose values in these fields the table has already."""
        asked = self._unnest(fields, rows) | {"match": self._match(fields)}
        return await self._places("target/existing", asked, self._table)

    async def missing(self, reference: Reference, rows: Rows) -> set[int]:
        """Places of rows whose reference leads nowhere."""
        table = Identifier(reference.table.schema, reference.table.name)
        columns = dict(zip(reference.fields, reference.columns, strict=True))
        asked = self._unnest(reference.fields, rows) | {"match": self._match(reference.fields, columns)}
        return await self._places("target/missing", asked, table)

    async def invalid(self, field: str, texts: Texts) -> dict[int, str]:
        """Texts that the type of a field does not take, and why. Old servers say so only when it is too late."""
        if self._conn.info.server_version < HAS_INPUT_CHECKS:
            return {}
        params = {"texts": texts, "type": self._fields[field].sql_type}
        cursor = await self._conn.execute(sql("target/invalid"), params)
        return {ord_ - 1: reason for ord_, reason in await cursor.fetchall()}

    async def update(self, fields: Sequence[str], rows: Rows) -> set[int]:
        """Bring existing rows up to these values; places of those that were different."""
        return await self._change("target/update", fields, rows)

    async def differing(self, fields: Sequence[str], rows: Rows) -> set[int]:
        """Places of rows that an update would change."""
        return await self._change("target/differing", fields, rows)

    async def copy(self, fields: Sequence[str], data: bytes, *, on_trial: bool) -> None:
        """Rows in COPY's text form, into the table or into one that only looks like it."""
        columns = SQL(", ").join(Identifier(self._fields[name].column) for name in fields)
        table = TRIAL if on_trial else self._table
        statement = _template("target/copy").format(table=table, columns=columns)
        async with self._conn.cursor() as cursor, cursor.copy(statement) as copy:
            await copy.write(data)

    async def create_trial(self) -> None:
        await self._conn.execute(_template("target/create_trial").format(table=self._table))

    async def _change(self, name: str, fields: Sequence[str], rows: Rows) -> set[int]:
        key = self._resource.key
        others = [self._fields[field] for field in fields if field not in key]
        if not others or not rows:
            return set()
        asked = self._unnest(fields, rows) | {
            "match": self._match(key),
            "sets": SQL(", ").join(_set(field) for field in others),
            "differs": SQL(" OR ").join(_differs(field) for field in others),
        }
        return await self._places(name, asked, self._table)

    async def _places(self, name: str, asked: dict[str, Any], table: Identifier) -> set[int]:
        values = asked.pop("values")
        # Never prepared: a plan for ten rows is the wrong one for ten thousand.
        cursor = await self._conn.execute(_template(name).format(table=table, **asked), values, prepare=False)
        return {row[0] - 1 for row in await cursor.fetchall()}

    def _unnest(self, fields: Sequence[str], rows: Rows) -> dict[str, Any]:
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        packed = [_pack(column) for column in columns]
        one = SQL("{}::text[]").format(Placeholder())
        if None not in packed:
            one, columns = SQL("string_to_array({}, chr(30), chr(31))").format(Placeholder()), packed
        return {
            "arrays": SQL(", ").join([one] * len(fields)),
            "names": SQL(", ").join(Identifier(_alias(self._fields[name])) for name in fields),
            "values": columns,
        }

    def _match(self, fields: Sequence[str], columns: dict[str, str] | None = None) -> Composable:
        parts = []
        for name in fields:
            field = self._fields[name]
            column = field.column if columns is None else columns[name]
            parts.append(SQL("t.{} = {}").format(Identifier(column), _value(field)))
        return SQL(" AND ").join(parts)


def _pack(column: Sequence[str | None]) -> str | None:
    """A column as one text: psycopg writes an array element by element, at 2 µs each. None if it cannot be."""
    if _NO_VALUE in column:
        return None
    if None in column:
        column = [_NO_VALUE if text is None else text for text in column]
    packed = _BETWEEN.join(column)  # type: ignore[arg-type]
    return packed if packed and packed.count(_BETWEEN) == len(column) - 1 else None


def lines(columns: Iterable[Sequence[str | None]]) -> bytes:
    """Columns of text as rows of COPY."""
    escaped = [_escaped(column) for column in columns]
    return ("\n".join(map("\t".join, zip(*escaped, strict=True))) + "\n").encode()


def _escaped(column: Sequence[str | None]) -> Sequence[str]:
    if None in column:
        return ["\\N" if text is None else _escape(text) for text in column]
    joined = "".join(column)  # type: ignore[arg-type]
    if "\\" in joined or "\t" in joined or "\n" in joined or "\r" in joined:
        return [_escape(text or "") for text in column]
    return column  # type: ignore[return-value]


def _escape(text: str) -> str:
    text = text.replace("\\", "\\\\") if "\\" in text else text
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _template(name: str) -> SQL:
    return SQL(sql(name).decode())


def _alias(field: Field) -> str:
    return f"f_{field.column}"[:63]


def _value(field: Field) -> Composable:
    # The type is what the catalog said of the column, not what anybody sent.
    return SQL("n.{}::{}").format(Identifier(_alias(field)), SQL(field.sql_type))


def _set(field: Field) -> Composable:
    """An empty value leaves what the table fills by itself as it is."""
    column = Identifier(field.column)
    if field.filled:
        return SQL("{} = coalesce({}, t.{})").format(column, _value(field), column)
    return SQL("{} = {}").format(column, _value(field))


def _differs(field: Field) -> Composable:
    ours, theirs = SQL("t.{}").format(Identifier(field.column)), _value(field)
    if field.sql_type in ("json", "xml", "point", "polygon"):  # no equality
        ours, theirs = SQL("{}::text").format(ours), SQL("{}::text").format(theirs)
    unequal = SQL("{} IS DISTINCT FROM {}").format(ours, theirs)
    if field.filled:
        return SQL("(n.{} IS NOT NULL AND {})").format(Identifier(_alias(field)), unequal)
    return unequal
