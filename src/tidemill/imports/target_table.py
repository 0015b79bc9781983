"""Reads and writes a user's table in the flush transaction, with values as parameters or COPY data."""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal, Placeholder

from tidemill.core.errors import InvalidInput
from tidemill.store.database import Connection, is_transient
from tidemill.store.statements import make_sql_loader
from tidemill.tables.introspection.table_introspection import introspect_table
from tidemill.tables.resource import Field, Lookup, Reference, Resource, TableName, may_lack_equality
from tidemill.tables.values.column_texts import ColumnTexts

_TARGET_UNUSABLE_MESSAGES = {
    "42P01": "the table does not exist",
    "3F000": "the schema does not exist",
    "42703": "a column does not exist",
    "42804": "the type of a column has changed",
    "42501": "permission denied",
    "42883": "the type of a column has changed",
    "25006": "the database is read-only",
    "0A000": "the table does not accept rows",
}
_BAD_DATA_STATE_CLASS = "22"  # "data exception": a type does not accept a value
_REJECTION_CODES = {
    "23505": "exists",
    "23503": "unknown_reference",
    "23502": "required",
    "23514": "check",
    "23P01": "exclusion",
}


class TargetUnusable(Exception):
    """The table can accept no row at all: it is missing, has changed, or may not be written."""


class ConcurrentRowChange(Exception):
    """Other sessions deleted or changed rows since the check; ``rows`` are their indexes in the batch."""

    def __init__(self, rows: Collection[int] = ()) -> None:
        super().__init__("Other sessions change these rows faster than the import can update them")
        self.rows = rows


class TableRejection(Exception):
    """The table rejected rows. ``row_index`` is the bad row in the COPY data, if the server reports it."""

    def __init__(self, error: psycopg.Error, table: str) -> None:
        super().__init__((error.diag.message_primary or str(error)).splitlines()[0])
        self.reason = str(self)
        self.code = _REJECTION_CODES.get(error.sqlstate or "", "refused")
        self.column = error.diag.column_name
        self.is_key_conflict = self.code in ("exists", "unknown_reference")  # repeating the key checks can find it
        self.quotes_value = is_bad_data_error(error)
        # In every language, the line is the first number after the name of the table.
        line = re.search(rf"^COPY {re.escape(table)}\D*?(\d+)", error.diag.context or "", re.MULTILINE)
        self.row_index = None if line is None else int(line[1]) - 1


class AmbiguousRejection(TableRejection):
    """The table discarded rows without an error and changed the keys of others, so the discarded rows are unknown."""

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)
        self.reason, self.code, self.column, self.row_index = reason, "refused", None, None
        self.is_key_conflict = self.quotes_value = False


def is_bad_data_error(error: psycopg.Error) -> bool:
    return (error.sqlstate or "").startswith(_BAD_DATA_STATE_CLASS)


def raise_if_target_unusable(error: psycopg.Error, table: TableName) -> None:
    state = error.sqlstate or ""
    if state in _TARGET_UNUSABLE_MESSAGES and not _is_row_error(error):
        raise TargetUnusable(f"{table}: {_TARGET_UNUSABLE_MESSAGES[state]} ({str(error).splitlines()[0]})") from error


def _is_row_error(error: psycopg.Error) -> bool:
    """Whether the error comes from a trigger, a function or a line of COPY, and not from the table itself.

    An UPDATE reports no line. The conversion of NaN to an integer has the code 0A000, as a table that accepts no rows.
    """
    is_within = re.search(r"\bPL/\w+ |\bSQL function\b|^COPY ", error.diag.context or "", re.MULTILINE)
    return bool(is_within) or error.diag.source_file == "numeric.c"


sql = make_sql_loader("tidemill.imports")

_VALUE_SEPARATOR, _NULL_MARKER = "\x1e", "\x1f"


def join_column_into_text(column: Sequence[str | None]) -> str | None:
    """Join a column into one text, as psycopg needs 2.4 µs per array element; None if a value has a separator."""
    if _NULL_MARKER in column:
        return None
    if None in column:
        column = [_NULL_MARKER if text is None else text for text in column]
    joined = _VALUE_SEPARATOR.join(column)  # type: ignore[arg-type]
    return joined if joined and joined.count(_VALUE_SEPARATOR) == len(column) - 1 else None


