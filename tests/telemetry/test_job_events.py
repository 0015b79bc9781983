"""Tests of the events of a job from its submission to its end."""

import pytest

from support import FAILED, add_job, closed, settle, take, verdict
from telemetry.recorded_events import Told
from tidemill import Fail, Item, Mill, NotFound, Retry, Skip
from tidemill.config import Settings
from tidemill.core.errors import Conflict
from tidemill.core.input_source import SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.jobs import job_control
from tidemill.jobs.reprocessing import reprocess_items
from tidemill.jobs.submission import submit_job
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.telemetry.events import bind_fields
from tidemill.testing import drain


async def test_job_closed_event_summarizes_job(mill: Mill, db: Database, told: Told) -> None:
    @mill.handler("test", max_attempts=1, max_attempts_not_found=1)
    async def run(item: Item) -> None:
        match item.input["n"]:
            case 0 | 1:
                raise Fail("no", code="mine")
            case 2:
                raise NotFound
            case 3:
                raise Skip

    job_id, _ = await submit_job(db, Submission("test", request_id="abc-1"), (b'{"n": %d}' % n for n in range(10)))
    await drain(mill, db=db)
    (summary,) = told.of("job.closed")
    assert summary["counts"] == {"total": 10, "done": 6, "failed": 2, "not_found": 1, "skipped": 1}
    assert (summary["closed_as"], summary["error_rate"], summary["kind"]) == ("completed_with_errors", 0.2, "test")
    job = await closed(db, job_id)
    seconds = job.duration_s
    assert seconds is not None
    assert summary["duration_ms"] == round(seconds * 1000)
    assert summary["rows_per_sec"] == pytest.approx(10 / seconds, abs=0.1)
    names = list(dict.fromkeys(name for name, _ in told.about(job_id)))
    assert names == ["job.submitted", "batch.claimed", "batch.flushed", "batch.completed", "job.closed"]
    assert {fields["request_id"] for _, fields in told.about(job_id)} == {"abc-1"}


async def test_batch_completed_event_sums_outcomes_of_its_flushes(
    mill: Mill, db: Database, settings: Settings, told: Told
) -> None:
    @mill.handler("test", max_attempts=2, flush_size=5, concurrency=10)
    async def run(item: Item) -> None:
        if item.input["n"] % 10 == 0:
            raise Retry("busy", code="throttled")
        if item.input["n"] == 5:
            raise Fail

    job_id = await add_job(db, 100)
    await drain(mill, db=db, retries=False)
    every = told.of("batch.completed")
    largest = max(every, key=lambda batch: int(batch["rows"]))
    flushes = [flush for flush in told.of("batch.flushed") if flush["batch"] == largest["batch"]]
    assert len(flushes) > 1
    assert sum(flush["items"] for flush in flushes) == largest["rows"]
    assert sum(batch["rows"] for batch in every) == 100
    assert [sum(batch[name] for batch in every) for name in ("successes", "failures", "retried")] == [89, 1, 10]
    assert all(batch["rows_per_sec"] > 0 and batch["job"] == job_id for batch in every)


async def test_item_retry_event_is_emitted_once_per_flush(mill: Mill, db: Database, told: Told) -> None:
    @mill.handler("test", max_attempts=2)
    async def run(item: Item) -> None:
        raise Retry("busy", after=7, code="throttled" if item.input["n"] % 2 else "mine")

    await add_job(db, 40)
    await drain(mill, db=db, retries=False)
    retries = told.of("item.retry")
    assert len(retries) == len(told.of("batch.flushed"))
    assert sum(retry["items"] for retry in retries) == 40
    assert sum(retry["codes"]["throttled"] for retry in retries) == 20
    assert all(len(retry["decisions"]) <= 5 for retry in retries)
    assert retries[0]["decisions"][0] == {"seq": 0, "attempt": 1, "delay_s": 7.0, "code": "mine"}


async def test_batch_flushed_event_limits_number_of_error_codes(mill: Mill, db: Database, told: Told) -> None:
    @mill.handler("test", max_attempts=1)
    async def run(item: Item) -> None:
        raise Fail("no", code=f"code {item.input['n'] // 2}")

    await add_job(db, 50)
    await drain(mill, db=db)
    flushes = told.of("batch.flushed")
    assert sum(flush["failed"] for flush in flushes) == 50
    assert max(len(flush["codes"]) for flush in flushes) == 10


