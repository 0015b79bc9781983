"""Result exports: the content of the file, reuse of exports, and exports without a file."""

import asyncio
import hashlib
import zipfile
from typing import Any
from uuid import UUID

import pytest

from support import add_job, file_of, job_of, rows, settle, shift_clock, take, verdict
from support.result_exports import ask, export, fetch, stored_files
from support.result_values import read_csv, read_ndjson, read_xlsx
from tidemill import Fail, Item, Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.core.errors import Conflict, InvalidInput, UnknownKind
from tidemill.core.file_format import FileFormat
from tidemill.core.kinds import EXPORT_KIND
from tidemill.core.status import ItemStatus
from tidemill.engine.maintenance_loop import MaintenanceLoop
from tidemill.exports import use_cases
from tidemill.exports.result_export import ResultExportRequest
from tidemill.exports.use_cases import open_export_file
from tidemill.files.blobs import open_blob_store
from tidemill.jobs import job_control, reprocessing
from tidemill.jobs.submission import submit_job
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.store.jsonb import encode_json
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.testing import drain


@pytest.fixture
async def job_id(mill: Mill, db: Database) -> UUID:
    """A job with ten items; items 3 and 7 fail until they run again."""
    failed_once: set[int] = set()

    @mill.handler("test", max_attempts=1)
    async def run(item: Item) -> dict[str, int]:
        if item.seq in (3, 7) and item.seq not in failed_once:
            failed_once.add(item.seq)
            raise Fail("not this time", code="flaky")
        return {"n": item.input, "square": item.input**2}

    job_id = await mill.submit_async("test", range(10))
    await drain(mill, db=db)
    return job_id


async def test_result_export_has_header_and_all_rows_in_order(job_id: UUID, mill: Mill, db: Database) -> None:
    lines = read_csv(await export(db, mill, job_id))
    assert lines[0] == ["input", "n", "square", "_row", "_status", "_error_code", "_error", "_attempts"]
    assert lines[3] == ["2", "2", "4", "3", "done", "", "", "1"]
    assert lines[4] == ["3", "", "", "4", "failed", "flaky", "not this time", "1"]
    assert [line[3] for line in lines[1:]] == [str(n) for n in range(1, 11)]


