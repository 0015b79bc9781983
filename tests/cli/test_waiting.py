"""Commands that wait for a job report that no worker serves its kind, and exit codes."""

import json
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from support import add_job
from tidemill import Mill
from tidemill.core.kinds import EXPORT_KIND
from tidemill.store import workers as worker_records
from tidemill.store.database import Database
from tidemill.testing import drain

if TYPE_CHECKING:
    import subprocess

    from support.command import Tidemill

NO_WORKER = 'No running worker serves the kind "test". The job waits until you start one: tidemill worker '
WAIT_S = 30  # the notice is immediate; a busy machine may take longer to start the command


def read_line(process: "subprocess.Popen[str]") -> str:
    """Return the first line on standard error; end the process if it stays silent."""
    assert process.stderr is not None
    timer = threading.Timer(WAIT_S, process.kill)
    timer.start()
    try:
        return process.stderr.readline()
    finally:
        timer.cancel()


@pytest.mark.parametrize("options", [[], ["--json"]])
async def test_watch_reports_missing_worker_and_keeps_waiting(
    tidemill: "Tidemill", db: Database, options: list[str]
) -> None:
    job_id = await add_job(db, 1)
    tidemill.extra = {"TIDEMILL_APP": "app:mill"}
    with tidemill.running("watch", str(job_id), *options) as process:
        assert read_line(process) == f"{NO_WORKER}app:mill\n"
        assert process.poll() is None
        tidemill("cancel", str(job_id))
        out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "cancelled" in out
    if options:
        assert [json.loads(line)["id"] for line in out.splitlines()] == [str(job_id)] * len(out.splitlines())


async def test_watch_names_placeholder_if_mill_of_kind_is_unknown(tidemill: "Tidemill", db: Database) -> None:
    job_id = await add_job(db, 1)
    with tidemill.running("watch", str(job_id)) as process:
        assert read_line(process) == f"{NO_WORKER}MODULE:NAME, where MODULE:NAME is the mill that declares this kind\n"


async def test_watch_of_built_in_kind_names_worker_without_mill(tidemill: "Tidemill", db: Database) -> None:
    job_id = await add_job(db, 1, kind=EXPORT_KIND)
    with tidemill.running("watch", str(job_id)) as process:
        assert read_line(process).endswith(f'"{EXPORT_KIND}". The job waits until you start one: tidemill worker\n')


async def test_watch_reports_nothing_if_worker_serves_kind(tidemill: "Tidemill", db: Database) -> None:
    job_id = await add_job(db, 1)
    await db.run(worker_records.register_worker, "a-worker", "host", 1, {"kinds": ["test"]})
    with tidemill.running("watch", str(job_id), "--json") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        tidemill("cancel", str(job_id))
        _, errors = process.communicate(timeout=WAIT_S)
    assert errors.strip() == ""


def test_submit_with_watch_reports_missing_worker(tidemill: "Tidemill") -> None:
    rows = tidemill.file("rows.csv", "id\n1\n")
    with tidemill.running("submit", "test", rows, "--app", "app:mill", "--watch") as process:
        assert read_line(process) == f"{NO_WORKER}app:mill\n"
        assert process.poll() is None


async def test_reprocess_and_redrive_report_missing_worker(tidemill: "Tidemill", cli_mill: Mill, db: Database) -> None:
    job_id = await cli_mill.submit_async("test", [{"as": "failed"}])
    await drain(cli_mill, db=db)
    for command in ("reprocess", "retry"):
        said = tidemill(command, str(job_id))
        assert said.out == "Requeued 1 item\n"
        assert said.err.startswith(NO_WORKER)
        await drain(cli_mill, db=db)
        assert tidemill("watch", str(job_id), code=1).err.strip() == ""


@pytest.mark.parametrize("command", ["fix", "promote"])
async def test_fix_and_promote_name_kind_of_job_that_is_no_import(
    tidemill: "Tidemill", db: Database, command: str
) -> None:
    arguments = [tidemill.file("rows.csv", "_row\n1\n")] if command == "fix" else []
    for kind, name in ((EXPORT_KIND, "an export"), ("test", 'of the kind "test"')):
        job_id = await add_job(db, 1, kind=kind)
        message = tidemill.refuses(command, str(job_id), *arguments)
        assert message.startswith("Job J")
        assert f" is {name}, not an import. Only " in message


async def test_exit_code_is_130_after_interrupt(tidemill: "Tidemill", db: Database) -> None:
    job_id = await add_job(db, 1)
    with tidemill.running("watch", str(job_id)) as process:
        read_line(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "Traceback" not in errors


async def test_exit_codes_of_success_failure_and_wrong_usage(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    good = await cli_mill.submit_async("test", [{}])
    bad = await cli_mill.submit_async("test", [{"as": "failed"}])
    await drain(cli_mill, db=db)
    tidemill("watch", str(good), code=0)
    tidemill("watch", str(bad), code=1)
    tidemill("watch", "J20000101_000001", code=2)
    tidemill("watch", code=2)
    tidemill("delete", str(good), code=1, answer="n\n")
    tidemill("delete", str(good), "--yes", code=0)
    tidemill("sql", "-c", "SELECT nothing", code=1)
