"""Operations on jobs and their sources, each followed by the expected change of the model."""

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from engine.state_machine.batches import KINDS, LEASE_S, BatchVerbs
from engine.state_machine.model import ItemModel, JobModel, ReaderModel
from support import close_job_as, rows
from tidemill.core.errors import Conflict
from tidemill.core.input_source import InputBlock
from tidemill.core.status import Intent, ItemStatus
from tidemill.jobs.queries import list_items
from tidemill.store import ingestion, job_lifecycle
from tidemill.store import retention as deletes
from tidemill.store.ingestion import IngestChunk
from tidemill.store.job_lifecycle import CancelSelection, cancel_waiting_items_step
from tidemill.store.outcome_flush import FlushResult
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items

MAY_BE_WANTED = {
    Intent.PAUSE: (Intent.RUN, Intent.PAUSE),
    Intent.RUN: (Intent.PAUSE,),
    Intent.CANCEL: (Intent.RUN, Intent.PAUSE, Intent.CANCEL),
}
WISHES = {
    Intent.PAUSE: job_lifecycle.pause_job,
    Intent.RUN: job_lifecycle.resume_job,
    Intent.CANCEL: job_lifecycle.cancel_job,
}


@dataclass(frozen=True)
class Chosen:
    """Return the items that a selection matches in the model."""

    choice: ReprocessSelection

    def has(self, item: ItemModel) -> bool:
        if item.is_open or item.word not in self.choice.statuses:
            return False
        if item.seq in self.choice.excluded_seqs:
            return False
        if not item.has_row:  # items of a cancelled range have no error codes; done items of a sparse job have no rows
            named = self.choice.seqs is None or item.seq in self.choice.seqs
            return item.word is ItemStatus.CANCELLED and named and self.choice.codes is None
        if not self.choice.reset_attempts and item.word is ItemStatus.FAILED and not item.is_retryable:
            return False
        by_seq = self.choice.seqs is None or item.seq in self.choice.seqs
        is_coded = item.word is ItemStatus.FAILED and item.code in (self.choice.codes or ())
        return by_seq and (self.choice.codes is None or is_coded)


class JobVerbs(BatchVerbs):
    async def want(self, job_id: UUID, intent: Intent) -> None:
        job = self.model.jobs[job_id]
        if job.closed_as is not None or job.intent not in MAY_BE_WANTED[intent]:
            with pytest.raises(Conflict):
                await self.db.run(WISHES[intent], job_id)
        else:
            await self.db.run(WISHES[intent], job_id)
            job.intent = intent

    async def fail(self, job_id: UUID) -> None:
        job = self.model.jobs[job_id]
        may_fail = job.closed_as is None and not job.is_condemned
        assert await self.db.run(job_lifecycle.fail_job, job_id, "the test says so") == may_fail
        if may_fail:
            job.intent = Intent.FAIL

    async def police(self, job_id: UUID) -> None:
        job = self.model.jobs[job_id]
        trips = job.closed_as is None and not job.is_condemned and job.has_tripped
        assert (await self.db.run(job_lifecycle.enforce_failure_policy, job_id) is not None) == trips
        if trips:
            job.intent = Intent.FAIL

    async def cancel_condemned(self, job_id: UUID | None) -> None:
        chosen = self.model.jobs.values() if job_id is None else [self.model.jobs[job_id]]
        waiting = [item for job in chosen if job.is_condemned for item in job.items if item.place == "ready"]
        assert (await self.db.run(job_lifecycle.cancel_some_ready_batches, job_id) > 0) == bool(waiting)
        for item in waiting:
            item.cancel()

    async def finalize(self, job_id: UUID) -> None:
        job = self.model.jobs[job_id]
        closing = job.closing()
        assert await self.db.run(close_job_as, job_id) == closing
        if closing is not None:
            job.close(closing)

    async def fold(self, job_id: UUID) -> None:
        await self.db.run(job_lifecycle.fold_tally, job_id)
        assert await self.db.run(job_lifecycle.fold_tally, job_id) == 0

    async def reprocess(self, job_id: UUID, choice: ReprocessSelection) -> None:
        job = self.model.jobs[job_id]
        if job.is_condemned:
            with pytest.raises(Conflict):
                await self.db.run(reprocess_items, job_id, choice)
            return
        chosen = [item for item in job.items if Chosen(choice).has(item)]
        assert await self.db.run(reprocess_items, job_id, choice) == (len(chosen), None)
        for item in chosen:
            item.reopen(reset_attempts=choice.reset_attempts)
            item.has_row |= choice.seqs is not None  # it left its range for a list
        await self._learn_rows(job, choice)
        if chosen or (choice.includes_unread_source and job.has_rest):
            job.reopen(rest=choice.includes_unread_source)

    async def _learn_rows(self, job: JobModel, choice: ReprocessSelection) -> None:
        """Exclude some items: untouched ranges stay ranges, others become lists, as the engine decides."""
        if choice.excluded_seqs and choice.seqs is None:
            found = await rows(self.db, "SELECT seq FROM tidemill.outcome WHERE job_id = %s", job.id)
            has_row = {seq for (seq,) in found}
            for item in job.items:
                item.has_row |= item.seq in has_row

    async def cancel_rows(self, job_id: UUID, waiting: CancelSelection) -> None:
        job = self.model.jobs[job_id]
        if job.closed_as is not None or job.is_condemned:
            with pytest.raises(Conflict):
                await self.db.run(cancel_waiting_items_step, job_id, waiting, {})
            return
        chosen = [
            item
            for item in job.items
            if item.place == "ready"
            and item.word in waiting.statuses
            and (waiting.seqs is None or item.seq in waiting.seqs)
        ]
        assert await self.db.run(cancel_waiting_items_step, job_id, waiting, {}) == (len(chosen), None)
        for item in chosen:
            item.cancel()
            item.has_row |= waiting.seqs is not None  # it left its range

    async def delete(self, job_id: UUID) -> None:
        await self.db.run(deletes.delete_job, job_id)
        self.model.let_go((h for h in self.model.hands if h.lease.job_id == job_id), items_go_back=False)
        self.model.jobs.pop(job_id)

    async def remove_rows(self) -> None:
        for job_id in await self.db.run(deletes.list_deleted_jobs):
            assert job_id not in self.model.jobs
            while await self.db.run(deletes.delete_row_chunk_of_deleted_job, job_id):
                pass
        await self.world.compare_leftovers(self.model)

    async def list_items(self, job_id: UUID, status: ItemStatus | None, limit: int) -> None:
        """Check that the pages list every item of the status exactly once."""
        listed: list[int] = []
        after = None
        while True:
            page = await list_items(self.db, job_id, [] if status is None else [status], limit=limit, after=after)
            listed += [item["seq"] for item in page.items]
            after = page.after
            if after is None:
                break
        items = self.model.jobs[job_id].items
        assert sorted(listed) == [item.seq for item in items if status in (None, item.status)]