async def test_result_export_matches_reported_name_type_size_hash_and_rows(
    job_id: UUID, mill: Mill, db: Database
) -> None:
    job = await job_of(db, job_id)
    for format_, content_type in (("csv", "text/csv"), ("ndjson", "application/x-ndjson"), ("xlsx", "spreadsheetml")):
        path = await export(db, mill, job_id, format_)
        export_id, is_new = await ask(db, mill, job_id, format_)
        found = await open_export_file(db, open_blob_store(mill.settings.blobs), await job_of(db, export_id))
        found.file.close()
        assert not is_new
        assert path.name == found.name == f"{job.key}.{format_}"
        assert content_type in found.content_type
        assert (found.size, found.sha256) == (
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        [(rows_said,)] = await rows(db, "SELECT result->'rows' FROM tidemill.outcome WHERE job_id = %s", export_id)
        assert rows_said == 10


async def test_waiting_for_results_ends_when_no_worker_runs_exports(
    job_id: UUID, mill: Mill, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(use_cases, "RESULT_EXPORT_STALL_S", 0.2)
    runtime, job = make_runtime(db, mill.settings, mill.registry), await job_of(db, job_id)
    with pytest.raises(Conflict, match="no worker runs exports"):
        await runtime.open_results(job, "csv")
    export_id, is_new = await ask(db, mill, job_id)
    assert not is_new
    await job_control.pause_job(db, export_id)
    with pytest.raises(Conflict, match="it is paused"):
        await runtime.open_results(job, "csv")
    await job_control.resume_job(db, export_id)
    await drain(mill, db=db)
    with await runtime.open_results(job, "csv") as file:
        assert len(file.readlines()) == 11


async def test_result_export_filters_rows_by_status(job_id: UUID, mill: Mill, db: Database) -> None:
    path = await export(db, mill, job_id, statuses=["FAILED", "not_found"])
    assert path.name.endswith("-failed-not_found.csv")
    assert [line[3:5] for line in read_csv(path)[1:]] == [["4", "failed"], ["8", "failed"]]


async def test_identical_export_request_returns_existing_job_and_file(job_id: UUID, mill: Mill, db: Database) -> None:
    first, is_new = await ask(db, mill, job_id, statuses=["done", "failed"])
    assert is_new
    assert await ask(db, mill, job_id, statuses=["failed", "dlq", "done"]) == (first, False)
    at_once = await asyncio.gather(*(ask(db, mill, job_id, statuses=["done"]) for _ in range(20)))
    assert (len({export_id for export_id, _ in at_once}), sum(is_new for _, is_new in at_once)) == (1, 1)
    await job_control.delete_job(db, at_once[0][0])
    await drain(mill, db=db)
    assert await ask(db, mill, job_id, statuses=["failed", "done"]) == (first, False)
    assert stored_files(mill) == [await file_of(db, first)]
    asked: dict[str, Any] = {"statuses": ["done", "failed"]}
    for other in (
        {"format_": "xlsx"},
        {"statuses": ["skipped"]},
        {"spreadsheet_safe": True},
        {"columns": ["n"]},
        {"owner_id": 7},
    ):
        assert (await ask(db, mill, job_id, **asked | other))[1], other


async def test_export_request_after_reprocess_creates_new_file(job_id: UUID, mill: Mill, db: Database) -> None:
    first, _ = await ask(db, mill, job_id)
    await drain(mill, db=db)
    await reprocessing.reprocess_items(db, job_id, ReprocessSelection(statuses=[ItemStatus.FAILED]))
    meanwhile, is_new = await ask(db, mill, job_id, "ndjson")
    assert is_new
    await drain(mill, db=db)
    second, is_new = await ask(db, mill, job_id)
    assert (is_new, second != first) == (True, True)
    await drain(mill, db=db)
    assert [line[4] for line in read_csv(await fetch(db, mill, second))[1:]] == ["done"] * 10
    assert len(read_ndjson(await fetch(db, mill, meanwhile))) == 10
    assert sum(line[4] == "failed" for line in read_csv(await fetch(db, mill, first))) == 2, (
        "the first file does not change"
    )


async def test_export_request_creates_new_job_when_earlier_file_is_unavailable(
    job_id: UUID, mill: Mill, db: Database
) -> None:
    first, _ = await ask(db, mill, job_id)
    await job_control.cancel_job(db, first)
    second, is_new = await ask(db, mill, job_id)
    assert (is_new, second != first) == (True, True)
    await drain(mill, db=db)
    open_blob_store(mill.settings.blobs).remove(await file_of(db, second))
    with pytest.raises(Conflict, match=r"no longer exists\. Submit the export again"):
        await fetch(db, mill, second)
    third, is_new = await ask(db, mill, job_id)
    assert (is_new, third != second) == (True, True)
    await settle(db, await take(db, third), [verdict(0, ItemStatus.FAILED)])
    await MaintenanceLoop(db, "w1").finalize_due_jobs()
    fourth, is_new = await ask(db, mill, job_id)
    assert (is_new, fourth != third) == (True, True)
    await drain(mill, db=db)
    assert len(read_csv(await fetch(db, mill, fourth))) == 11
    await shift_clock(db, "8 days")
    fifth, is_new = await ask(db, mill, job_id)
    assert (is_new, fifth != fourth) == (True, True), "the file has expired, although cleanup has not removed it yet"


async def test_download_of_unfinished_export_is_conflict_with_reason(job_id: UUID, mill: Mill, db: Database) -> None:
    export_id, _ = await ask(db, mill, job_id)
    with pytest.raises(Conflict, match=r"has no file \(status: pending\)"):
        await fetch(db, mill, export_id)
    await job_control.cancel_job(db, export_id)
    with pytest.raises(Conflict, match=r"has no file \(status: cancelled\)"):
        await fetch(db, mill, export_id)
    with pytest.raises(Conflict, match="is not an export"):
        await fetch(db, mill, job_id)


async def test_invalid_result_export_request_is_rejected(job_id: UUID, mill: Mill, db: Database) -> None:
    with pytest.raises(InvalidInput, match=r'Unknown format "pdf"\. Use one of csv, ndjson, json, xlsx, parquet'):
        await ask(db, mill, job_id, "pdf")
    with pytest.raises(InvalidInput, match=r'"xlsx" has built-in compression'):
        await ask(db, mill, job_id, "xlsx", compression="gzip")
    with pytest.raises(InvalidInput, match='Unknown column "sqare"; did you mean "square"'):
        await ask(db, mill, job_id, columns=["n", "sqare"])
    with pytest.raises(InvalidInput, match='unknown status "lost"'):
        await ask(db, mill, job_id, statuses=["lost"])
    await rows(db, "UPDATE tidemill.job SET purged_at = tidemill.now() WHERE id = %s", job_id)
    with pytest.raises(Conflict, match="was purged"):
        await ask(db, mill, job_id)


async def test_builtin_kind_cannot_be_submitted_or_declared(mill: Mill, db: Database, job_id: UUID) -> None:
    request = ResultExportRequest(job_id, FileFormat.CSV).to_item_input()
    with pytest.raises(InvalidInput, match="is reserved"):
        await submit_job(db, Submission(EXPORT_KIND), [encode_json(request)])
    with pytest.raises(UnknownKind):
        await mill.submit_async(EXPORT_KIND, [request])
    with pytest.raises(InvalidInput, match=r'kinds that start with "tidemill\." are reserved'):
        mill.handler("tidemill.mine")(print)


async def test_unsettled_items_are_exported_with_status_and_empty_cells(mill: Mill, db: Database) -> None:
    job_id = await add_job(db, 10, kind="elsewhere", columns=("ok",), batch_size=5)
    lease = await take(db, job_id, wanted=3)
    await settle(db, lease, [verdict(0), verdict(1, ItemStatus.RETRY_WAIT, delay=3_600)])
    lines = read_csv(await export(db, mill, job_id))
    assert [line[3] for line in lines[1:]] == ["done", "retry_wait", "processing"] + ["pending"] * 7
    assert [line[1] for line in lines[1:]] == ["true"] + [""] * 9


async def test_sparse_items_without_outcome_are_exported_as_done(mill: Mill, db: Database) -> None:
    @mill.batch_handler("test", sparse=True, max_attempts=1)
    async def run(items: list[Item]) -> list[object]:
        return [Fail("bad") if item.seq == 1 else None for item in items]

    job_id = await mill.submit_async("test", [{"sku": n, "title": f"t{n}"} for n in range(4)])
    await drain(mill, db=db)
    lines = read_csv(await export(db, mill, job_id))
    assert lines[0] == ["sku", "title", "_row", "_status", "_error_code", "_error", "_attempts"]
    assert lines[2] == ["1", "t1", "2", "failed", "permanent", "bad", "1"]
    assert [line[3] for line in lines[1:]] == ["done", "failed", "done", "done"]


async def test_job_without_items_is_exported_as_header_only(mill: Mill, db: Database) -> None:
    job_id = await add_job(db, 0)
    assert read_csv(await export(db, mill, job_id)) == [
        ["input", "_row", "_status", "_error_code", "_error", "_attempts"]
    ]


async def test_exported_statuses_match_item_status_view(mill: Mill, db: Database) -> None:
    """The job has flushed, leased, waiting and skipped items."""
    job_id = await add_job(db, 60, kind="elsewhere", columns=("ok",), batch_size=10)
    for statuses in ([ItemStatus.DONE, ItemStatus.FAILED], [ItemStatus.RETRY_WAIT] * 3, [ItemStatus.SKIPPED]):
        lease = await take(db, job_id, wanted=10)
        waits = [0.0 if status is ItemStatus.RETRY_WAIT else None for status in statuses]
        verdicts = [verdict(lease.lo + n, status, delay=waits[n]) for n, status in enumerate(statuses)]
        await settle(db, lease, verdicts)
    await take(db, job_id, wanted=2)  # a list batch; one item stays in retry_wait
    lines = read_csv(await export(db, mill, job_id))
    shown = await rows(db, "SELECT status FROM tidemill.item_status WHERE job_id = %s ORDER BY seq", job_id)
    assert [line[3] for line in lines[1:]] == [status for (status,) in shown]
    assert len({status for (status,) in shown}) >= 5


async def test_exported_workbook_is_readable_by_other_readers(job_id: UUID, mill: Mill, db: Database) -> None:
    path = await export(db, mill, job_id, "xlsx")
    assert zipfile.ZipFile(path).testzip() is None
    assert read_xlsx(path)[0][1] == [0, 0, 0, 1, "done", None, None, 1]
