"""Manners of all commands: the version, JSON output, tables in a pipe, and mistakes in the address of the database."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from support import add_job
from tidemill.cli.main import LazyCommands
from tidemill.store.database import Database

if TYPE_CHECKING:
    from support.command import Tidemill


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a new process, as a user would."""
    variables = {name: value for name, value in os.environ.items() if not name.endswith("DATABASE_URL")}
    return subprocess.run(
        [sys.executable, "-m", "tidemill", *words],
        env=variables | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version_option_prints_installed_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"tidemill {version('tidemill')}\n")


def test_completion_script_is_printed_for_bash() -> None:
    done = run("--show-completion", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0 or "completion" in done.stderr.lower()
    assert "--show-completion" in run("--help").stdout


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "DATABASE_URL: is empty. Unset it to use the embedded server"),
        ("postgresql+asyncpg://ann:geheim@127.0.0.1:1/x", 'has the scheme "postgresql+asyncpg". Use postgresql://'),
        ("mysql://ann:geheim@127.0.0.1:1/x", 'has the scheme "mysql". Use postgresql://'),
        ("postgresql://ann:geheim@localhost:port/x", "has an invalid port. Use a number from 1 to 65535"),
        ("postgresql://ann:ge@heim/geheim@127.0.0.1:1/x", "has an unescaped character in the password"),
        ("postgresql://ann:gehe%im@127.0.0.1:1/geheim", 'such as %25 for "%"'),
        ("postgresql://ann:geheim@127.0.0.1:1/x?sslmod=require", 'unknown option after "?". Did you mean "sslmode"?'),
        ("ann:geheim", "DATABASE_URL is not a valid PostgreSQL URL. Use postgresql://USER@HOST/DATABASE."),
        ("postgresql://ann:geheim@127.0.0.1:1/x", "Cannot connect to PostgreSQL at 127.0.0.1:1/x: Connection refused"),
    ],
)
def test_invalid_database_url_gives_remedy_without_password(url: str, message: str) -> None:
    done = run("jobs", DATABASE_URL=url)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert "geheim" not in done.stdout + done.stderr


async def test_jobs_command_prints_one_json_object_per_job(tidemill: "Tidemill", db: Database) -> None:
    older, newer = await add_job(db, 2), await add_job(db, 3)
    found = [json.loads(line) for line in tidemill("jobs", "--json").out.splitlines()]
    assert [job["id"] for job in found] == [str(newer), str(older)]
    assert found[0]["status"] == "pending"
    assert found[0]["counts"]["total"] == 3


async def test_jobs_table_is_not_wrapped_or_cut_in_pipe(tidemill_database: str, db: Database) -> None:
    kind = "a.kind.whose.name.is.longer.than.the.width.of.a.terminal." + "x" * 60
    await add_job(db, 1, kind=kind)
    done = run("jobs", DATABASE_URL=tidemill_database)
    header, line = done.stdout.splitlines()
    assert kind in line
    assert header.split() == ["job", "kind", "status", "total", "done", "failed", "open", "created"]


def test_users_and_keys_are_listed_as_json(tidemill: "Tidemill") -> None:
    tidemill("users", "add", "ada")
    users = [json.loads(line) for line in tidemill("users", "list", "--json").out.splitlines()]
    assert "ada" in [user["name"] for user in users]
    keys = [json.loads(line) for line in tidemill("keys", "list", "ada", "--json").out.splitlines()]
    assert [key["user_name"] for key in keys] == ["ada"]


async def test_watch_command_prints_changes_as_json_until_job_closes(tidemill: "Tidemill", db: Database) -> None:
    job_id = await add_job(db, 1)
    tidemill("cancel", str(job_id))
    lines = tidemill("watch", str(job_id), "--json", code=1).out.splitlines()
    assert json.loads(lines[-1])["status"] == "cancelled"
    assert [json.loads(line)["id"] for line in lines] == [str(job_id)] * len(lines)


def test_limiters_and_watches_have_json_output(tidemill: "Tidemill") -> None:
    assert tidemill("limiters", "--json").out == ""
    assert tidemill("sources", "--json").out == ""


@pytest.mark.parametrize("command", ["import", "submit", "export", "torture"])
def test_help_of_command_in_80_columns_shows_every_option_uncut(command: str) -> None:
    lines = run(command, "--help", COLUMNS="80", TERMINAL_WIDTH="80").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    shown = {word.rstrip(",") for line in lines if line.startswith("  -") for word in line.split()}
    options = {name for each in LazyCommands()[command].params for name in each.opts if name.startswith("-")}
    assert options <= shown
    column = max(len(line) - len(line.lstrip()) for line in lines if line.startswith("     "))
    assert column <= 34  # where the explanations start