INPUT_CHECKS_MIN_VERSION = 160000
DRY_RUN_TABLE, DRY_RUN_EXISTING_TABLE = (
    Identifier("pg_temp", "tidemill_trial"),
    Identifier("pg_temp", "tidemill_trial_there"),
)
TextRows = Sequence[tuple[str | None, ...]]


class UndoRecorderProtocol(Protocol):
    """Records rows before and after an update. ``UndoRecorder`` implements it."""

    @property
    def has_update_triggers(self) -> bool: ...
    async def update_and_record(self, rows: "UnnestedRows", **parts: Composable) -> set[int]: ...
    async def record_existing(
        self, rows: "UnnestedRows", match: Composable, differs: Composable
    ) -> tuple[int, list[int]]: ...
    async def record_updated(self, record_id: int) -> None: ...


class UnnestedRows(NamedTuple):
    """The arrays that a statement unnests into rows, the column names, and the parameters."""

    arrays: Composable
    names: Composable
    values: dict[str, object]


class TargetTable:
    """Statements on one table, with fields by name and values as text. Results are indexes of the given rows."""

    def __init__(
        self,
        conn: Connection,
        resource: Resource,
        keeps_null: Callable[[Field], bool] = lambda _: False,
        guards: Sequence[str] = (),
    ) -> None:
        """Create the statements.

        Args:
            conn: The connection.
            resource: The table.
            keeps_null: Whether NULL is a value of a field that the table would fill.
            guards: Fields in which a row of the table must have the value of the imported row to be updated.
        """
        self._conn = conn
        self._updated_by = (*resource.key, *guards)
        self._filled = {field.name for field in resource.fields if field.filled and not keeps_null(field)}
        self._resource = resource
        self._table_name = resource.table
        self._table = quote_table(resource.table)
        self._fields = {field.name: field for field in resource.fields}
        self._aliases = {name: f"f{at}" for at, name in enumerate(self._fields)}
        self._copied = ""  # name of the table of the last COPY in server messages

    @asynccontextmanager
    async def open_write_savepoint(self, *, rollback: bool = False) -> AsyncIterator[None]:
        """Run the block in a savepoint; TableRejection if the table rejects a row, after a rollback to it.

        With ``rollback``, always roll back: an aborted subtransaction does not slow other sessions.
        """
        try:
            async with self._conn.transaction(force_rollback=rollback):
                yield
        except psycopg.Error as error:
            raise_if_target_unusable(error, self._table_name)
            if is_transient(error):
                raise
            raise TableRejection(error, self._copied) from error

    @asynccontextmanager
    async def open_read_savepoint(self) -> AsyncIterator[None]:
        """Run queries in a savepoint. TargetUnusable if a column has changed, TableRejection for other errors."""
        try:
            async with self._conn.transaction():
                yield
        except psycopg.Error as error:
            raise_if_target_unusable(error, self._table_name)
            if is_transient(error):
                raise
            if is_bad_data_error(error):
                await self.check_columns_unchanged(self._fields)
            raise TableRejection(error, "") from error

    async def check_columns_unchanged(self, fields: Iterable[str]) -> None:
        """Raise TargetUnusable if a column was removed or its type has changed since the import was planned."""
        try:
            types = {
                field.column: field.sql_type for field in (await introspect_table(self._conn, self._table_name)).fields
            }
        except InvalidInput as error:
            raise TargetUnusable(str(error)) from error
        for field in (self._fields[name] for name in fields):
            if field.column not in types:
                raise TargetUnusable(f"{self._table_name}: a column does not exist ({field.column})")
            if types[field.column] != field.sql_type:
                change = f"{field.column} was {field.sql_type} and is now {types[field.column]}"
                raise TargetUnusable(f"{self._table_name}: the type of a column has changed ({change})")

    async def set_constraints_immediate(self) -> None:
        """Check deferred constraints at once, so that a violation fails one row and not the transaction."""
        await self._conn.execute(sql("target/check_at_once"))

    async def find_rows_existing_in_table(
        self, fields: Sequence[str], rows: TextRows, empty: Collection[str] = ()
    ) -> set[int]:
        """Find rows whose values in these fields exist in the table. Fields in ``empty`` must be NULL there."""
        match = self._build_match_condition(fields, empty=empty)
        return await self._execute_and_get_row_indexes("target/existing", self._build_unnest(fields, rows), match=match)

    async def find_rows_taken_by_other_keys(
        self, key: Sequence[str], fields: Sequence[str], rows: TextRows, empty: Collection[str] = ()
    ) -> set[int]:
        """Find rows whose values exist in a row of the table with another key. Each row starts with its key."""
        given = [*key, *(name for name in fields if name not in key)]
        match, own = self._build_match_condition(fields, empty=empty), self._build_match_condition(key)
        return await self._execute_and_get_row_indexes(
            "target/taken", self._build_unnest(given, rows), match=match, own=own
        )

    async def find_missing_references(self, reference: Reference, rows: TextRows) -> set[int]:
        """Find rows whose reference matches no row."""
        table = quote_table(reference.table)
        columns = dict(zip(reference.fields, reference.columns, strict=True))
        match = self._build_match_condition(reference.fields, columns)
        unnest = self._build_unnest(reference.fields, rows)
        return await self._execute_and_get_row_indexes("target/missing", unnest, table, match=match)

    async def find_rows_by_lookup(self, lookup: Lookup, values: TextRows) -> dict[int, tuple[int, str]]:
        """Return how many rows have the searched values, and the key of one of them, by index of the values."""
        unnest, searched = _unnest_and_cast(lookup, values)
        pairs = zip(map(quote_column, lookup.columns), searched, strict=True)
        match = SQL(" AND ").join(SQL("t.{} = {}").format(*pair) for pair in pairs)
        names = {"table": quote_table(lookup.table), "key": quote_column(lookup.key), "names": unnest.names}
        query = load_sql_template("target/find_by_lookup").format(arrays=unnest.arrays, match=match, **names)
        cursor = await self._execute_on_other_table(lookup.table, query, unnest.values)
        return {ord_ - 1: (count, key) for ord_, count, key in await cursor.fetchall()}

    async def create_referenced_rows(self, lookup: Lookup, values: TextRows) -> int:
        """Insert rows with these values, except those that exist; return the number of inserted rows."""
        unnest, searched = _unnest_and_cast(lookup, values)
        columns = SQL(", ").join(map(quote_column, lookup.columns))
        names = {"table": quote_table(lookup.table), "columns": columns, "names": unnest.names}
        query = load_sql_template("target/create_referenced").format(
            arrays=unnest.arrays, values=SQL(", ").join(searched), **names
        )
        try:
            async with self._conn.transaction():
                return int((await self._execute_on_other_table(lookup.table, query, unnest.values)).rowcount)
        except psycopg.Error as error:
            if is_transient(error):
                raise
            rejection = TableRejection(error, "")
            rejection.column = self._fields[lookup.field].column
            raise rejection from error

    async def _execute_on_other_table(self, table: TableName, query: Composed, values: dict[str, object]) -> Any:
        try:
            return await self._conn.execute(query, values, prepare=False)
        except psycopg.Error as error:
            raise_if_target_unusable(error, table)
            raise

    async def find_invalid_values(self, field: Field, texts: ColumnTexts) -> dict[int, str]:
        """Return why texts are invalid for the type of a field. Servers before PostgreSQL 16 cannot check this."""
        if self._conn.info.server_version < INPUT_CHECKS_MIN_VERSION:
            return {}
        distinct = [text for text in dict.fromkeys(texts) if text is not None]
        if not distinct:
            return {}
        array, value = build_text_array_sql_and_value("texts", distinct)
        statement = load_sql_template("target/invalid").format(texts=array)
        cursor = await self._conn.execute(statement, {"texts": value, "type": field.sql_type})
        reasons = {distinct[ord_ - 1]: reason for ord_, reason in await cursor.fetchall()}
        return {index: reasons[text] for index, text in enumerate(texts) if text in reasons} if reasons else {}

    async def update_rows(
        self, fields: Sequence[str], rows: TextRows, *, dry_run: bool, recorder: UndoRecorderProtocol | None = None
    ) -> set[int]:
        """Update existing rows, or copies of them in a dry run; return those that changed.

        ``recorder`` records the rows before and after, so that the update can be undone.
        """
        others = self._list_updatable_fields(fields)
        if not others:
            return set()
        if recorder is None:
            return await self._update_rows(fields, others, rows, dry_run=dry_run)
        differs = self._build_any_difference_condition(others)
        if not recorder.has_update_triggers:
            return await recorder.update_and_record(
                self._build_unnest(fields, rows),
                match=self._build_match_condition(self._updated_by),
                match_before=self._build_match_condition(self._updated_by, row="b"),
                differs=differs,
                sets=SQL(", ").join([self._build_assignment(field) for field in others]),
            )
        match = self._build_match_condition(self._updated_by)
        record_id, locked = await recorder.record_existing(self._build_unnest(fields, rows), match, differs)
        changed = await self._update_rows(fields, others, [rows[at] for at in locked], dry_run=False) if locked else ()
        if locked and len(changed) == len(locked):  # else the caller rolls back
            await recorder.record_updated(record_id)
        return {locked[at] for at in changed}

    async def _update_rows(
        self, fields: Sequence[str], others: list[Field], rows: TextRows, *, dry_run: bool
    ) -> set[int]:
        if dry_run:
            key = self._updated_by
            keys = [tuple(row[fields.index(name)] for name in key) for row in rows]
            await self._execute_and_get_row_indexes(
                "target/copy_there", self._build_unnest(key, keys), match=self._build_match_condition(key)
            )
        sets = SQL(", ").join([self._build_assignment(field) for field in others])
        return await self._execute_for_rows_matched_by_key(
            "target/update", fields, rows, DRY_RUN_EXISTING_TABLE if dry_run else self._table, sets=sets
        )

    async def find_unchanged_rows(self, fields: Sequence[str], rows: TextRows) -> set[int]:
        """Find rows that exist in the table with exactly these values."""
        return await self._execute_for_rows_matched_by_key("target/same", fields, rows, self._table)

    async def copy_rows(
        self, fields: Sequence[str], data: bytes, *, dry_run: bool, key_columns: Sequence[str] = ()
    ) -> int:
        """Copy rows into the table, or into a temporary one in a dry run; return the number of inserted rows.

        ``key_columns`` are columns after those of the fields, with values that the table would generate.
        """
        names = [*(self._fields[name].column for name in fields), *key_columns]
        columns = SQL(", ").join(map(Identifier, names))
        self._copied = "tidemill_trial" if dry_run else self._table_name.name
        table = DRY_RUN_TABLE if dry_run else Identifier(self._table_name.schema, self._table_name.name)
        if not names:  # COPY needs at least one column
            return await self._insert_default_rows(table, data.count(b"\n"))
        statement = load_sql_template("target/copy").format(table=table, columns=columns)
        async with self._conn.cursor() as cursor:
            async with cursor.copy(statement) as copy:
                await copy.write(data)
            return cursor.rowcount

    async def _insert_default_rows(self, table: Identifier, count: int) -> int:
        statement = load_sql_template("target/insert_defaults").format(table=table)
        return sum([(await self._conn.execute(statement)).rowcount for _ in range(count)])

    async def create_dry_run_tables(self) -> None:
        table = Identifier(self._table_name.schema, self._table_name.name)
        async with self.open_read_savepoint():
            await self._conn.execute(load_sql_template("target/create_trial").format(table=table))
            await self._create_dry_run_sequences()
            await self._conn.execute(load_sql_template("target/create_trial_there").format(table=table))

    async def _create_dry_run_sequences(self) -> None:
        """Give the dry run its own sequences, so that it uses no number of the table's sequences."""
        params = {"schema": self._table_name.schema, "table": self._table_name.name}
        sequences = await (await self._conn.execute(sql("target/trial_sequences"), params)).fetchall()
        for column, name, start, default in sequences:
            names = {"sequence": Identifier("pg_temp", name), "column": Identifier(column)}
            statement = load_sql_template("target/create_trial_sequence").format(start=Literal(start), **names)
            await self._conn.execute(statement)
            await self._conn.execute(
                load_sql_template("target/set_trial_default").format(default=SQL(default), **names)
            )

    def _list_updatable_fields(self, fields: Sequence[str]) -> list[Field]:
        """Return the fields that an update sets: all but the key and the guards."""
        return [self._fields[field] for field in fields if field not in self._updated_by]

    async def _execute_for_rows_matched_by_key(
        self, name: str, fields: Sequence[str], rows: TextRows, table: Identifier, **more: Composable
    ) -> set[int]:
        differs = self._build_any_difference_condition(self._list_updatable_fields(fields))
        match = self._build_match_condition(self._updated_by)
        unnest = self._build_unnest(fields, rows)
        return await self._execute_and_get_row_indexes(name, unnest, table, match=match, differs=differs, **more)

    async def _execute_and_get_row_indexes(
        self, name: str, unnest: UnnestedRows, table: Identifier | None = None, **parts: Composable
    ) -> set[int]:
        query = load_sql_template(name).format(
            table=table or self._table, arrays=unnest.arrays, names=unnest.names, **parts
        )
        # Never prepared: a plan for ten rows is the wrong one for ten thousand.
        cursor = await self._conn.execute(query, unnest.values, prepare=False)
        return {row[0] - 1 for row in await cursor.fetchall()}

    def _build_unnest(self, fields: Sequence[str], rows: TextRows) -> UnnestedRows:
        return _unnest([self._aliases[name] for name in fields], rows)

    def _build_match_condition(
        self, fields: Sequence[str], columns: dict[str, str] | None = None, empty: Collection[str] = (), row: str = "t"
    ) -> Composable:
        parts: list[Composable] = []
        for name in fields:
            field = self._fields[name]
            column = quote_column(field.column if columns is None else columns[name])
            if name in empty:
                parts.append(SQL("{}.{} IS NULL").format(SQL(row), column))
            else:
                parts.append(SQL("{}.{} = {}").format(SQL(row), column, self._build_typed_value(field)))
        return SQL(" AND ").join(parts)

    def _quote_column_alias(self, field: Field) -> Identifier:
        return Identifier(self._aliases[field.name])

    def _build_typed_value(self, field: Field) -> Composable:
        # The type name comes from the catalog, never from a request, so it is safe to insert it as SQL.
        return SQL("n.{}::{}").format(self._quote_column_alias(field), SQL(field.sql_type.replace("%", "%%")))

    def _build_assignment(self, field: Field) -> Composable:
        """Build the assignment of a field. An empty value keeps the current value of a field that the table fills."""
        column = quote_column(field.column)
        if field.name in self._filled:
            return SQL("{} = coalesce({}, t.{})").format(column, self._build_typed_value(field), column)
        return SQL("{} = {}").format(column, self._build_typed_value(field))

    def _build_any_difference_condition(self, fields: Sequence[Field]) -> Composable:
        return SQL("({})").format(
            SQL(" OR ").join([self._build_difference_condition(field) for field in fields] or [SQL("false")])
        )

    def _build_difference_condition(self, field: Field) -> Composable:
        ours, theirs = SQL("t.{}").format(quote_column(field.column)), self._build_typed_value(field)
        if may_lack_equality(field):  # compare the text of values whose type has no equality
            ours, theirs = SQL("{}::text").format(ours), SQL("{}::text").format(theirs)
        unequal = SQL("{} IS DISTINCT FROM {}").format(ours, theirs)
        if field.name in self._filled:
            return SQL("(n.{} IS NOT NULL AND {})").format(self._quote_column_alias(field), unequal)
        return unequal


