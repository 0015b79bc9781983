"""The commands pause, resume, cancel, delete, retry and reprocess."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import assert_sound, job_of, rows
from tidemill import Mill
from tidemill.core.status import JobStatus
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.testing import drain

if TYPE_CHECKING:
    from support.command import Tidemill

BAD = {"as": "failed"}


async def key_of(cli_mill: Mill, *inputs: Any, **options: Any) -> str:
    return (await cli_mill.job_async(await cli_mill.submit_async("test", inputs, **options))).key


async def test_pause_and_resume_commands_change_job_and_reject_wrong_status(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    key = await key_of(cli_mill, {}, {})
    assert "cannot be resumed" in tidemill.refuses("resume", key)
    assert tidemill("pause", key).out == f"{key} paused\n"
    await drain(cli_mill, db=db)
    assert "paused" in tidemill("jobs").out
    tidemill("pause", key)
    assert tidemill("resume", key).out == f"{key} resumed\n"
    await drain(cli_mill, db=db)
    tidemill("watch", key)
    assert f"Job {key} is completed and cannot be paused" in tidemill.refuses("pause", key)
    assert "cannot be cancelled" in tidemill.refuses("cancel", key)


async def test_cancelled_job_items_are_requeued_by_reprocess_not_redrive(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    key = await key_of(cli_mill, {}, {}, {})
    assert tidemill("cancel", key).out == f"{key} cancelling\n"
    assert "cancelled" in tidemill("watch", key, code=1).out
    assert "cannot be resumed" in tidemill.refuses("resume", key)
    assert len(tidemill("items", key, "--status", "canceled").out.splitlines()) == 3
    assert tidemill("retry", key).out == "Requeued 0 items\n", "items that the user cancelled are not retried"
    assert tidemill("reprocess", key, "--status", "cancelled").out == "Requeued 3 items\n"
    await drain(cli_mill, db=db)
    assert "3 done of 3" in tidemill("watch", key).out
    await assert_sound(db)


async def test_reprocess_of_job_cancelled_before_its_file_was_read_reports_reopened_job(
    tidemill: "Tidemill", cli_mill: Mill, db: Database, tmp_path: Path
) -> None:
    await db.run(workers.register_kinds, cli_mill.registry.create_all())
    file = tmp_path / "rows.csv"
    file.write_text("n\n1\n2\n")
    key = tidemill("submit", "test", str(file)).out.strip()
    tidemill("cancel", key)
    assert "cancelled" in tidemill("watch", key, code=1).out
    said = tidemill("reprocess", key, "--status", "cancelled").out
    assert said == f"Reopened {key}: workers will resume reading its file\nRequeued 0 items\n"
    await drain(cli_mill, db=db)
    assert "2 done of 2" in tidemill("watch", key).out


async def test_reprocess_command_requeues_items_selected_by_code_seq_or_status(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    key = await key_of(cli_mill, {}, BAD, BAD | {"code": "other"}, {"as": "not_found"})
    await drain(cli_mill, db=db)
    assert tidemill("reprocess", key, "--code", "other").out == "Requeued 1 item\n"
    assert tidemill("reprocess", key, "--seq", "1", "--seq", "0").out == "Requeued 1 item\n"
    assert tidemill("reprocess", key, "--status", "success", "--status", "dlq").out == "Requeued 1 item\n"
    assert tidemill("reprocess", key).out == "Requeued 1 item\n"
    assert tidemill("reprocess", key).out == "Requeued 0 items\n"
    await assert_sound(db)
    assert "Items with status pending are not settled" in tidemill.refuses("reprocess", key, "--status", "pending")
    assert "unknown status" in tidemill.refuses("reprocess", key, "--status", "odd")
    await drain(cli_mill, db=db)
    attempts = await rows(db, "SELECT seq, attempts FROM tidemill.outcome ORDER BY seq")
    assert attempts == [(0, 1), (1, 1), (2, 1), (3, 1)]
    await db.run(workers.register_kinds, cli_mill.registry.create_all())
    # The failures are permanent.
    assert tidemill("reprocess", key, "--keep-attempts").out == "Requeued 1 item\n"
    await drain(cli_mill, db=db)
    assert await rows(db, "SELECT seq, attempts FROM tidemill.outcome ORDER BY seq") == [(0, 1), (1, 1), (2, 1), (3, 2)]
    await assert_sound(db)


async def test_redrive_command_requeues_dead_letters_of_several_jobs(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    one, two = await key_of(cli_mill, BAD, {}), await key_of(cli_mill, BAD | {"code": "other"}, BAD)
    await drain(cli_mill, db=db)
    assert tidemill("retry", one, two, "--code", "other").out == "Requeued 1 item\n"
    assert tidemill("retry", one, two).out == "Requeued 2 items\n"
    assert 'Unknown job "nope"' in tidemill.refuses("retry", one, "nope")


async def test_delete_command_confirms_and_removes_job_with_rows(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    key, other = await key_of(cli_mill, {}, {}), await key_of(cli_mill, {})
    tidemill("delete", key, code=1, answer="n\n")
    assert (await rows(db, "SELECT count(*) FROM tidemill.job"))[0] == (2,)
    tidemill("delete", key, "--yes")
    assert "Unknown job" in tidemill.refuses("watch", key)
    tidemill("delete", other, answer="y\n")
    assert "No jobs yet" in tidemill("jobs").out
    assert await rows(db, "SELECT 1 FROM tidemill.batch") == []


async def test_watch_command_shows_reason_when_failure_policy_fails_job(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    file = tidemill.file("rows.ndjson", '{"as": "failed"}\n' * 3 + "{}\n" * 2)
    key = tidemill("submit", "test", file, "--app", "app:mill", "--policy", "tolerate:1").out.strip()
    await drain(cli_mill, db=db)
    said = tidemill("watch", key, code=1).out
    assert "failed" in said
    assert "the failure policy tolerates 1" in said
    (job_id,) = (await rows(db, "SELECT id FROM tidemill.job"))[0]
    assert (await job_of(db, job_id)).status is JobStatus.FAILED
    await assert_sound(db)


async def test_watch_command_shows_reason_when_source_is_unreadable(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    file = tidemill.file("rows.csv", "id,na\x00me\n1,2\n")
    key = tidemill("submit", "test", file, "--app", "app:mill").out.strip()
    await drain(cli_mill, db=db)
    assert "Cannot read the header as CSV: Row contains a NUL character" in tidemill("watch", key, code=1).out