async def test_batch_handler_outcomes_emit_flush_split_and_completed_events(
    mill: Mill, db: Database, told: Told
) -> None:
    @mill.batch_handler("test", max_attempts=1)
    async def run(items: list[Item]) -> list[object]:
        if len(items) > 1 and any(item.seq == 3 for item in items):
            raise ValueError("it is among you")
        return [Fail("no") if item.seq == 3 else None for item in items]

    await add_job(db, 8)
    await drain(mill, db=db)
    assert sum(flush["items"] for flush in told.of("batch.flushed")) == 8
    assert sum(batch["failures"] for batch in told.of("batch.completed")) == 1
    assert [split["pieces"] for split in told.of("batch.split")] == [2, 2, 2]


async def test_ingest_completed_event_summarizes_file(mill: Mill, db: Database, settings: Settings, told: Told) -> None:
    @mill.handler("test", max_attempts=1)
    async def run(item: Item) -> None: ...

    lines = [b"rubbish\n" if n % 4 == 0 else b'{"n": 1}\n' for n in range(200)]
    source = SourceReference(blob=open_blob_store(settings.blobs).put(lines).id, format="ndjson")
    job_id, _ = await submit_job(db, Submission("test", source=source, request_id="abc-1"))
    await drain(mill, db=db)
    (read,) = told.of("ingest.completed")
    assert (read["rows"], read["total"], read["defects"], read["error_rate"]) == (200, 200, 50, 0.25)
    assert (read["job"], read["request_id"]) == (job_id, "abc-1")
    assert read["rows_per_sec"] > 0
    assert sum(chunk["hi"] - chunk["lo"] for chunk in told.of("ingest.chunk")) == 200


async def test_job_control_events_carry_request_id_of_job_and_of_caller(db: Database, told: Told) -> None:
    job_id = await add_job(db, 10, request_id="abc-1")
    with bind_fields(request_id="def-2"):
        await job_control.pause_job(db, job_id)
        await job_control.resume_job(db, job_id)
        await settle(db, await take(db, job_id, 4), [verdict(seq, FAILED) for seq in range(4)])
        await job_control.cancel_job(db, job_id)
        await reprocess_items(db, job_id, ReprocessSelection())
        await job_control.delete_job(db, job_id)
    names = ["job.paused", "job.resumed", "job.cancelled", "job.closed", "job.reprocessed", "job.deleted"]
    lines = told.about(job_id)
    assert [name for name, _ in lines] == names
    assert {(fields["request_id"], fields["by_request_id"]) for _, fields in lines} == {("abc-1", "def-2")}
    assert told.of("job.reprocessed")[0]["items"] == 4
    assert told.of("job.closed")[0]["counts"] == {"total": 10, "failed": 4, "cancelled": 6}


async def test_rejected_job_control_emits_no_event(db: Database, told: Told) -> None:
    job_id = await add_job(db, 10)
    with pytest.raises(Conflict):
        await job_control.resume_job(db, job_id)
    assert (await reprocess_items(db, job_id, ReprocessSelection())).items == 0
    assert told.about(job_id) == []


async def test_repeated_submission_emits_job_submitted_once(db: Database, told: Told) -> None:
    one, _ = await submit_job(db, Submission("test", idem_key="one"), [b"1"])
    assert await submit_job(db, Submission("test", idem_key="one"), [b"1"]) == (one, False)
    assert len(told.of("job.submitted")) == 1


async def test_handler_failed_event_has_traceback_once_per_line_of_code(mill: Mill, db: Database, told: Told) -> None:
    @mill.handler("raises", max_attempts=1)
    async def raises(item: Item) -> None:
        raise LookupError(item.input)

    job_id = await mill.submit_async("raises", list(range(50)))
    await drain(mill, db=db)
    (event,) = told.of("handler.failed")
    assert (event["job"], event["type"], event["status"], event["attempt"]) == (job_id, "LookupError", "failed", 1)
    assert event["traceback"].endswith(f"LookupError: {event['seq']}")
