"""The commands migrate, doctor and purge, the help, and error messages."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psycopg
import pytest
import typer
from typer.testing import CliRunner

from support import rows, shift_clock
from tidemill import Mill
from tidemill.cli.main import app
from tidemill.core.errors import InvalidInput
from tidemill.store.database import Database
from tidemill.store.migrate import list_migrations
from tidemill.terminal.command_options import parse_age_seconds
from tidemill.testing import drain
from tidemill.testing.throwaway_postgres import ThrowawayServer

if TYPE_CHECKING:
    from support.command import Tidemill

COMMANDS: dict[str, click.Command] = dict(typer.main.get_group(app).commands)  # type: ignore[arg-type]


def test_migrate_creates_schema_and_lists_applied_migrations(tidemill: "Tidemill", tidemill_database: str) -> None:
    assert tidemill("migrate").out == "The schema is up to date\n"
    with psycopg.connect(tidemill_database, autocommit=True) as conn:
        conn.execute("DROP SCHEMA tidemill CASCADE")
    assert "no Tidemill schema. Run `tidemill migrate`" in tidemill.refuses("jobs")
    ran = [f"Applied {migration.name}" for migration in list_migrations()]
    assert tidemill("migrate").out.splitlines() == [*ran, "The schema is up to date"]
    assert "No jobs yet" in tidemill("jobs").out


@pytest.fixture(scope="module")
def durable_server() -> Iterator[ThrowawayServer]:
    with ThrowawayServer("shared_buffers = 32MB\nmax_connections = 20\n") as server:
        yield server


async def test_doctor_reports_bad_counters_when_outcome_rows_are_missing(
    tidemill: "Tidemill", cli_mill: Mill, db: Database, durable_server: ThrowawayServer
) -> None:
    tidemill.url = durable_server.create_database()
    cli_mill = Mill(cli_mill.settings.model_copy(update={"database_url": tidemill.url}))

    @cli_mill.handler("test")
    async def run(item: object) -> None: ...

    await cli_mill.submit_async("test", range(10))
    await drain(cli_mill)
    lines = tidemill("doctor").out.splitlines()
    assert len(lines) > 10
    assert {line.split()[0] for line in lines} == {"ok"}
    with psycopg.connect(tidemill.url, autocommit=True) as conn:
        conn.execute("DELETE FROM tidemill.outcome WHERE seq = 3")
    said = tidemill("doctor", code=1).out
    assert re.search(r"^BAD +counters equal rows\n +job_id .*done 10, done_rows 9", said, re.MULTILINE)


def test_doctor_reports_server_with_fsync_off(tidemill: "Tidemill") -> None:
    said = tidemill("doctor", code=1).out
    assert re.search(r"^BAD +committed data survives a crash\n +fsync = off", said, re.MULTILINE)


async def test_purge_drops_old_weeks_of_closed_jobs_and_keeps_counts(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    key = (await cli_mill.job_async(await cli_mill.submit_async("test", [{}]))).key
    await drain(cli_mill, db=db)
    assert "Nothing to drop" in tidemill("purge", "--older-than", "2w").out
    await shift_clock(db, "60 days")
    assert re.fullmatch(r"Dropped (\d{4}w\d\d, )*\d{4}w\d\d\n", tidemill("purge", "--older-than", "2w").out)
    assert await rows(db, "SELECT 1 FROM tidemill.item") == []
    assert "1 done of 1" in tidemill("watch", key).out, "its counts are kept"
    assert "purged" in tidemill.refuses("reprocess", key, "--status", "done")


async def test_purge_keeps_week_with_open_job(tidemill: "Tidemill", cli_mill: Mill, db: Database) -> None:
    await cli_mill.submit_async("test", [{}])
    await shift_clock(db, "60 days")
    tidemill("purge", "--older-than", "1d")
    assert await rows(db, "SELECT count(*) FROM tidemill.item") == [(1,)]


def test_purge_rejects_invalid_age_option(tidemill: "Tidemill") -> None:
    assert 'Invalid age "soon"' in tidemill.refuses("purge", "--older-than", "soon")


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("30m", 1800), ("36h", 129_600), ("90D", 7_776_000), (" 1.5w ", 907_200)]
)
def test_parse_age_converts_units_to_seconds(text: str, seconds: float) -> None:
    assert parse_age_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1y", "1d2h", "infd"])
def test_parse_age_rejects_invalid_text(text: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid age"):
        parse_age_seconds(text)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_help_lists_every_option_and_description(name: str) -> None:
    said = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert said.exit_code == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.output)
    command = COMMANDS[name]
    assert (command.help or "").splitlines()[0][:60] in text
    for parameter in command.params:
        if isinstance(parameter, click.Option) or parameter.param_type_name == "option":
            assert all(spelling in text for spelling in parameter.opts), parameter.name


def test_root_help_lists_every_command(tidemill: "Tidemill") -> None:
    tidemill.anew = True
    said = tidemill("--help").out
    assert [name for name in COMMANDS if not re.search(rf"\b{name}\b", said)] == []


def test_unknown_command_or_option_exits_with_usage_error(tidemill: "Tidemill") -> None:
    assert "nope" in tidemill("nope", code=2).err
    assert "--nope" in tidemill("jobs", "--nope", code=2).err


def test_invalid_settings_stop_command_and_are_all_reported(tidemill: "Tidemill") -> None:
    tidemill.extra = {"TIDEMILL_BATCH_SIZE": "none", "TIDEMILL_ZEAL": "1"}
    said = tidemill("jobs", code=2).err
    assert said.startswith("error: Invalid settings:\n")
    assert "TIDEMILL_BATCH_SIZE" in said
    assert "TIDEMILL_ZEAL" in said


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "Cannot connect to PostgreSQL at 127.0.0.1:1/none"),
        ("not a url", "DATABASE_URL is not a valid PostgreSQL URL"),
    ],
)
def test_unreachable_or_invalid_database_url_is_reported_on_one_line(
    tidemill: "Tidemill", url: str, message: str
) -> None:
    tidemill.url = url
    assert message in tidemill.refuses("jobs")


def test_missing_database_is_reported_on_one_line(tidemill: "Tidemill", tidemill_database: str, tmp_path: Path) -> None:
    name = psycopg.conninfo.conninfo_to_dict(tidemill_database)["dbname"]
    tidemill.anew = True
    tidemill.url = tidemill_database.replace(str(name), "gone")
    assert 'database "gone" does not exist' in tidemill.refuses("jobs")
