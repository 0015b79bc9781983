"""Operations on batches, each followed by the expected change of the model."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from engine.state_machine.database import World
from engine.state_machine.model import HandModel, JobModel, Model
from support import add_job, reclaim_without_pauses, rows
from tidemill.core.batch import BatchPart, Lease
from tidemill.core.decide import Verdict
from tidemill.core.input_source import SourceReference
from tidemill.core.status import Intent
from tidemill.store import batch_leases, item_records
from tidemill.store import batch_leases as claims
from tidemill.store.outcome_flush import FlushResult, flush_outcomes
from tidemill.testing.drain import make_batches_due

KINDS = {False: "dense", True: "sparse"}
LEASE_S = 300.0


class BatchVerbs:
    def __init__(self, world: World) -> None:
        self.world = world
        self.db = world.db
        self.model = Model()

    async def submit(self, n: int | None, *, sparse: bool, size: int, policy: dict[str, object], priority: int) -> UUID:
        """Submit a job with n inputs, or with a source if n is not given."""
        source = SourceReference(blob="somewhere") if n is None else None
        options = {"sparse": sparse, "batch_size": size, "policy": policy, "priority": priority, "source": source}
        job_id = await add_job(self.db, n or 0, KINDS[sparse], **options)
        self.model.jobs[job_id] = JobModel(job_id, sparse, policy, priority, ingest_done=n is not None)
        self.model.jobs[job_id].add(n or 0)
        return job_id

    async def claim(self, job_id: UUID, wanted: int, worker: str) -> HandModel | None:
        job = self.model.jobs[job_id]
        claimable = job.is_claimable
        lease_id = uuid4()
        ask = {"item_count": wanted, "lease_id": lease_id, "lease_seconds": LEASE_S, "worker": worker}
        lease = await self.db.run_async_commit(claims.claim_batch, claims.BatchClaim(job_id, **ask))  # type: ignore[arg-type]
        assert (lease is not None) == claimable, "a claim succeeds if and only if a batch is due"
        if lease is None:
            return None
        hand = HandModel(lease, worker, await self._read(lease))
        self._check_size(lease, wanted)
        taken = list(self.model.held(hand))
        assert all(item.place == "ready" and item.due for item in taken), "only waiting and due items are claimed"
        for item in taken:
            item.place = "leased"
        self.model.hands.append(hand)
        return hand

    async def claim_again(self, hand: HandModel) -> None:
        """The response to a claim was lost: claiming again with the same lease returns the same batch."""
        ask = {"item_count": 1, "lease_id": hand.lease.lease_id, "lease_seconds": LEASE_S, "worker": hand.worker}
        before = await self.world.dump()
        lease = await self.db.run_async_commit(claims.claim_batch, claims.BatchClaim(hand.lease.job_id, **ask))  # type: ignore[arg-type]
        assert lease is not None
        assert await self._read(lease) == hand.holds
        assert await self.world.dump() == before

    async def _read(self, lease: Lease) -> set[int]:
        read = await self.db.run_async_commit(item_records.read_unsettled_items, lease)
        assert len(read) == lease.open, "the lease has the right number of open items"
        known = self.model.jobs[lease.job_id].items
        assert all(item.attempt == known[item.seq].attempts + 1 for item in read)
        return {item.seq for item in read}

    def _check_size(self, lease: Lease, wanted: int) -> None:
        if lease.isolated and (lease.is_list or lease.is_untouched_range):
            assert lease.open == 1, "a suspect runs alone"
        elif lease.is_list:
            assert lease.open <= wanted
        elif lease.is_untouched_range:
            assert lease.open <= wanted * 1.5

    async def flush(self, hand: HandModel, verdicts: list[Verdict]) -> None:
        job = self.model.jobs[hand.lease.job_id]
        result = await self._say(hand.lease, verdicts)
        assert result is FlushResult.APPLIED
        hand.last = (hand.lease, verdicts)
        hand.lease, hand.expired = hand.lease.with_flushed(len(verdicts)), False
        for verdict in verdicts:
            job.items[verdict.seq].settle(verdict, sparse=job.sparse)
            hand.holds.remove(verdict.seq)
        if not hand.holds:
            self.model.let_go([hand])

    async def flush_again(self, hand: HandModel) -> None:
        """The response to the COMMIT was lost: repeating the flush changes nothing."""
        assert hand.last is not None
        lease, verdicts = hand.last
        before = await self.world.dump()
        result = await self._say(lease, verdicts)
        assert result is not FlushResult.APPLIED
        is_mine = hand in self.model.hands or (not hand.holds and lease.job_id in self.model.jobs)
        assert result is FlushResult.ALREADY or not is_mine
        assert await self.world.dump() == before

    async def flush_late(self, hand: HandModel, verdicts: list[Verdict]) -> None:
        """A worker whose lease is lost changes nothing by a flush, release, split or extension."""
        before = await self.world.dump()
        assert await self._say(hand.lease, verdicts) is FlushResult.STALE
        assert await self.db.run(batch_leases.release_rest_of_batch, hand.lease) is None
        assert not await self.db.run(batch_leases.split_batch, hand.lease, [BatchPart(hand.lease.lo, hand.lease.hi)])
        assert (
            await self.db.run_async_commit(batch_leases.extend_leases, hand.worker, [hand.lease.lease_id], LEASE_S) == 0
        )
        assert await self.world.dump() == before

    async def _say(self, lease: Lease, verdicts: list[Verdict]) -> FlushResult:
        return await self.db.run(flush_outcomes, lease, verdicts, lease_s=LEASE_S)

    async def release(self, hand: HandModel, *, for_the_dead: bool, losses: int) -> None:
        result = await self.db.run(
            batch_leases.release_rest_of_batch, hand.lease, after_crash=for_the_dead, losses=losses
        )
        assert result is not None
        assert result[1] == len(hand.holds)
        self.model.let_go([hand])

    async def split(self, hand: HandModel, pieces: Sequence[BatchPart], *, for_the_dead: bool, crashes: int) -> None:
        options = {"after_crash": for_the_dead, "crashes": crashes}
        assert await self.db.run(batch_leases.split_batch, hand.lease, pieces, **options)  # type: ignore[arg-type]
        self.model.let_go([hand])

    async def look_up(self, hand: HandModel) -> Lease:
        """Return the lease as the database has it: a list without flushed items."""
        lease = await self.db.run(claims.find_leased_batch, hand.worker, hand.lease.lease_id)
        assert lease is not None
        assert replace(lease, seqs=None, losses=0) == replace(hand.lease, seqs=None, losses=0)
        assert lease.seqs is None or set(lease.seqs) == hand.holds
        return lease

    async def expire(self, hand: HandModel) -> None:
        query = "UPDATE tidemill.batch SET lease_until = tidemill.now() - interval '1 s' WHERE id = %s"
        await rows(self.db, query, hand.lease.batch_id)
        hand.expired = True

    async def sweep(self) -> None:
        lost = [hand for hand in self.model.hands if hand.expired]
        swept = await reclaim_without_pauses(self.db)
        assert sorted(row[0] for row in swept) == sorted(hand.lease.batch_id for hand in lost)
        self.model.let_go(lost)

    async def heartbeat(self, worker: str) -> None:
        mine = [hand for hand in self.model.hands if hand.worker == worker]
        kept = await self.db.run_async_commit(
            batch_leases.extend_leases, worker, [hand.lease.lease_id for hand in mine], LEASE_S
        )
        assert kept == len(mine)
        for hand in mine:
            hand.expired = False

    async def make_due(self) -> None:
        """Make retries of running jobs due; those of other jobs keep their delay in case they are reopened."""
        await self.db.run(make_batches_due)
        for job in self.model.jobs.values():
            for item in job.items if job.intent is Intent.RUN else ():
                item.due = True
