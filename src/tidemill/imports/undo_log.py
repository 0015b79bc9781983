"""Records of undoable imports: writes them, and stores which rows can still be reversed and which were not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg.sql import SQL, Composable
from psycopg.types.json import Jsonb

from tidemill.core.errors import InvalidInput
from tidemill.core.list_pages import ListOrder, Page, fingerprint_filters, parse_number
from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.import_records import sql
from tidemill.imports.target_table import TargetUnusable, UnnestedRows, load_sql_template
from tidemill.imports.undo_table import LoggedLayout, RowSql, read_table_columns, read_text_settings
from tidemill.store.database import Connection, Database
from tidemill.store.statements import fetch_records, fetch_rows, make_sql_loader
from tidemill.tables.introspection.table_introspection import (
    AccessProblem,
    describe_access_problems,
    find_access_problems,
)
from tidemill.tables.resource import TableName

_read_catalog = make_sql_loader("tidemill.tables")
_KEY_CHANGED = (
    "rows cannot be found by their key after they were written, because a trigger changes it. "
    "Import without undo, or use another key"
)
EXCEPTIONS_ORDER = ListOrder("undo", (parse_number,))


@dataclass(frozen=True, slots=True)
class UndoTotals:
    """The numbers of rows of an import that an undo and a redo can reverse. ``has_log``: the import wrote records."""

    undoable: int
    redoable: int
    max_id: int
    has_log: bool


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """A record without its rows. ``live``: the rows that are not reversed, from 1; None for all."""

    id: int
    action: str
    layout: Mapping[str, Any]
    row_count: int
    live: Sequence[int] | None
    operation_id: UUID | None

    def list_live_rows(self) -> list[int]:
        return list(range(1, self.row_count + 1)) if self.live is None else list(self.live)


@dataclass(frozen=True, slots=True)
class UndoException:
    """A row that an undo or redo did not reverse: ``kept`` because it has changed, or ``blocked`` by the database."""

    id: int
    status: str
    code: str
    reason: str
    key: Sequence[str]


async def read_undo_totals(conn: Connection, job_id: UUID) -> UndoTotals:
    (totals,) = await fetch_records(conn, UndoTotals, sql("undo/totals"), {"job_id": job_id})
    return totals


async def read_next_record(conn: Connection, job_id: UUID, *, is_undo: bool, max_id: int) -> UndoRecord | None:
    """Return the newest record up to ``max_id`` with rows to reverse; None if there is none."""
    params = {"job_id": job_id, "is_undo": is_undo, "max_id": max_id}
    found = await fetch_records(conn, UndoRecord, sql("undo/next_record"), params)
    return found[0] if found else None


async def set_live_rows(conn: Connection, record_id: int, live: Sequence[int]) -> None:
    params = {"id": record_id, "live": list(live), "live_count": len(live)}
    await conn.execute(sql("undo/set_live"), params)


async def find_running_undo(conn: Connection, job_id: UUID) -> UUID | None:
    row = await (await conn.execute(sql("operation/running_undo"), {"job_id": job_id})).fetchone()
    return None if row is None else row[0]


async def find_last_undo(conn: Connection, job_id: UUID) -> UUID | None:
    row = await (await conn.execute(sql("undo/last_operation"), {"job_id": job_id})).fetchone()
    return None if row is None else row[0]


async def delete_exceptions(conn: Connection, job_id: UUID) -> None:
    await conn.execute(sql("undo/delete_exceptions"), {"job_id": job_id})


async def list_exceptions(
    conn: Connection, job_id: UUID, *, status: str | None, limit: int, after: object = None
) -> Page[UndoException]:
    """Return a page of the rows that the last undo or redo did not reverse."""
    mark = fingerprint_filters(job_id, status or "")
    (after_id,) = (0,) if after is None else EXCEPTIONS_ORDER.parse_position(after, mark)
    params = {"job_id": job_id, "status": status, "after": after_id, "limit": limit + 1}
    rows = await fetch_records(conn, UndoException, sql("undo/list_exceptions"), params)
    shown = rows[:limit]
    return Page(shown, EXCEPTIONS_ORDER.build_position(mark, shown[-1].id) if len(rows) > limit else None)


@dataclass(frozen=True, slots=True)
class UndoTarget:
    """What an undoable import records of its table, and the expressions for key columns that the table generates."""

    table: TableName
    layout: LoggedLayout
    generators: Mapping[str, str]
    has_before_triggers: bool
    has_update_triggers: bool


async def read_undo_target(conn: Connection, plan: ImportPlan) -> UndoTarget:
    """Return what an import with ``undo`` records.

    Raises:
        InvalidInput: No unique index identifies the rows that the import writes.
    """
    table = plan.resource.table
    params = {"schema": table.schema, "name": table.name}
    columns = {column.name: column for column in await read_table_columns(conn, table)}
    mapped = {plan.resource.get_field(name).column for name in plan.mapped_fields}
    generators = {
        name: column.default for name, column in columns.items() if column.default is not None and not column.generated
    }
    unique = [tuple(row["columns"]) for row in await fetch_rows(conn, _read_catalog("catalog/unique"), params)]
    own_key = tuple(plan.resource.get_field(name).column for name in plan.resource.key)
    for key in sorted(unique, key=lambda names: set(names) != set(own_key)):
        if all(columns[name].not_null and (name in mapped or name in generators) for name in key):
            stored = tuple((one.name, one.sql_type) for one in columns.values() if not one.generated)
            is_rewritten = (await fetch_rows(conn, _read_catalog("catalog/is_rewritten"), params))[0]["exists"]
            used = {name: generators[name] for name in key if name in generators}
            has_update_triggers = (await fetch_rows(conn, sql("undo/has_update_triggers"), params))[0]["exists"]
            return UndoTarget(table, LoggedLayout(key, stored), used, is_rewritten, has_update_triggers)
    raise InvalidInput(
        f"Cannot undo an import into {table} later: the table needs a unique key whose columns are NOT NULL and are in "
        "the file or have a default. Add such a key, or import without undo."
    )


async def check_undo_is_possible(db: Database, plan: ImportPlan) -> None:
    """Raise InvalidInput if an import with ``undo`` cannot record its rows."""
    target = await db.run(read_undo_target, plan)
    columns = [name for name, _ in target.layout.columns]
    lacking = await db.run(find_access_problems, target.table, columns, "read")
    lacking += await db.run(_find_generator_problems, plan, target)
    if lacking:
        raise InvalidInput(f"Cannot record rows of {target.table} for an undo: {describe_access_problems(lacking)}")


async def _find_generator_problems(conn: Connection, plan: ImportPlan, target: UndoTarget) -> list[AccessProblem]:
    """Return the missing privileges for key columns that the import fills, although the file does not have them."""
    if not target.generators:
        return []
    table, generated = target.table, list(target.generators)
    mapped = [plan.resource.get_field(name).column for name in plan.mapped_fields]
    params = {"schema": table.schema, "name": table.name, "columns": generated}
    problems = await find_access_problems(conn, table, [*mapped, *generated], "insert")
    for row in await fetch_rows(conn, sql("undo/denied_sequences"), params):
        role, sequence = row["role"], row["sequence"]
        reason = f"role {role} lacks USAGE on sequence {sequence}, which generates a key"
        problems.append(AccessProblem(reason, f"GRANT USAGE ON sequence {sequence} TO {role}"))
    return problems


class UndoRecorder:
    """Records the rows that a batch writes, in the transaction of the batch."""

    def __init__(self, conn: Connection, job_id: UUID, target: UndoTarget) -> None:
        self._conn = conn
        self._job_id = job_id
        self._target = target
        self._rows = RowSql(target.table, target.layout)

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns of the records."""
        return self._target.layout.key

    @property
    def has_update_triggers(self) -> bool:
        """Whether triggers can change rows after an UPDATE has returned their content."""
        return self._target.has_update_triggers

    async def generate_key_column(self, column: str, count: int) -> list[str]:
        """Return new values of a key column that the file does not have, from its default."""
        expression = SQL(self._target.generators[column].replace("%", "%%"))
        statement = load_sql_template("undo/generate").format(expression=expression)
        return [row[0] for row in await (await self._conn.execute(statement, {"count": count})).fetchall()]

    async def record_inserted(self, keys: Sequence[Sequence[str | None]]) -> None:
        """Record inserted rows, by their key columns. TargetUnusable if a trigger has changed keys."""
        parts, values = self._rows.build_unnest(keys)
        key_parts = self._rows.build_key_parts()
        row = await (await self._execute("undo/log_inserted", values, **parts, **key_parts)).fetchone()
        if row is None or row[0] != len(keys[0]) or await self._has_foreign_rows(parts, values, row[1]):
            raise TargetUnusable(f"{self._target.table}: {_KEY_CHANGED}")

    async def _has_foreign_rows(
        self, parts: Mapping[str, Composable], values: Mapping[str, Any], record_id: int
    ) -> bool:
        """Whether a key belongs to an older row, because a trigger gave the new row another key."""
        if not self._target.has_before_triggers:
            return False
        row = await (await self._execute("undo/foreign_rows", {**values, "id": record_id}, **parts)).fetchone()
        return row is not None and row[0] > 0

    async def update_and_record(self, rows: UnnestedRows, **parts: Composable) -> set[int]:
        """Update rows and record their content before and after. Return the updated rows."""
        of_rows = {"arrays": rows.arrays, "names": rows.names}
        before = self._rows.build_image_parts("b")
        row = await (await self._execute("undo/update_and_log", rows.values, **parts, **of_rows, **before)).fetchone()
        return set() if row is None or row[0] is None else {number - 1 for number in row[0]}

    async def record_existing(
        self, rows: UnnestedRows, match: Composable, differs: Composable
    ) -> tuple[int, list[int]]:
        """Lock the rows that differ, and record their content. Return the id of the record, and their indexes."""
        parts = {"arrays": rows.arrays, "names": rows.names, "match": match, "differs": differs}
        cursor = await self._execute("undo/log_existing", rows.values, **parts, **self._rows.build_image_parts())
        row = await cursor.fetchone()
        return (0, []) if row is None else (int(row[0]), [number - 1 for number in row[1]])

    async def record_updated(self, record_id: int) -> None:
        """Add the new content to a record. TargetUnusable if a trigger has changed keys."""
        logged = self._rows.build_logged("update", with_images=False, with_hashes=False)
        parts = {"logged": logged, "match": self._rows.build_match()}
        row = await (await self._execute("undo/hash_written", {"id": record_id, "ords": None}, **parts)).fetchone()
        if row is None or not row[0]:
            raise TargetUnusable(f"{self._target.table}: {_KEY_CHANGED}")

    async def _execute(self, name: str, values: Mapping[str, Any], **parts: Composable) -> Any:
        settings = await read_text_settings(self._conn)  # it sets one, which a rollback of a savepoint resets
        layout = Jsonb(replace(self._target.layout, settings=settings).to_json())
        statement = load_sql_template(name).format(table=self._rows.table, hash=self._rows.hash, **parts)
        params = {"job_id": self._job_id, "layout": layout, **values}
        return await self._conn.execute(statement, params, prepare=False)
