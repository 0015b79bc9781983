"""Tests that every log line about a job has the ID of the request that submitted it, in all processes."""

import os
import signal
from pathlib import Path
from typing import Any
from uuid import UUID

from support import add_job, add_rows, closed, eventually, rows
from telemetry.recorded_events import Logged
from tidemill.config import Settings
from tidemill.core.input_source import SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.store.database import Database

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# Items fail at first; one of them blocks its process until the test kills it.
HANDLER = """
    @mill.handler("test", max_attempts=2, backoff=0.05, concurrency=50)
    async def run(item):
        if item.input["n"] == 7 and not os.path.exists("killed"):
            open("begun", "w").close()
            await asyncio.sleep(60)
        if item.input["n"] % 10 == 3:
            raise Retry("again", code="throttled")
"""


TOLD = {
    "ingest.chunk",
    "ingest.completed",
    "batch.claimed",
    "batch.flushed",
    "batch.released",  # by the parent, for the dead child
    "batch.completed",
    "item.retry",
    "query.slow",
    "job.closed",
}


def about(lines: list[dict[str, Any]], job_id: UUID) -> list[dict[str, Any]]:
    return [line for line in lines if line.get("job") == str(job_id)]


def events(lines: list[dict[str, Any]]) -> set[str]:
    return {line["event"] for line in lines}


async def test_job_log_lines_carry_request_batch_and_worker(
    logged: Logged, db: Database, settings: Settings, tmp_path: Path
) -> None:
    logged.app(HANDLER)
    worker = logged.start(log_level="debug", slow_query_ms=1)
    stored = open_blob_store(settings.blobs).put(b'{"n": %d}\n' % n for n in range(400))
    source = SourceReference(blob=stored.id, format="ndjson")
    job_id = await add_rows(db, [], source=source, request_id="abc-1", traceparent=TRACE)
    other = await add_job(db, 5, request_id="xyz-2")

    async def begun() -> bool:
        return (tmp_path / "begun").exists()

    await eventually(begun)
    (tmp_path / "killed").touch()
    os.kill(logged.children(worker)[0], signal.SIGKILL)
    await closed(db, job_id)
    await closed(db, other)
    await logged.said("child.died")

    async def closing_is_told() -> bool:
        return all("job.closed" in events(about(logged.lines(), each)) for each in (job_id, other))

    await eventually(closing_is_told)
    lines = about(logged.lines(), job_id)
    assert events(lines) >= TOLD
    identity = (await logged.said("worker.started"))["worker"]
    assert {(line["request_id"], line["traceparent"], line["worker"]) for line in lines} == {("abc-1", TRACE, identity)}
    assert all(line["kind"] == "test" and line["level"] and line["timestamp"] for line in lines)
    assert all("batch" in line for line in lines if line["event"].startswith(("batch.", "item.")))
    assert {line["request_id"] for line in about(logged.lines(), other)} == {"xyz-2"}


async def test_maintenance_log_lines_carry_request_id_of_job(logged: Logged, db: Database) -> None:
    logged.app(HANDLER)
    job_id = await add_job(db, 10, request_id="abc-1", policy={"mode": "fail_fast"})
    lost = (
        "UPDATE tidemill.batch SET state = 'leased', lease_id = gen_random_uuid(), worker = 'lost',"
        " lease_until = tidemill.now() - interval '1 s', failed = 1, codes = '{\"test\": 1}' WHERE job_id = %s"
    )
    await rows(db, lost, job_id)
    await rows(db, "UPDATE tidemill.ingest SET next_seq = 11 WHERE job_id = %s", job_id)
    logged.start()
    await closed(db, job_id)
    await logged.said("job.closed")
    lines = about(logged.lines(), job_id)
    assert events(lines) >= {"batch.swept", "job.failed", "job.closed"}
    assert {line["request_id"] for line in lines} == {"abc-1"}


async def test_handler_log_lines_carry_job_and_request_id(logged: Logged, db: Database) -> None:
    logged.app("""
        import structlog
        @mill.handler("test")
        async def run(item):
            structlog.get_logger().info("looked up", seq=item.seq)
    """)
    logged.start(log_level="info")
    job_id = await add_job(db, 3, request_id="abc-1")
    await closed(db, job_id)
    said = [line for line in logged.lines() if line["event"] == "looked up"]
    assert [line["seq"] for line in said] == [0, 1, 2]
    assert {(line["job"], line["request_id"], line["child"]) for line in said} == {(str(job_id), "abc-1", 0)}
