"""Short runs of `tidemill torture`: a run without violations, and a run that must notice a planted loss."""

import asyncio
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support import add_job, eventually, job_of, rows
from support.command import Tidemill
from tidemill.core.errors import InvalidInput
from tidemill.store.database import Database
from tidemill.torture.plan import FEATURE_JOBS
from tidemill.torture.run import Torture, TortureOptions

ROOT = Path(__file__).parents[2]
SECONDS = 15.0
# Rows of the schema itself, and files that workers remove within minutes.
NOT_COUNTED = ("duty", "unneeded_file")
TABLES = """SELECT relname FROM pg_class WHERE relnamespace = 'tidemill'::regnamespace AND relkind IN ('r', 'p')
AND NOT relispartition ORDER BY 1"""


async def count_rows(db: Database) -> dict[str, int]:
    """Return the number of rows of each table of the installation."""
    tables = [name for (name,) in await rows(db, TABLES) if name not in NOT_COUNTED]
    return {name: (await rows(db, f"SELECT count(*) FROM tidemill.{name}"))[0][0] for name in tables}


def read_page_commands() -> list[list[str]]:
    """Return the commands of the how-to page."""
    page = (ROOT / "docs/how-to/torture-test.md").read_text()
    return [shlex.split(block) for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)]


def test_short_run_of_how_to_page_loses_and_doubles_nothing(tidemill: Tidemill) -> None:
    program, *arguments = read_page_commands()[0]
    assert program == "tidemill"
    with tidemill.running(*arguments, "--json") as process:
        try:
            out, err = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            process.terminate()  # so that it ends its processes
            out, err = process.communicate(timeout=20)
    assert out, err
    report = json.loads(out)
    assert report["passed"], err
    assert process.returncode == 0
    assert (report["lost"], report["doubled"], report["stuck"], report["inconsistent"]) == (0, 0, 0, 0)
    assert set(report["faults"]) <= {"kill-child", "drop-connections", "crash-server"}
    assert sum(report["faults"].values()) >= 2
    assert report["items"] > 300


async def plant(db: Database, statement: str) -> None:
    """Change the effects of the first done item."""

    async def is_planted() -> bool:
        found = await rows(db, "SELECT to_regclass('tidemill_torture.effect') IS NOT NULL")
        return found == [(True,)] and bool(await rows(db, statement))

    await eventually(is_planted)


LOSE = """DELETE FROM tidemill_torture.effect WHERE ctid IN (SELECT ctid FROM tidemill_torture.effect LIMIT 1)
RETURNING seq"""
DOUBLE = """INSERT INTO tidemill_torture.effect SELECT * FROM tidemill_torture.effect LIMIT 1 RETURNING seq"""


async def test_run_beside_other_jobs_reports_planted_loss_and_leaves_nothing(db: Database) -> None:
    other = await add_job(db, 3)
    before = await count_rows(db)
    lines: list[str] = []
    faults = ("kill-child", "slow-link", "crash-server")
    options = TortureOptions(11, SECONDS, SECONDS, db.url, allow_existing=True, faults=faults, announce=lines.append)
    run = asyncio.create_task(Torture(options).run())
    await plant(db, LOSE)
    await plant(db, DOUBLE)
    report = await run
    assert (report.count("lost"), report.count("doubled")) == (1, 1), lines
    assert (report.count("stuck"), report.count("inconsistent")) == (0, 0), lines
    assert not report.has_passed
    assert report.skipped_faults == {"crash-server": "the database belongs to the user"}
    assert set(report.skipped_jobs) == set(FEATURE_JOBS)
    assert (await job_of(db, other)).counts.pending == 3
    assert await count_rows(db) == before
    assert await rows(db, "SELECT to_regnamespace('tidemill_torture')") == [(None,)]


async def test_command_of_how_to_page_refuses_database_with_jobs(tidemill: Tidemill, db: Database) -> None:
    await add_job(db, 1)
    _, *arguments = read_page_commands()[1]
    arguments[arguments.index("--database") + 1] = db.url
    refused = await asyncio.to_thread(tidemill, *arguments, code=2)
    assert "error: The database already has 1 job. Use another database" in refused.err


def test_unknown_fault_is_refused() -> None:
    with pytest.raises(InvalidInput, match='Unknown fault "flood"'):
        Torture(TortureOptions(1, 5.0, faults=("flood",)))
