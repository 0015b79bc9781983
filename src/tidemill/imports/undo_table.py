"""Statements of undoable imports on a user's table: record what an import writes, and reverse recorded rows."""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.sql import SQL, Composable, Identifier, Literal
from psycopg.types.json import Jsonb

from tidemill.core.errors import Conflict
from tidemill.imports.target_table import (
    build_text_array_sql_and_value,
    is_bad_data_error,
    load_sql_template,
    quote_column,
    quote_table,
    raise_if_target_unusable,
    sql,
)
from tidemill.store.database import Connection, is_timeout_error, is_transient
from tidemill.store.statements import fetch_records, fetch_rows
from tidemill.tables.resource import Resource, TableName
from tidemill.tables.values.column_texts import REDACTED_VALUE

TextSettings = dict[str, str]
"""The settings of a session that the texts of values depend on."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the catalog."""

    name: str
    sql_type: str
    not_null: bool
    always_identity: bool
    generated: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class LoggedLayout:
    """The key, and the columns with their types, of the rows of a record. It is stored with the record.

    ``settings``: those with which their texts were written.
    """

    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    settings: TextSettings = field(default_factory=dict)

    @classmethod
    def from_json(cls, layout: Mapping[str, Any]) -> "LoggedLayout":
        columns = tuple((name, type_) for name, type_ in layout["columns"])
        return cls(tuple(layout["key"]), columns, layout["settings"])

    def to_json(self) -> dict[str, Any]:
        columns = [list(column) for column in self.columns]
        return {"key": list(self.key), "columns": columns, "settings": self.settings}

    @property
    def types(self) -> dict[str, str]:
        return dict(self.columns)


async def read_table_columns(conn: Connection, table: TableName) -> list[TableColumn]:
    params = {"schema": table.schema, "name": table.name}
    return await fetch_records(conn, TableColumn, sql("undo/columns"), params)


_SETTINGS_TO_READ_TEXTS = ("intervalstyle", "lc_monetary")


async def read_text_settings(conn: Connection) -> TextSettings:
    (settings,) = await fetch_rows(conn, sql("undo/text_settings"), {})
    return settings


@asynccontextmanager
async def use_text_settings(conn: Connection, settings: TextSettings, *, to_read: bool = False) -> AsyncIterator[None]:
    """Use the settings of a record in this block. An error leaves the reset to the rollback.

    With ``to_read``, recorded texts can be read, and triggers see the time zone of the session.
    """
    before = await read_text_settings(conn)
    only = {name: settings[name] for name in _SETTINGS_TO_READ_TEXTS} if to_read else settings
    await conn.execute(sql("undo/use_settings"), before | only)
    yield
    await conn.execute(sql("undo/use_settings"), before)


