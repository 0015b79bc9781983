"""The database of the state machine: reset it, read everything, and compare it with the model."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from engine.state_machine.model import JobModel, Model
from support import rows
from tidemill.core.job import Job
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.store import job_records
from tidemill.store.database import Connection, Database
from tidemill.store.doctor import check_invariants

T = TypeVar("T")
TABLES = ("job", "job_tally", "ingest", "item", "outcome", "batch", "deleted_job")
DUMP = " UNION ALL ".join(
    f"SELECT '{table}', md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM tidemill.{table} t"
    for table in TABLES
)
EMPTY = "DO $$ BEGIN " + " ".join(f"DELETE FROM tidemill.{table};" for table in TABLES) + " END $$"
STATUSES = b"SELECT job_id, seq, status, attempts, locked_by, updated_at FROM tidemill.item_status"
FACTS = b"""SELECT id, intent, closed_as, lease_id
FROM tidemill.job JOIN tidemill.ingest ON job_id = id"""
LEFT = "SELECT count(*) FROM tidemill.{} WHERE job_id <> ALL(%s)"


class World:
    """One event loop and one small pool for a whole run of examples."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self.db = Database(url, size=2)
        self.do(self.db.__aenter__())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        self.do(self.db.__aexit__())
        self._runner.close()

    async def empty(self) -> None:
        await rows(self.db, EMPTY)

    async def dump(self) -> dict[str, str]:
        """Return a fingerprint of every row of the engine."""
        return dict(await rows(self.db, DUMP))

    async def compare(self, model: Model) -> None:
        """Check every invariant, job and item in one snapshot."""
        async with self.db.transaction() as conn:
            await conn.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", prepare=False)
            broken = [finding for finding in await check_invariants(conn) if not finding.ok]
            assert not broken, "\n".join(f"{finding.name}: {finding.details}" for finding in broken)
            await self._compare_jobs(conn, model)
            await self._compare_items(conn, model)

    async def compare_leftovers(self, model: Model) -> None:
        """Check that no row of a deleted job is left."""
        for table in ("item", "outcome", "batch", "ingest", "job_tally"):
            assert await rows(self.db, LEFT.format(table), list(model.jobs)) == [(0,)], table

    async def _compare_jobs(self, conn: Connection, model: Model) -> None:
        cursor = await conn.execute(FACTS)
        found = {row[0]: row[1:] for row in await cursor.fetchall()}
        assert found.keys() == model.jobs.keys()
        for shown in await job_records.get_jobs(conn, list(found)):
            job = model.jobs[shown.id]
            intent, closed_as, reader = found[shown.id]
            wanted = (job.closed_as, job.ingest_done, job.reader)
            assert (closed_as and JobStatus(closed_as), shown.ingest_complete, reader) == wanted
            assert job.closed_as is not None or intent == job.intent
            self._compare_counts(shown, job)

    def _compare_counts(self, shown: Job, job: JobModel) -> None:
        assert shown.counts.is_consistent
        assert shown.counts.total == len(job.items)
        counted = {status.value: getattr(shown.counts, status) for status in ItemStatus}
        assert counted == {status.value: job.counts[status] for status in ItemStatus}
        assert shown.codes == job.codes
        assert not (shown.is_closed and shown.counts.open)

    async def _compare_items(self, conn: Connection, model: Model) -> None:
        workers = {(hand.lease.job_id, seq): hand.worker for hand in model.hands for seq in hand.holds}
        found = await (await conn.execute(STATUSES)).fetchall()
        assert len(found) == sum(len(job.items) for job in model.jobs.values())
        for job_id, seq, status, attempts, worker, updated_at in found:
            job = model.jobs[job_id]
            item = job.items[seq]
            where = f"item {seq} of {job_id}"
            assert status == item.status, where
            assert worker == workers.get((job_id, seq)), where
            if not (job.sparse and status == ItemStatus.DONE):  # it has no outcome row
                assert attempts == item.attempts, where
                assert item.seen_at is None or updated_at >= item.seen_at, f"{where} was changed earlier than before"
                item.seen_at = updated_at
