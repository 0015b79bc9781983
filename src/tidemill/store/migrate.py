"""Runs migrations: numbered SQL files. Each runs once, under a lock, and is recorded with its checksum."""

import asyncio
import hashlib
import random
import re
import time
from dataclasses import dataclass
from importlib.resources import files

import psycopg

from tidemill.core.errors import Unavailable
from tidemill.failpoints import failpoint
from tidemill.store.database import Connection, Database
from tidemill.store.statements import sql
from tidemill.telemetry.events import emit

PARTITION_WEEKS_AHEAD = 4
# All statements on a table wait behind a migration that waits for its lock. Therefore it waits briefly, and often.
MIGRATION_LOCK_TIMEOUT_S = 1.0
MIGRATION_RETRY_PAUSE_S = 2.0
MIGRATION_BUDGET_S = 120.0
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

    Raises:
        Unavailable: Another session held the lock of a table for MIGRATION_BUDGET_S. No migration was applied.
    """
    deadline = time.monotonic() + MIGRATION_BUDGET_S
    while True:
        try:
            return await _run_missing_migrations(db)
        except psycopg.errors.LockNotAvailable as error:
            pause = MIGRATION_RETRY_PAUSE_S * (0.5 + random.random())  # noqa: S311  spreads concurrent calls
            if time.monotonic() + pause > deadline:
                raise Unavailable(await _describe_lock_holder(db)) from error
            emit("migration.blocked", seconds_left=round(deadline - time.monotonic()), error=str(error).strip())
        await asyncio.sleep(pause)


async def _run_missing_migrations(db: Database) -> list[str]:
    async with db.transaction(bounded=False, lock_timeout_s=MIGRATION_LOCK_TIMEOUT_S) as conn:
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
            failpoint("migrate.executed")
            await conn.execute(sql("migration/record"), {"name": migration.name, "checksum": migration.checksum})
            failpoint("migrate.recorded")
        for week in range(PARTITION_WEEKS_AHEAD + 1):
            await conn.execute(sql("partition/ensure"), {"days": 7 * week})
        failpoint("migrate.before_commit")
    return [migration.name for migration in new]


async def _describe_lock_holder(db: Database) -> str:
    """Return the message about the session that has held a lock on Tidemill's tables for the longest time."""
    message = f"Migrations could not lock the tables of Tidemill for {MIGRATION_BUDGET_S:g} s. "
    async with db.connection() as conn:
        cursor = await conn.execute(sql("migration/lock_holder"), prepare=False)
        row = await cursor.fetchone()
    if row is None:
        return message + "Run `tidemill migrate` again."
    pid, name, seconds = row
    return message + (
        f'Session {pid} ("{name}") has had a transaction open for {seconds:.0f} s. '
        "Wait until it ends or end it, then run `tidemill migrate` again."
    )


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
            raise Unavailable(
                f"The database schema is newer than this version of Tidemill: it has migration {name}. "
                "Upgrade Tidemill."
            )
        if known[name] != checksum:
            raise Unavailable(
                f"Migration {name} was changed after it was applied to this database. Install a release of Tidemill."
            )