class SourceVerbs(JobVerbs):
    async def take_source(self, worker: str) -> None:
        expected = self.model.next_to_read()
        lease_id = uuid4()
        kinds = sorted(KINDS.values())
        lease = await self.db.run(ingestion.take_ingest_lease, kinds, lease_id=lease_id, lease=LEASE_S, worker=worker)
        assert (lease and lease.job_id) == expected
        if lease is None:
            return
        job = self.model.jobs[lease.job_id]
        assert lease.next_seq == len(job.items)
        assert lease.checkpoint == ({"at": lease.next_seq} if lease.next_seq else {})
        job.reader, job.reader_expired = lease_id, False
        self.model.readers.append(ReaderModel(job.id, lease_id, lease.next_seq))

    async def append(self, reader: ReaderModel, n: int, size: int) -> None:
        """Append the next chunk, by an ingester that may have lost its lease."""
        job = self.model.jobs.get(reader.job_id)
        may_append = job is not None and self.model.is_reading(reader) and job.is_running
        before = await self.world.dump()
        result = await self._append(reader, reader.next_seq, n, size)
        if not may_append:
            assert result is FlushResult.STALE
            assert await self.world.dump() == before
            return
        assert result is FlushResult.APPLIED
        assert job is not None
        job.add(n)
        job.reader_expired = False
        reader.last, reader.next_seq = (reader.next_seq, n), reader.next_seq + n

    async def append_again(self, reader: ReaderModel) -> None:
        """The response to the COMMIT was lost: appending the same chunk again changes nothing."""
        if reader.last is None:
            return
        before = await self.world.dump()
        result = await self._append(reader, *reader.last, size=7)
        job = self.model.jobs.get(reader.job_id)
        is_mine = job is not None and job.is_running and self.model.is_reading(reader)
        assert result is (FlushResult.ALREADY if is_mine else FlushResult.STALE)
        assert await self.world.dump() == before

    async def _append(self, reader: ReaderModel, lo: int, n: int, size: int) -> FlushResult:
        chunk = IngestChunk(lo, InputBlock([b'{"n": %d}' % seq for seq in range(lo, lo + n)], {"at": lo + n}))
        return await self.db.run(
            ingestion.append_chunk, reader.job_id, reader.lease_id, chunk, lease=LEASE_S, batch_size=size
        )

    async def expire_reader(self, reader: ReaderModel) -> None:
        query = "UPDATE tidemill.ingest SET lease_until = tidemill.now() - interval '1 s' WHERE lease_id = %s"
        await rows(self.db, query, reader.lease_id)
        if self.model.is_reading(reader):
            self.model.jobs[reader.job_id].reader_expired = True

    async def finish_source(self, reader: ReaderModel) -> None:
        await self._stop_reading(reader, at_the_end=True)

    async def release_source(self, reader: ReaderModel) -> None:
        await self._stop_reading(reader, at_the_end=False)

    async def _stop_reading(self, reader: ReaderModel, *, at_the_end: bool) -> None:
        reads = self.model.is_reading(reader)
        before = await self.world.dump()
        await self.db.run(
            ingestion.finish_ingest if at_the_end else ingestion.release_ingest_lease, reader.job_id, reader.lease_id
        )
        self.model.readers.remove(reader)
        if not reads:
            assert await self.world.dump() == before
            return
        job: JobModel = self.model.jobs[reader.job_id]
        job.reader, job.reader_expired, job.ingest_done = None, False, at_the_end
