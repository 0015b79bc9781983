"""Tests that migrations run once each, in order, under a lock, and give the schema in schema.sql."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from importlib.resources import files

import psycopg
import pytest

from store.scenes import held_up
from store.schema_dump import describe
from support import add_job, rows, settle, take
from tidemill.core.errors import Unavailable
from tidemill.store import migrate as store
from tidemill.store.database import Database
from tidemill.store.migrate import PARTITION_WEEKS_AHEAD, Migration, check_schema, list_migrations, migrate_schema
from tidemill.store.retention import purge_old_weeks
from tidemill.testing.throwaway_postgres import ThrowawayServer

NAMES = [migration.name for migration in list_migrations()]


@pytest.fixture
def empty_database(tidemill_server: ThrowawayServer) -> Iterator[str]:
    """The URL of a database without the schema tidemill."""
    url = tidemill_server.create_database()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("DROP SCHEMA tidemill CASCADE")
    yield url
    tidemill_server.drop_database(url)


@pytest.fixture
async def empty(empty_database: str) -> AsyncIterator[Database]:
    async with Database(empty_database, size=2) as db:
        yield db


def schema_sql() -> bytes:
    return files("tidemill.store").joinpath("schema.sql").read_bytes()


def test_schema_sql_equals_result_of_all_migrations(tidemill_database: str, empty_database: str) -> None:
    with psycopg.connect(tidemill_database) as chain, psycopg.connect(empty_database) as whole:
        whole.execute(schema_sql())
        expected, found = describe(chain), describe(whole)
    assert len(expected) > 100
    assert found == expected


@pytest.mark.parametrize(
    "change",
    [
        "DROP INDEX tidemill.batch_cover",
        "ALTER TABLE tidemill.batch RESET (fillfactor)",
        "ALTER TABLE tidemill.job ALTER priority SET DEFAULT 1",
        "ALTER TABLE tidemill.job ALTER kind DROP NOT NULL",
        "ALTER TABLE tidemill.outcome DROP CONSTRAINT outcome_status_check",
        "ALTER TABLE tidemill.worker ADD extra text",
        "ALTER FUNCTION tidemill.now() VOLATILE",
        "DROP VIEW tidemill.item_status; CREATE VIEW tidemill.item_status AS SELECT 1 AS one",
        "CREATE SEQUENCE tidemill.extra",
        "DELETE FROM tidemill.duty",
    ],
)
def test_schema_description_changes_with_every_schema_change(tidemill_database: str, change: str) -> None:
    with psycopg.connect(tidemill_database) as conn:
        before = describe(conn)
        conn.execute(change.encode())
        assert describe(conn) != before


def test_migrations_are_numbered_without_gaps() -> None:
    assert [int(name[:4]) for name in NAMES] == list(range(1, len(NAMES) + 1))


async def test_migrate_runs_all_migrations_once_on_empty_database(empty: Database) -> None:
    assert await migrate_schema(empty) == NAMES
    assert await migrate_schema(empty) == []
    await check_schema(empty)
    made = await rows(empty, "SELECT name FROM tidemill.migration ORDER BY name")
    assert [name for (name,) in made] == NAMES


async def test_migrate_creates_partitions_for_current_and_next_weeks(empty: Database) -> None:
    await migrate_schema(empty)
    (found,) = await rows(
        empty,
        "SELECT count(*) FILTER (WHERE inhparent = 'tidemill.item'::regclass),"
        " count(*) FILTER (WHERE inhparent = 'tidemill.outcome'::regclass) FROM pg_inherits",
    )
    assert found == (PARTITION_WEEKS_AHEAD + 1, PARTITION_WEEKS_AHEAD + 1)


async def test_concurrent_migrate_calls_run_migrations_once(empty_database: str) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(Database(empty_database, size=1)) for _ in range(5)]
        ran = await asyncio.gather(*(migrate_schema(db) for db in databases))
    assert sorted(ran) == [[], [], [], [], NAMES]


async def test_failed_migration_is_rolled_back(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [*list_migrations(), Migration("9999_broken.sql", b"CREATE TABLE tidemill.half (); SELECT 1/0")]
    monkeypatch.setattr(store, "list_migrations", lambda: broken)
    with pytest.raises(psycopg.errors.DivisionByZero):
        await migrate_schema(empty)
    assert await rows(empty, "SELECT 1 FROM pg_namespace WHERE nspname = 'tidemill'") == []


async def test_new_migration_runs_on_existing_schema(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Migration("9999_new.sql", b"CREATE TABLE tidemill.fresh ()")
    monkeypatch.setattr(store, "list_migrations", lambda: [*list_migrations(), new])
    with pytest.raises(Unavailable, match=r"The database schema lacks 9999_new\.sql\. Run `tidemill migrate`"):
        await check_schema(db)
    assert await migrate_schema(db) == ["9999_new.sql"]
    await check_schema(db)


@pytest.fixture
def new_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a migration that needs an exclusive lock on the table of batches."""
    new = Migration("9999_new.sql", b"ALTER TABLE tidemill.batch ADD extra int")
    monkeypatch.setattr(store, "list_migrations", lambda: [*list_migrations(), new])
    monkeypatch.setattr(store, "MIGRATION_LOCK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(store, "MIGRATION_RETRY_PAUSE_S", 0.2)


@pytest.mark.usefixtures("new_column")
async def test_migration_behind_long_reader_does_not_block_workers(db: Database) -> None:
    job_id = await add_job(db, 10)
    async with db.transaction(snapshot=True) as reader:
        await reader.execute(b"SELECT count(*) FROM tidemill.batch")
        migration = await held_up(db, migrate_schema(db))
        lease = await asyncio.wait_for(take(db, job_id), 5)
        await asyncio.wait_for(settle(db, lease), 5)
        assert not migration.done()
    assert await asyncio.wait_for(migration, 10) == ["9999_new.sql"]


@pytest.mark.usefixtures("new_column")
async def test_migration_that_gets_no_lock_in_time_names_blocking_session(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MIGRATION_BUDGET_S", 0.5)
    async with db.transaction(snapshot=True) as reader:
        await reader.execute(b"SELECT count(*) FROM tidemill.batch")
        message = f"could not lock the tables.*Session {reader.info.backend_pid} .*tidemill migrate"
        with pytest.raises(Unavailable, match=message):
            await migrate_schema(db)
    assert await rows(db, "SELECT 1 FROM tidemill.migration WHERE name = '9999_new.sql'") == []


async def test_migration_changed_after_it_ran_is_rejected(db: Database) -> None:
    await rows(db, "UPDATE tidemill.migration SET checksum = 'other' WHERE name = %s", NAMES[0])
    for verb in (migrate_schema, check_schema):
        with pytest.raises(Unavailable, match=f"Migration {NAMES[0]} was changed after it was applied"):
            await verb(db)


async def test_schema_of_newer_version_is_rejected(db: Database) -> None:
    await rows(db, "INSERT INTO tidemill.migration VALUES ('9999_future.sql', 'x')")
    for verb in (migrate_schema, check_schema):
        with pytest.raises(
            Unavailable, match=r"newer than this version of Tidemill: it has migration 9999_future\.sql"
        ):
            await verb(db)


async def test_check_schema_on_empty_database_suggests_migrate(empty: Database) -> None:
    with pytest.raises(Unavailable, match=r"has no Tidemill schema\. Run `tidemill migrate`"):
        await check_schema(empty)


async def test_check_schema_on_foreign_schema_suggests_migrate(empty: Database) -> None:
    await rows(empty, "CREATE SCHEMA tidemill")
    with pytest.raises(Unavailable, match="has no Tidemill schema"):
        await check_schema(empty)
    assert await migrate_schema(empty) == NAMES


async def test_migrate_leaves_user_tables_unchanged(empty: Database) -> None:
    await rows(empty, "CREATE TABLE public.job (mine int)")
    await migrate_schema(empty)
    found = await rows(empty, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
    assert found == [("job",)]


@pytest.fixture
def plain_role(empty_database: str) -> Iterator[str]:
    """A role without privileges in the database."""
    with psycopg.connect(empty_database, autocommit=True) as conn:
        conn.execute("DROP ROLE IF EXISTS plain_role")
        conn.execute("CREATE ROLE plain_role LOGIN")
        yield "plain_role"
        conn.execute("DROP OWNED BY plain_role")
        conn.execute("DROP ROLE plain_role")


async def test_migrate_uses_schema_that_role_may_not_create(empty: Database, plain_role: str) -> None:
    await rows(empty, f"CREATE SCHEMA tidemill AUTHORIZATION {plain_role}")
    async with Database(psycopg.conninfo.make_conninfo(empty.url, user=plain_role), size=1) as db:
        assert await migrate_schema(db) == NAMES
        await check_schema(db)


async def test_migrate_changes_nothing_for_role_that_owns_no_table(
    empty: Database, plain_role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate_schema(empty)
    await rows(empty, f"GRANT USAGE ON SCHEMA tidemill TO {plain_role}")
    await rows(empty, f"GRANT SELECT ON tidemill.migration TO {plain_role}")
    async with Database(psycopg.conninfo.make_conninfo(empty.url, user=plain_role), size=1) as db:
        assert await migrate_schema(db) == []
        new = Migration("9999_new.sql", b"CREATE TABLE tidemill.fresh ()")
        monkeypatch.setattr(store, "list_migrations", lambda: [*list_migrations(), new])
        with pytest.raises(Unavailable, match='Role "plain_role" does not own the Tidemill tables'):
            await migrate_schema(db)
        with pytest.raises(Unavailable, match='Role "plain_role" does not own the Tidemill tables'):
            await purge_old_weeks(db, 0)
