"""Writing into a user's own table, in the flush transaction: set-based, and never a value in a statement's text."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.sql import SQL, Composable, Identifier, Literal, Placeholder

from tidemill.domain.errors import InvalidInput
from tidemill.domain.resource import Field, Reference, Resource, Table
from tidemill.domain.values.columns import Texts
from tidemill.store.catalog import introspect
from tidemill.store.database import Connection, is_transient
from tidemill.store.statements import sql
from tidemill.store.target_refusals import Gone, Refusal, is_bad_data, raise_gone
from tidemill.store.target_rows import pack

HAS_INPUT_CHECKS = 160000
TRIAL, TRIAL_THERE = Identifier("pg_temp", "tidemill_trial"), Identifier("pg_temp", "tidemill_trial_there")
Rows = Sequence[tuple[str | None, ...]]


class Target:
    """One table, and statements about its rows: fields by their name, values as text."""

    def __init__(
        self, conn: Connection, resource: Resource, keeps_nothing: Callable[[Field], bool] = lambda _: False
    ) -> None:
        """``keeps_nothing``: of a field that the table fills by itself, whether NULL is a value all the same."""
        self._conn = conn
        self._filled = {field.name for field in resource.fields if field.filled and not keeps_nothing(field)}
        self._resource = resource
        self._table_name = resource.table
        self._table = _identifier(resource.table)
        self._fields = {field.name: field for field in resource.fields}
        self._aliases = {name: f"f{place}" for place, name in enumerate(self._fields)}
        self._copied = ""  # the table of the last COPY, as the server calls it

    @asynccontextmanager
    async def attempt(self, *, undo: bool = False) -> AsyncIterator[None]:
        """All that is written within, or nothing of it: a Refusal leaves the transaction as it was.

        With ``undo`` it is left so in any case: aborted, a subtransaction is no burden to others.
        """
        try:
            async with self._conn.transaction(force_rollback=undo):
                yield
        except psycopg.Error as error:
            raise_gone(error, self._table_name)
            if is_transient(error):
                raise
            raise Refusal(error, self._copied) from error

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Statements that ask. What they cannot read is no value of the type that a column had, or a Refusal."""
        try:
            async with self._conn.transaction():
                yield
        except psycopg.Error as error:
            raise_gone(error, self._table_name)
            if is_transient(error):
                raise
            if is_bad_data(error):
                await self.refuse_other_shape(self._fields)
            raise Refusal(error, "") from error

    async def refuse_other_shape(self, fields: Iterable[str]) -> None:
        """Gone if the table has other columns now than when the import was planned."""
        try:
            found = {field.column: field.sql_type for field in (await introspect(self._conn, self._table_name)).fields}
        except InvalidInput as error:
            raise Gone(str(error)) from error
        for field in (self._fields[name] for name in fields):
            if field.column not in found:
                raise Gone(f"{self._table_name}: a column is gone ({field.column})")
            if found[field.column] != field.sql_type:
                now = f"{field.column} was {field.sql_type} and is {found[field.column]}"
                raise Gone(f"{self._table_name}: a column has another type now ({now})")

    async def check_at_once(self) -> None:
        """Constraints that wait for the end of the transaction would fail all of it."""
        await self._conn.execute(sql("target/check_at_once"))

    async def existing(self, fields: Sequence[str], rows: Rows, empty: Collection[str] = ()) -> set[int]:
        """Places of rows whose values in these fields the table has already; in ``empty`` they have none."""
        asked = self._unnest(fields, rows) | {"match": self._match(fields, empty=empty)}
        return await self._places("target/existing", asked)

    async def taken(
        self, key: Sequence[str], fields: Sequence[str], rows: Rows, empty: Collection[str] = ()
    ) -> set[int]:
        """Places of rows whose values in these fields another row of the table has; the rows begin with their key."""
        given = [*key, *(name for name in fields if name not in key)]
        asked = self._unnest(given, rows) | {"match": self._match(fields, empty=empty), "own": self._match(key)}
        return await self._places("target/taken", asked)

    async def missing(self, reference: Reference, rows: Rows) -> set[int]:
        """Places of rows whose reference leads nowhere."""
        table = _identifier(reference.table)
        columns = dict(zip(reference.fields, reference.columns, strict=True))
        asked = self._unnest(reference.fields, rows) | {"match": self._match(reference.fields, columns)}
        return await self._places("target/missing", asked, table)

    async def invalid(self, field: str, texts: Texts) -> dict[int, str]:
        """Texts that the type of a field does not take, and why. Old servers say so only when it is too late."""
        if self._conn.info.server_version < HAS_INPUT_CHECKS:
            return {}
        distinct = [text for text in dict.fromkeys(texts) if text is not None]
        if not distinct:
            return {}
        array, value = _array("texts", distinct)
        statement = _template("target/invalid").format(texts=array)
        cursor = await self._conn.execute(statement, {"texts": value, "type": self._fields[field].sql_type})
        reasons = {distinct[ord_ - 1]: reason for ord_, reason in await cursor.fetchall()}
        return {index: reasons[text] for index, text in enumerate(texts) if text in reasons} if reasons else {}

    async def update(self, fields: Sequence[str], rows: Rows, *, on_trial: bool) -> set[int]:
        """Bring existing rows up to these values, or copies of them; places of those that were different."""
        others = self._others(fields)
        if not others:
            return set()
        if on_trial:
            key = self._resource.key
            keys = [tuple(row[fields.index(name)] for name in key) for row in rows]
            await self._places("target/copy_there", self._unnest(key, keys) | {"match": self._match(key)})
        sets = SQL(", ").join([self._set(field) for field in others])
        return await self._change("target/update", fields, rows, TRIAL_THERE if on_trial else self._table, sets=sets)

    async def same(self, fields: Sequence[str], rows: Rows) -> set[int]:
        """Places of rows that the table has just so."""
        return await self._change("target/same", fields, rows, self._table)

    async def copy(self, fields: Sequence[str], data: bytes, *, on_trial: bool) -> int:
        """Rows in COPY's text form, into the table or into one that only looks like it; how many it took."""
        columns = SQL(", ").join(Identifier(self._fields[name].column) for name in fields)
        self._copied = "tidemill_trial" if on_trial else self._table_name.name
        table = TRIAL if on_trial else Identifier(self._table_name.schema, self._table_name.name)
        if not fields:  # COPY cannot say so
            return await self._insert_defaults(table, data.count(b"\n"))
        statement = _template("target/copy").format(table=table, columns=columns)
        async with self._conn.cursor() as cursor:
            async with cursor.copy(statement) as copy:
                await copy.write(data)
            return cursor.rowcount

    async def _insert_defaults(self, table: Identifier, count: int) -> int:
        statement = _template("target/insert_defaults").format(table=table)
        return sum([(await self._conn.execute(statement)).rowcount for _ in range(count)])

    async def create_trials(self) -> None:
        table = Identifier(self._table_name.schema, self._table_name.name)
        async with self.looking():
            await self._conn.execute(_template("target/create_trial").format(table=table))
            await self._count_apart()
            await self._conn.execute(_template("target/create_trial_there").format(table=table))

    async def _count_apart(self) -> None:
        """A trial has sequences of its own: it takes no number from those of the table."""
        params = {"schema": self._table_name.schema, "table": self._table_name.name}
        found = await (await self._conn.execute(sql("target/trial_sequences"), params)).fetchall()
        for column, name, start, default in found:
            names = {"sequence": Identifier("pg_temp", name), "column": Identifier(column)}
            made = _template("target/create_trial_sequence").format(start=Literal(start), **names)
            await self._conn.execute(made)
            await self._conn.execute(_template("target/set_trial_default").format(default=SQL(default), **names))

    def _others(self, fields: Sequence[str]) -> list[Field]:
        """What an update may change."""
        return [self._fields[field] for field in fields if field not in self._resource.key]

    async def _change(
        self, name: str, fields: Sequence[str], rows: Rows, table: Identifier, **more: Composable
    ) -> set[int]:
        parts = [self._differs(field) for field in self._others(fields)] or [SQL("false")]
        differs = SQL(" OR ").join(parts)
        asked = self._unnest(fields, rows) | {"match": self._match(self._resource.key), "differs": differs}
        return await self._places(name, asked | more, table)

    async def _places(self, name: str, asked: dict[str, Any], table: Identifier | None = None) -> set[int]:
        table, values = table or self._table, asked.pop("values")
        # Never prepared: a plan for ten rows is the wrong one for ten thousand.
        cursor = await self._conn.execute(_template(name).format(table=table, **asked), values, prepare=False)
        return {row[0] - 1 for row in await cursor.fetchall()}

    def _unnest(self, fields: Sequence[str], rows: Rows) -> dict[str, Any]:
        names = [self._aliases[name] for name in fields]
        arrays = [_array(name, column) for name, column in zip(names, zip(*rows, strict=True), strict=True)]
        return {
            "arrays": SQL(", ").join(array for array, _ in arrays),
            "names": SQL(", ").join(map(Identifier, names)),
            "values": {name: value for name, (_, value) in zip(names, arrays, strict=True)},
        }

    def _match(
        self, fields: Sequence[str], columns: dict[str, str] | None = None, empty: Collection[str] = ()
    ) -> Composable:
        parts: list[Composable] = []
        for name in fields:
            field = self._fields[name]
            column = _name(field.column if columns is None else columns[name])
            if name in empty:
                parts.append(SQL("t.{} IS NULL").format(column))
            else:
                parts.append(SQL("t.{} = {}").format(column, self._value(field)))
        return SQL(" AND ").join(parts)

    def _alias(self, field: Field) -> Identifier:
        return Identifier(self._aliases[field.name])

    def _value(self, field: Field) -> Composable:
        # The type is what the catalog said of the column, not what anybody sent.
        return SQL("n.{}::{}").format(self._alias(field), SQL(field.sql_type.replace("%", "%%")))

    def _set(self, field: Field) -> Composable:
        """An empty value leaves what the table fills by itself as it is."""
        column = _name(field.column)
        if field.name in self._filled:
            return SQL("{} = coalesce({}, t.{})").format(column, self._value(field), column)
        return SQL("{} = {}").format(column, self._value(field))

    def _differs(self, field: Field) -> Composable:
        ours, theirs = SQL("t.{}").format(_name(field.column)), self._value(field)
        if _may_lack_equality(field):  # such values are equal if they are written alike
            ours, theirs = SQL("{}::text").format(ours), SQL("{}::text").format(theirs)
        unequal = SQL("{} IS DISTINCT FROM {}").format(ours, theirs)
        if field.name in self._filled:
            return SQL("(n.{} IS NOT NULL AND {})").format(self._alias(field), unequal)
        return unequal


def _array(name: str, column: Sequence[str | None]) -> tuple[Composable, Any]:
    """A column of texts for a statement, and the parameter of that name which it is made of."""
    packed = pack(column)
    if packed is None:
        return SQL("{}::text[]").format(Placeholder(name)), list(column)
    return SQL("string_to_array({}, chr(30), chr(31))").format(Placeholder(name)), packed


def _template(name: str) -> SQL:
    return SQL(sql(name).decode())


def _may_lack_equality(field: Field) -> bool:
    kind = field.element if field.type == "array" else field.type
    return kind in (None, "other", "json") and field.sql_type != "jsonb"


def _name(name: str) -> Identifier:
    """A name in a statement that has parameters, where a percent sign is written twice."""
    return Identifier(name.replace("%", "%%"))


def _identifier(table: Table) -> Identifier:
    return Identifier(table.schema.replace("%", "%%"), table.name.replace("%", "%%"))
