"""Runs migrations: numbered SQL files. Each runs once, under a lock, and is recorded with its checksum."""

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

import psycopg

from tidemill.core.errors import Unavailable
from tidemill.store.database import Connection, Database
from tidemill.store.statements import sql

PARTITION_WEEKS_AHEAD = 4
_MIGRATION_FILE_NAME = re.compile(r"^(\d{4})_\w+\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    text: bytes

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text).hexdigest()


def list_migrations() -> list[Migration]:
    folder = files("tidemill.store").joinpath("migrations")
    entries = [entry for entry in folder.iterdir() if _MIGRATION_FILE_NAME.match(entry.name)]
    return [Migration(entry.name, entry.read_bytes()) for entry in sorted(entries, key=lambda entry: entry.name)]


async def migrate_schema(db: Database) -> list[str]:
    """Run missing migrations and return their names. Safe to call from many processes.

    With a current schema it changes nothing, so that a role that owns no table can call it too: PostgreSQL checks the
    privilege to create an object before it checks whether the object exists.
    """
    async with db.transaction(bounded=False) as conn:
        await conn.execute(sql("migration/lock"))
        has_schema, has_table = await _find_schema_and_migration_table(conn)
        if not has_schema:
            await conn.execute(sql("migration/create_schema"))
        if not has_table:
            await conn.execute(sql("migration/create_table"))
        applied = await _read_applied_checksums(conn)
        new = [migration for migration in list_migrations() if migration.name not in applied]
        _check_applied_migrations(applied)
        if new:
            await check_table_owner(conn)
        for migration in new:
            await conn.execute(migration.text, prepare=False)
            await conn.execute(sql("migration/record"), {"name": migration.name, "checksum": migration.checksum})
        for week in range(PARTITION_WEEKS_AHEAD + 1):
            await conn.execute(sql("partition/ensure"), {"days": 7 * week})
    return [migration.name for migration in new]


async def check_schema(db: Database) -> None:
    """Raise Unavailable unless the schema matches this version of Tidemill exactly."""
    async with db.transaction() as conn:
        try:
            applied = await _read_applied_checksums(conn)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise Unavailable("The database has no Tidemill schema. Run `tidemill migrate`.") from None
    _check_applied_migrations(applied)
    missing = [migration.name for migration in list_migrations() if migration.name not in applied]
    if missing:
        raise Unavailable(f"The database schema lacks {', '.join(missing)}. Run `tidemill migrate`.")


async def check_table_owner(conn: Connection) -> None:
    """Raise Unavailable unless the role of the connection owns Tidemill's tables: only the owner can change them."""
    cursor = await conn.execute(sql("migration/owner"))
    row = await cursor.fetchone()
    if row is not None and not row[2]:
        role, owner, _ = row
        raise Unavailable(f'Role "{role}" does not own the Tidemill tables. Run this command as role "{owner}".')


async def _find_schema_and_migration_table(conn: Connection) -> tuple[bool, bool]:
    """Return whether the schema exists, and whether its table of migrations does."""
    cursor = await conn.execute(sql("migration/exists"))
    row = await cursor.fetchone()
    return (bool(row[0]), bool(row[1])) if row else (False, False)


async def _read_applied_checksums(conn: Connection) -> dict[str, str]:
    cursor = await conn.execute(sql("migration/list"))
    return {name: checksum for name, checksum in await cursor.fetchall()}  # noqa: C416


def _check_applied_migrations(applied: dict[str, str]) -> None:
    known = {migration.name: migration.checksum for migration in list_migrations()}
    for name, checksum in applied.items():
        if name not in known:
            raise Unavailable(f"The database schema is newer than this version of Tidemill: it has migration {name}")
        if known[name] != checksum:
            raise Unavailable(f"Migration {name} was changed after it was applied to this database")