def _unnest(names: Sequence[str], rows: TextRows) -> UnnestedRows:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    arrays = [build_text_array_sql_and_value(name, column) for name, column in zip(names, columns, strict=True)]
    return UnnestedRows(
        arrays=SQL(", ").join(array for array, _ in arrays),
        names=SQL(", ").join(map(Identifier, names)),
        values={name: value for name, (_, value) in zip(names, arrays, strict=True)},
    )


def _unnest_and_cast(lookup: Lookup, rows: TextRows) -> tuple[UnnestedRows, list[Composable]]:
    """Return the unnested searched values, and each of them with its type."""
    names = [f"v{at}" for at in range(len(lookup.by))]
    types = [SQL(one.replace("%", "%%")) for one in lookup.searched_types]
    return _unnest(names, rows), [
        SQL("n.{}::{}").format(*pair) for pair in zip(map(Identifier, names), types, strict=True)
    ]


def build_text_array_sql_and_value(name: str, column: Sequence[str | None]) -> tuple[Composable, Any]:
    """Return the SQL of a text array, and the value of its parameter ``name``."""
    joined = join_column_into_text(column)
    if joined is None:
        return SQL("{}::text[]").format(Placeholder(name)), list(column)
    return SQL("string_to_array({}, chr(30), chr(31))").format(Placeholder(name)), joined


def load_sql_template(name: str) -> SQL:
    return SQL(sql(name).decode())


def quote_column(name: str) -> Identifier:
    """Quote a name for a statement with parameters, where a percent sign is doubled."""
    return Identifier(name.replace("%", "%%"))


def quote_table(table: TableName) -> Identifier:
    return Identifier(table.schema.replace("%", "%%"), table.name.replace("%", "%%"))