class RowSql:
    """Parts of statements on rows ``t`` of a table and recorded rows ``n``. k0, k1, … are keys and i0, i1, … images."""

    def __init__(self, table: TableName, layout: LoggedLayout, stored: LoggedLayout | None = None) -> None:
        """``layout`` is that of the recorded rows, and ``stored`` that of new records (default: the same)."""
        self._layout = layout
        self._stored = stored or layout
        self.table = quote_table(table)
        columns = SQL(", ").join(_of_row(name) for name, _ in layout.columns)
        self.hash = SQL('hashtextextended(ROW({})::text COLLATE "C", 0)').format(columns)

    def build_image_parts(self, row: str = "t") -> dict[str, Composable]:
        """Build the texts of the complete current rows, and their arrays."""
        columns = [name for name, _ in self._stored.columns]
        return self.build_key_parts(row) | {
            "image_texts": SQL(", ").join(
                SQL("{}::text AS {}").format(_of_row(name, row), Identifier(f"i{at}"))
                for at, name in enumerate(columns)
            ),
            "images": _aggregate("i", len(columns)),
        }

    def build_key_parts(self, row: str = "t") -> dict[str, Composable]:
        """Build the texts of the keys of current rows, and their arrays."""
        texts = [
            SQL("{}::text AS {}").format(_of_row(name, row), Identifier(f"k{at}"))
            for at, name in enumerate(self._stored.key)
        ]
        return {"key_texts": SQL(", ").join(texts), "keys": self.key_arrays}

    def build_unnest(self, keys: Sequence[Sequence[str | None]]) -> tuple[dict[str, Composable], dict[str, Any]]:
        pairs = [build_text_array_sql_and_value(f"k{at}", column) for at, column in enumerate(keys)]
        arrays = SQL(", ").join(array for array, _ in pairs)
        parts: dict[str, Composable] = {"arrays": arrays, "names": self._key_names, "match": self.build_match()}
        return parts, {f"k{at}": value for at, (_, value) in enumerate(pairs)}

    @property
    def _key_names(self) -> Composable:
        return SQL(", ").join(Identifier(f"k{at}") for at in range(len(self._layout.key)))

    def build_key_array(self, hidden: Container[str]) -> Composable:
        """Build the array of a recorded key, with a placeholder for the ``hidden`` columns."""
        values = [
            Literal(REDACTED_VALUE) if name in hidden else Identifier("n", f"k{at}")
            for at, name in enumerate(self._layout.key)
        ]
        return SQL("ARRAY[{}]").format(SQL(", ").join(values))

    @property
    def key_arrays(self) -> Composable:
        return _aggregate("k", len(self._layout.key))

    def build_match(self, other: str = "n", row: str = "t") -> Composable:
        types = self._layout.types
        return SQL(" AND ").join(
            SQL("{} = {}::{}").format(_of_row(name, row), Identifier(other, f"k{at}"), _type(types[name]))
            for at, name in enumerate(self._layout.key)
        )

    def build_logged(self, action: str, *, with_images: bool, with_hashes: bool = True) -> Composable:
        """Build a query of recorded rows: ``%(ords)s`` of the record ``%(id)s``, or all of them for NULL."""
        names = [f"k{at}" for at in range(len(self._layout.key))]
        arrays: list[Composable] = [
            SQL("l.keys[{0}:{0}]").format(Literal(at + 1)) for at in range(len(self._layout.key))
        ]
        if with_images:
            names += [f"i{at}" for at in range(len(self._layout.columns))]
            arrays += [SQL("l.images[{0}:{0}]").format(Literal(at + 1)) for at in range(len(self._layout.columns))]
        if with_hashes and action != "delete":
            names.append("hash")
            arrays.append(SQL("l.hashes"))
        return SQL(
            "SELECT n.* FROM tidemill.undo_log l CROSS JOIN LATERAL unnest({}) WITH ORDINALITY AS n({}, ord) "
            "WHERE l.id = %(id)s AND (%(ords)s::bigint[] IS NULL OR n.ord = ANY(%(ords)s::bigint[]))"
        ).format(SQL(", ").join(arrays), SQL(", ").join(map(Identifier, names)))

    def build_live_keys(self) -> Composable:
        """Build a query of the keys of all rows that the import ``%(job_id)s`` wrote and that are not undone."""
        keys = SQL(", ").join(SQL("l.keys[{0}:{0}]").format(Literal(at + 1)) for at in range(len(self._layout.key)))
        return SQL(
            "(SELECT u.* FROM tidemill.undo_log l CROSS JOIN LATERAL unnest({}) AS u({}) "
            "WHERE l.job_id = %(job_id)s AND NOT l.is_undo AND l.live_count > 0)"
        ).format(keys, self._key_names)

    def build_value(self, column: str) -> Composable:
        names = [name for name, _ in self._layout.columns]
        return SQL("{}::{}").format(Identifier("n", f"i{names.index(column)}"), _type(self._layout.types[column]))


def _of_row(column: str, row: str = "t") -> Composable:
    return SQL("{}.{}").format(Identifier(row), quote_column(column))


def _type(sql_type: str) -> SQL:
    # The name comes from the catalog, never from a request, so it is safe to insert it as SQL.
    return SQL(sql_type.replace("%", "%%"))


def _collate(collation: str | None) -> SQL:
    # The name comes from the catalog, as that of a type.
    return SQL("" if collation is None else " COLLATE " + collation.replace("%", "%%"))


def _literal(text: str) -> Literal:
    return Literal(text.replace("%", "%%"))


def _aggregate(prefix: str, count: int) -> Composable:
    arrays = SQL(", ").join(SQL("array_agg({})").format(Identifier(f"{prefix}{at}")) for at in range(count))
    return SQL("ARRAY[{}]").format(arrays)


@dataclass(frozen=True, slots=True)
class ReferencingKey:
    """A foreign key that refers to a table. ``collations``: those of target columns, where the columns differ."""

    name: str
    schema: str
    table: str
    is_own: bool
    columns: Sequence[str]
    target_columns: Sequence[str]
    collations: Sequence[str | None]

    @property
    def table_name(self) -> TableName:
        return TableName(self.schema, self.table)


async def list_referencing_keys(conn: Connection, table: TableName) -> list[ReferencingKey]:
    params = {"schema": table.schema, "name": table.name}
    return await fetch_records(conn, ReferencingKey, sql("undo/references"), params)


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """The current columns of a table, and the foreign keys that refer to it."""

    columns: Sequence[TableColumn]
    references: Sequence[ReferencingKey]

    @classmethod
    async def read(cls, conn: Connection, table: TableName) -> "TableCatalog":
        columns = await read_table_columns(conn, table)
        if not columns:
            raise Conflict(f"Table {table} no longer exists")
        return cls(columns, await list_referencing_keys(conn, table))


