"""Errors of the connection and of privileges: one sentence with a remedy, exit code 2, no traceback, no password."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql as syntax

from tidemill.testing.throwaway_postgres import ThrowawayServer

if TYPE_CHECKING:
    from support.command import Tidemill

PASSWORD = "geheim"
COMMANDS = [
    ["jobs"],
    ["worker"],
    ["serve", "--port", "0"],
    ["submit", "test", "rows.csv"],
    ["users", "list"],
    ["watch", "J20260101_000001"],
    ["doctor"],
    ["limiters"],
    ["sources"],
    ["purge", "--older-than", "1w"],
]
MIGRATING_COMMANDS = [["up", "--port", "0"], ["import", "rows.csv", "--into", "people"], ["migrate"]]
DENIED_SCHEMA = (
    "PostgreSQL denied access: permission denied for schema tidemill. "
    'Connect as the role that owns the schema "tidemill", or grant the current role the privileges in the guide '
    '"Use your own PostgreSQL".'
)


@pytest.fixture(scope="module")
def server() -> Iterator[ThrowawayServer]:
    """A server with a role that needs a password, and a role without privileges."""
    with ThrowawayServer() as started:
        rules = started.folder / "postgres" / "pg_hba.conf"
        rules.write_text(f"local all locked scram-sha-256\n{rules.read_text()}")
        with psycopg.connect(started.get_database_url("postgres"), autocommit=True) as conn:
            conn.execute(syntax.SQL("CREATE ROLE locked LOGIN PASSWORD {}").format(PASSWORD))
            conn.execute("CREATE ROLE weak LOGIN")
            conn.execute("CREATE DATABASE unmigrated")
            conn.execute("SELECT pg_reload_conf()")
        yield started


@pytest.fixture
def on_server(tidemill: "Tidemill", server: ThrowawayServer) -> "Tidemill":
    tidemill.url = server.create_database()
    tidemill.file("rows.csv", "id\n1\n")
    return tidemill


def connect_as(url: str, role: str, database: str | None = None) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return f"postgresql://{role}@/{database or parts['dbname']}?host={parts['host']}"


@pytest.mark.parametrize("command", [*COMMANDS, *MIGRATING_COMMANDS], ids=lambda words: words[0])
def test_command_reports_missing_privilege_on_schema_with_remedy(on_server: "Tidemill", command: list[str]) -> None:
    on_server.url = connect_as(on_server.url, "weak")
    assert on_server.refuses(*command) == DENIED_SCHEMA


@pytest.mark.parametrize("command", MIGRATING_COMMANDS, ids=lambda words: words[0])
def test_command_reports_missing_privilege_to_create_schema_with_remedy(
    on_server: "Tidemill", command: list[str]
) -> None:
    on_server.url = connect_as(on_server.url, "weak", "unmigrated")
    assert on_server.refuses(*command) == (
        "PostgreSQL denied access: permission denied for database unmigrated. "
        "Grant the role CREATE on the database, or run `tidemill migrate` as a role that has it."
    )


def test_command_reports_missing_privilege_on_table_with_remedy(on_server: "Tidemill") -> None:
    with psycopg.connect(on_server.url, autocommit=True) as conn:
        conn.execute("GRANT USAGE ON SCHEMA tidemill TO weak")
        conn.execute("GRANT SELECT ON ALL TABLES IN SCHEMA tidemill TO weak")
    on_server.url = connect_as(on_server.url, "weak")
    assert "No jobs yet" in on_server("jobs").out
    for command in (["users", "add", "ada"], ["worker"], ["submit", "test", "rows.csv", "--app", "app:mill"]):
        assert on_server.refuses(*command).startswith("PostgreSQL denied access: permission denied for table ")


def test_migrate_needs_no_create_privilege_if_role_owns_schema(on_server: "Tidemill") -> None:
    admin = connect_as(on_server.url, "postgres", "unmigrated")
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA tidemill AUTHORIZATION weak")
    try:
        on_server.url = connect_as(on_server.url, "weak", "unmigrated")
        assert on_server("migrate").out.endswith("The schema is up to date\n")
    finally:
        with psycopg.connect(admin, autocommit=True) as conn:
            conn.execute("DROP SCHEMA tidemill CASCADE")


def test_wrong_and_missing_password_are_reported_without_password(on_server: "Tidemill") -> None:
    url = connect_as(on_server.url, "locked")
    on_server.url = url.replace("locked@", f"locked:{PASSWORD}x@")
    message = on_server.refuses("jobs")
    assert message.endswith(
        'password authentication failed for user "locked". Check the user and the password in DATABASE_URL.'
    )
    assert PASSWORD not in message
    on_server.url = url
    assert on_server.refuses("jobs").endswith("Add the password to DATABASE_URL, or set PGPASSWORD.")


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("postgresql://ann:geheim@127.0.0.1:1/x", "Start PostgreSQL, or check the host and the port in DATABASE_URL."),
        ("postgresql://ann:geheim@/x?host=/missing", "Start PostgreSQL, or check the host in DATABASE_URL."),
        ("postgresql://ann:geheim@nothing.invalid/x", "Check the host in DATABASE_URL."),
        ("postgresql+asyncpg://ann:geheim@h/x", "Use postgresql://, without a driver name"),
        ("", "Unset it to use the embedded server, or set it to postgresql://USER@HOST/DATABASE"),
        ("ann:geheim", 'In a password, write special characters as percent codes, such as %25 for "%".'),
    ],
)
@pytest.mark.parametrize("command", [["jobs"], ["worker"], ["up", "--port", "0"], ["sql", "-c", "SELECT 1"]])
def test_unusable_database_url_gives_one_sentence_with_remedy(
    tidemill: "Tidemill", url: str, remedy: str, command: list[str]
) -> None:
    tidemill.url = url
    message = tidemill.refuses(*command)
    assert message.endswith(remedy)
    assert PASSWORD not in message


def test_connection_error_names_variable_that_is_set(tidemill: "Tidemill") -> None:
    tidemill.extra["TIDEMILL_DATABASE_URL"] = "postgresql://ann@127.0.0.1:1/x"
    assert tidemill.refuses("jobs").endswith("check the host and the port in TIDEMILL_DATABASE_URL.")


def test_unknown_database_and_role_are_reported_with_remedy(on_server: "Tidemill") -> None:
    url = on_server.url
    on_server.url = connect_as(url, "postgres", "gone")
    assert on_server.refuses("jobs").endswith(
        'database "gone" does not exist. Create the database with createdb, or check its name in DATABASE_URL.'
    )
    on_server.url = connect_as(url, "stranger")
    assert on_server.refuses("jobs").endswith('role "stranger" does not exist. Check the user in DATABASE_URL.')
