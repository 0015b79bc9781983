"""Tables of commands fit a terminal of 80 columns, and keep all columns and complete cells in a pipe."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from support import add_job
from tidemill.limits.config import parse_limiters
from tidemill.limits.limiter_records import declare_limiters
from tidemill.store.database import Database

if TYPE_CHECKING:
    from support.command import Tidemill

COLUMNS = 80
LIMITER = "a-limiter-with-a-long-name-of-forty-chars"
JSON_COMMANDS = [
    ["jobs"],
    ["users", "list"],
    ["keys", "list"],
    ["limiters"],
    ["sources"],
    ["scan"],
    ["quarantine"],
    ["config"],
    ["sql", "-c", "SELECT 1 AS n"],
]


def run_in_terminal(url: str, *words: str, columns: int = COLUMNS) -> list[str]:
    """Run a command on a terminal of this width, and return the printed lines without colors."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "tidemill", *words],
        env=variables | {"DATABASE_URL": url, "TERM": "xterm"},
        stdin=side,
        stdout=side,
        stderr=side,
    ) as process:
        os.close(side)
        printed = b""
        try:
            while chunk := os.read(main, 65_536):
                printed += chunk
        except OSError:  # Linux reports the end of a terminal as an error
            pass
        finally:
            os.close(main)
    assert process.returncode == 0, printed
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode()).replace("\r", "").splitlines()


@pytest.fixture
async def crowded_database(tidemill_database: str, db: Database) -> str:
    """A database with a long kind, a long status, large numbers and long names."""
    job_id = await add_job(db, 1, kind="tidemill.distribute.with.a.very.long.name.of.its.own")
    async with db.transaction() as conn:
        await conn.execute(
            "UPDATE tidemill.job SET closed_as = 'completed_with_errors', closed_at = now() WHERE id = %s", [job_id]
        )
    declared = parse_limiters({"limiters": {LIMITER: {"rate": 12_345.5, "burst": 100_000, "concurrency": 1_000}}})
    await db.run(declare_limiters, declared.values())
    return tidemill_database


async def test_tables_fit_terminal_and_keep_numbers(crowded_database: str, tidemill: "Tidemill") -> None:
    tidemill("users", "add", "a-user-with-a-very-long-name-" + "x" * 60)
    for command in (["jobs"], ["users", "list"], ["keys", "list"], ["limiters"], ["config"]):
        lines = run_in_terminal(crowded_database, *command)
        assert [line for line in lines if len(line.rstrip()) > COLUMNS] == [], command
        assert "…" not in "".join(lines), command
    jobs = run_in_terminal(crowded_database, "jobs")
    assert jobs[0].split()[:3] == ["job", "kind", "status"]
    assert "completed_with_errors" in jobs[1]
    limiters = " ".join(run_in_terminal(crowded_database, "limiters"))
    assert "12,346" in limiters
    assert "Hidden columns: " in limiters
    assert "Use --json or a wider terminal to see them." in limiters


async def test_jobs_table_prints_one_line_per_job_on_terminal(tidemill_database: str, db: Database) -> None:
    kinds = ["tidemill.import", "tidemill.distribute", "a-kind-with-exactly-30-letters"]
    for kind in kinds:
        job_id = await add_job(db, 1_000, kind=kind)
        async with db.transaction() as conn:
            await conn.execute(
                "UPDATE tidemill.job SET closed_as = 'completed_with_errors', closed_at = now() WHERE id = %s", [job_id]
            )
    _, *lines = run_in_terminal(tidemill_database, "jobs")
    assert [line.split()[1:3] for line in lines[: len(kinds)]] == [
        [kind, "completed_with_errors"] for kind in reversed(kinds)
    ]
    assert lines[len(kinds)].startswith("Hidden columns: ")


async def test_jobs_table_on_narrow_terminal_names_every_hidden_column(tidemill_database: str, db: Database) -> None:
    await add_job(db, 1, kind="tidemill.import")
    header, _, *hint = run_in_terminal(tidemill_database, "jobs", columns=40)
    named = re.findall(r"\w+", " ".join(hint).removeprefix("Hidden columns: ").partition(".")[0])
    assert sorted(header.split() + named) == sorted(
        ["job", "kind", "status", "total", "done", "failed", "open", "created"]
    )


async def test_table_on_wide_terminal_hides_no_column(crowded_database: str) -> None:
    lines = run_in_terminal(crowded_database, "limiters", columns=200)
    assert lines[0].split()[-2:] == ["throttled", "state"]
    assert "Hidden" not in "".join(lines)


def test_sql_table_hides_last_columns_on_narrow_terminal(tidemill_database: str) -> None:
    query = ", ".join(f"{10**9 + index} AS column_number_{index}" for index in range(8))
    lines = run_in_terminal(tidemill_database, "sql", "-c", f"SELECT {query}")
    assert max(map(len, lines)) <= COLUMNS
    assert "column_number_0" in lines[0]
    assert "Hidden columns: " in " ".join(lines)


@pytest.mark.parametrize("command", JSON_COMMANDS, ids=lambda words: words[0])
async def test_listing_command_prints_one_json_object_per_line(
    command: list[str], tidemill: "Tidemill", crowded_database: str
) -> None:
    lines = tidemill(*command, "--json").out.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    if command[0] not in ("sources", "scan", "quarantine", "keys"):
        assert lines


async def test_items_and_watch_and_doctor_print_json(tidemill: "Tidemill", db: Database) -> None:
    job_id = await add_job(db, 2)
    assert [json.loads(line)["seq"] for line in tidemill("items", str(job_id), "--json").out.splitlines()] == [0, 1]
    tidemill("cancel", str(job_id))
    assert json.loads(tidemill("watch", str(job_id), "--json", code=1).out.splitlines()[-1])["status"] == "cancelled"
    times = [json.loads(line)["created_at"] for line in tidemill("jobs", "--json").out.splitlines()]
    assert [time for time in times if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:", time)] == []
    said = tidemill("watch", str(job_id), code=1)
    assert said.err == ""
    assert said.out.startswith("J")
    checks = [json.loads(line) for line in tidemill("doctor", "--json", code=1).out.splitlines()]
    assert {check["status"] for check in checks} == {"ok", "failed"}  # the server of the tests runs without fsync
    assert {*checks[0]} == {"check", "status", "details"}


async def test_limiters_table_in_pipe_has_all_columns(crowded_database: str, tidemill: "Tidemill") -> None:
    header, row = tidemill("limiters").out.splitlines()
    assert header.split()[-1] == "state"
    assert LIMITER in row