class RowRefusal(Exception):
    """The table refuses rows: an error code and a reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def is_row_timeout(error: BaseException) -> bool:
    """Whether a statement or a transaction exceeded its timeout, or waited for a lock for too long."""
    return is_timeout_error(error) or isinstance(error, psycopg.errors.LockNotAvailable)


_BLOCKING_CODES = {"23503": "referenced", "23505": "taken"}


@asynccontextmanager
async def open_reversal_savepoint(conn: Connection, resource: Resource) -> AsyncIterator[None]:
    """Run the block in a savepoint; RowRefusal if the table refuses a row, after a rollback to it."""
    try:
        async with conn.transaction():
            yield
    except psycopg.Error as error:
        raise_if_target_unusable(error, resource.table)
        if is_transient(error):
            raise
        reason = (error.diag.message_primary or str(error)).splitlines()[0]
        if is_bad_data_error(error) and any(field.sensitive for field in resource.fields):  # the message quotes values
            reason = "the table rejected a value"
        raise RowRefusal(_BLOCKING_CODES.get(error.sqlstate or "", "refused"), reason) from error


class RecordOwner(NamedTuple):
    """The job and the operation that write new records."""

    job_id: UUID
    operation_id: UUID
    is_undo: bool


class LoggedRows:
    """The rows of one record, and the statements that reverse them. Rows are numbers from 1."""

    def __init__(
        self, conn: Connection, resource: Resource, record_id: int, action: str, layout: LoggedLayout,
        columns: Sequence[TableColumn],
    ) -> None:  # fmt: skip
        """``columns`` are the current ones. Conflict if the recorded rows no longer fit into the table."""
        self._conn = conn
        self._table = table = resource.table
        self._sensitive_columns = {field.column for field in resource.fields if field.sensitive}
        self._record_id = record_id
        self._action = action
        self._layout = layout
        self._columns = {column.name: column for column in columns}
        self._check_layout()
        stored = tuple((one.name, one.sql_type) for one in columns if not one.generated)
        self._stored = LoggedLayout(layout.key, stored, layout.settings)
        self._rows = RowSql(table, layout, self._stored)
        # Rows that this record's reversal writes, with the current columns.
        self._written = RowSql(table, self._stored)

    def _check_layout(self) -> None:
        for name, type_ in self._layout.columns:
            now = self._columns.get(name)
            if now is None or now.generated:
                raise Conflict(f'Table {self._table} has changed: column "{name}" was removed or is generated now')
            if now.sql_type != type_:
                raise Conflict(f'Table {self._table} has changed: column "{name}" was {type_} and is {now.sql_type}')

    async def find_changed(self, rows: Sequence[int], *, lock: bool) -> dict[int, bool]:
        """Return the rows that have changed since: row -> whether it is gone. Lock the others if ``lock``."""
        if self._action == "delete":
            cursor = await self._execute("undo/existing", rows)
            return {row[0]: False for row in await cursor.fetchall()}
        cursor = await self._execute(
            "undo/classify",
            rows,
            hash=self._rows.hash,
            untouched=self._build_untouched_condition(),
            lock=SQL("FOR UPDATE OF t" if lock else ""),
        )
        return {row[0]: row[1] for row in await cursor.fetchall()}

    def _build_untouched_condition(self) -> Composable:
        """Build the condition that columns which are newer than the record still have their first value.

        PostgreSQL stores the value of a new column for older rows, until the table is rewritten.
        """
        parts = [
            SQL(
                "{}::text IS NOT DISTINCT FROM (SELECT (a.attmissingval::text::text[])[1]::{}::text "
                "FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.tableoid AND a.attname = {} AND a.atthasmissing)"
            ).format(_of_row(one.name), _type(one.sql_type), _literal(one.name))
            for one in self._columns.values()
            if one.name not in self._layout.types and not one.generated
        ]
        return SQL(" AND ").join(parts) if parts and self._action == "insert" else SQL("true")

    async def find_referenced(
        self, rows: Sequence[int], key: ReferencingKey, job_id: UUID | None, *, from_any_row: bool = False
    ) -> set[int]:
        """Return the rows that other rows refer to with a foreign key.

        References from these rows to each other do not count, unless ``from_any_row``. With ``job_id``, none from rows
        that the import wrote count.
        """
        columns = {name: at for at, (name, _) in enumerate(self._layout.columns)}
        changes: Composable = SQL("true")
        if self._action == "update":  # the key stays; other columns can be referred to as well
            now = [self._columns[name] for name in key.target_columns]
            if set(self._layout.key) >= set(key.target_columns):
                return set()
            if not any(column.generated for column in now):  # the new value of a generated column is not known
                if not columns.keys() >= set(key.target_columns):
                    return set()
                changes = SQL("({})").format(
                    SQL(" OR ").join(
                        SQL("{}::text IS DISTINCT FROM {}").format(_of_row(name), Identifier("n", f"i{columns[name]}"))
                        for name in key.target_columns
                    )
                )
        refers = SQL(" AND ").join(
            SQL("{} = {}{}").format(_of_row(name, "r"), _of_row(target), _collate(collation))
            for name, target, collation in zip(key.columns, key.target_columns, key.collations, strict=True)
        )
        outside: Composable = SQL("true")
        if key.is_own and self._action == "insert":
            among = SQL("n") if job_id is None else self._rows.build_live_keys()
            outside = SQL("NOT EXISTS (SELECT FROM {} m WHERE {})").format(among, self._rows.build_match("m", "r"))
            if from_any_row:
                outside = SQL("NOT ({})").format(self._rows.build_match("n", "r"))
        cursor = await self._execute(
            "undo/referenced",
            rows,
            {"job_id": job_id},
            with_images=self._action == "update",
            changes=changes,
            refers=refers,
            outside=outside,
            other=quote_table(key.table_name),
        )
        return {row[0] for row in await cursor.fetchall()}

    async def log_reversal(self, rows: Sequence[int], owner: RecordOwner) -> int:
        """Add the record with which the reversal of these rows can be undone; return its id."""
        params = owner._asdict() | {"layout": Jsonb(self._stored.to_json())}
        if self._action == "delete":
            cursor = await self._execute("undo/log_restored", rows, params, keys=self._rows.key_arrays)
        else:
            action = "delete" if self._action == "insert" else "update"
            parts = self._rows.build_image_parts()
            cursor = await self._execute("undo/log_current", rows, params | {"action": action}, parts)
        row = await cursor.fetchone()
        return int(row[0]) if row is not None else 0

    async def reverse(self, rows: Sequence[int]) -> int:
        """Delete, restore or insert the rows; return how many the table has accepted."""
        if self._action == "insert":
            cursor = await self._execute("undo/delete", rows)
        elif self._action == "update":
            names = [
                name for name, _ in self._layout.columns
                if name not in self._layout.key and not self._columns[name].always_identity
            ]  # fmt: skip
            sets = SQL(", ").join(
                SQL("{} = {}").format(quote_column(name), self._rows.build_value(name)) for name in names
            )
            cursor = await self._execute("undo/update", rows, with_images=True, sets=sets)
        else:
            names = [name for name, _ in self._layout.columns]
            cursor = await self._execute(
                "undo/insert", rows, with_images=True,
                columns=SQL(", ").join(map(quote_column, names)),
                values=SQL(", ").join(map(self._rows.build_value, names)),
            )  # fmt: skip
        return int(cursor.rowcount)

    async def hash_written(self, record_id: int) -> bool:
        """Add the new content to a record of a reversal; return False if a trigger has changed keys."""
        if self._action == "insert":  # the rows are gone
            return True
        logged = self._written.build_logged("update", with_images=False, with_hashes=False)
        statement = load_sql_template("undo/hash_written").format(
            table=self._written.table, hash=self._written.hash, logged=logged, match=self._written.build_match()
        )
        cursor = await self._conn.execute(statement, {"id": record_id, "ords": None}, prepare=False)
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    async def add_exceptions(self, owner: RecordOwner, status: str, problems: Mapping[int, tuple[str, str]]) -> None:
        """Store rows that are not reversed: row -> code and reason."""
        rows = sorted(problems)
        codes, reasons = [problems[row][0] for row in rows], [problems[row][1] for row in rows]
        params = owner._asdict() | {"status": status, "codes": codes, "reasons": reasons}
        await self._execute(
            "undo/add_exceptions", rows, params, key=self._rows.build_key_array(self._sensitive_columns)
        )

    async def _execute(
        self,
        name: str,
        rows: Sequence[int],
        params: Mapping[str, Any] | None = None,
        more_parts: Mapping[str, Composable] | None = None,
        *,
        with_images: bool = False,
        **parts: Composable,
    ) -> Any:
        logged = self._rows.build_logged(self._action, with_images=with_images)
        common = {"table": self._rows.table, "match": self._rows.build_match(), "logged": logged}
        statement = load_sql_template(name).format(**common, **parts, **(more_parts or {}))
        values = {"id": self._record_id, "ords": list(rows), **(params or {})}
        return await self._conn.execute(statement, values, prepare=False)
