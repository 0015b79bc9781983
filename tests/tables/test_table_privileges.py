"""Missing privileges of a role are reported before any write."""

import pytest

from support import rows
from tidemill.store.database import Database
from tidemill.tables.introspection.table_introspection import (
    TableAccess,
    describe_access_problems,
    find_access_problems,
)
from tidemill.tables.resource import TableName

TABLE = TableName("shop", "users")


@pytest.fixture
async def clerk(db: Database) -> str:
    for statement in (
        "DROP ROLE IF EXISTS clerk",
        "CREATE ROLE clerk",
        "CREATE SCHEMA shop",
        'CREATE TABLE shop.users (id serial, email text, "Name" text)',
    ):
        await rows(db, statement)
    return "clerk"


async def lacks(db: Database, mode: TableAccess, *columns: str, setting: str = "") -> list[str]:
    async with db.transaction() as conn:
        await conn.execute(f"SET LOCAL ROLE clerk; {setting}".encode(), prepare=False)
        return [problem.reason for problem in await find_access_problems(conn, TABLE, columns, mode)]


async def test_table_owner_lacks_no_privileges(db: Database, clerk: str) -> None:
    async with db.transaction() as conn:
        assert await find_access_problems(conn, TABLE, ["id", "email", "Name"], "upsert") == []
        (problem,) = await find_access_problems(conn, TableName("shop", "gone"), ["id"], "read")
    assert describe_access_problems([problem]) == "table shop.gone does not exist"


async def test_shown_grants_remove_missing_privileges(db: Database, clerk: str) -> None:
    async with db.transaction() as conn:
        await conn.execute("SET LOCAL ROLE clerk")
        described = describe_access_problems(await find_access_problems(conn, TABLE, ["email", "Name"], "upsert"))
    reasons, _, grants = described.partition(". As the owner of the table, run: ")
    assert reasons.count("; ") == 4
    assert 'GRANT INSERT ("Name", email) ON shop.users TO clerk;' in grants
    for grant in filter(None, grants.split(";")):
        await rows(db, grant)
    assert await lacks(db, "upsert", "email", "Name") == []


async def test_missing_privileges_are_listed_per_schema_column_and_sequence(db: Database, clerk: str) -> None:
    assert await lacks(db, "upsert", "email", "Name") == [
        "role clerk lacks USAGE on schema shop",
        'role clerk lacks INSERT ("Name", email) on shop.users',
        'role clerk lacks SELECT ("Name", email) on shop.users',
        'role clerk lacks UPDATE ("Name", email) on shop.users',
        "role clerk lacks USAGE on sequence shop.users_id_seq, which is the default of a column",
    ]
    await rows(db, "GRANT USAGE ON SCHEMA shop TO clerk")
    await rows(db, 'GRANT INSERT (id, email, "Name"), SELECT (email), UPDATE ON shop.users TO clerk')
    assert await lacks(db, "insert", "id", "email", "Name") == [], "a column that is given asks no sequence"
    assert await lacks(db, "read", "email", "Name") == ['role clerk lacks SELECT ("Name") on shop.users']
    assert await lacks(db, "upsert", "id", "email") == ["role clerk lacks SELECT (id) on shop.users"]


async def test_row_level_security_and_read_only_mode_are_reported(db: Database, clerk: str) -> None:
    await rows(db, "GRANT USAGE ON SCHEMA shop TO clerk")
    await rows(db, "GRANT ALL ON shop.users, shop.users_id_seq TO clerk")
    assert await lacks(db, "upsert", "email") == []
    await rows(db, "ALTER TABLE shop.users ENABLE ROW LEVEL SECURITY")
    prefix = "row-level security on shop.users applies to role clerk, "
    assert await lacks(db, "insert", "email") == [prefix + "so COPY cannot write to the table"]
    assert await lacks(db, "read", "email") == [prefix + "which cannot see every row"]
    await rows(db, "ALTER ROLE clerk BYPASSRLS")
    assert await lacks(db, "insert", "email", setting="SET LOCAL transaction_read_only = on") == [
        "transactions of role clerk are read-only in this database"
    ]
    assert await lacks(db, "read", "email", setting="SET LOCAL transaction_read_only = on") == []
