"""Replays a trace of the model with the functions of the store, and compares every row after each step."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from engine.lease_model.model_state import ModelAction, ModelFlush, ModelState
from engine.lease_model.protocol import Protocol, halve
from engine.state_machine.database import World
from support import add_job, assert_sound, close_job_as, reclaim_without_pauses, rows, verdict
from tidemill.core.batch import BatchPart, Lease
from tidemill.core.decide import Verdict
from tidemill.core.status import ItemStatus
from tidemill.store import batch_leases, item_records, job_lifecycle
from tidemill.store.outcome_flush import flush_outcomes
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items

LEASE_S = 300.0
RETRY_DELAY_S = 3_600.0
REDRIVEN = ReprocessSelection((ItemStatus.FAILED, ItemStatus.CANCELLED))
JOB = "SELECT intent, closed_as FROM tidemill.job WHERE id = %s"
TALLY = "SELECT done, failed, cancelled FROM tidemill.job_tally WHERE job_id = %s"
OUTCOMES = "SELECT seq, status, attempts, updated_at FROM tidemill.outcome WHERE job_id = %s"
BATCHES = """SELECT id, lo, hi, seqs, state, open, done, failed, cancelled, folded, lease_id, losses, isolated,
    retrying, half, not_before <= tidemill.now(), lease_until < tidemill.now(), flush_no, since
FROM tidemill.batch WHERE job_id = %s ORDER BY id"""
CLAIM_FIRST = """UPDATE tidemill.batch
SET not_before = CASE WHEN id = %s THEN '2000-01-01' ELSE greatest(not_before, '2001-01-01') END
WHERE job_id = %s AND state = 'ready'"""
EXPIRE = "UPDATE tidemill.batch SET lease_until = tidemill.now() - interval '1 s' WHERE id = %s"
MAKE_DUE = "UPDATE tidemill.batch SET not_before = tidemill.now() WHERE job_id = %s AND state = 'ready'"


@dataclass
class WorkerMemory:
    """What a worker process would remember: the claim that it sent, and the lease that it got."""

    claim: batch_leases.BatchClaim | None = None
    lease: Lease | None = None


@dataclass
class Replay:
    world: World
    protocol: Protocol = field(default_factory=Protocol)

    async def run(self, state: ModelState, actions: list[ModelAction]) -> int:
        """Replay a trace from the initial state. Return the number of steps."""
        await self.world.empty()
        self.db = self.world.db
        self.memories = [WorkerMemory() for _ in state.workers]
        self.lease_ids: dict[int, UUID] = {}
        self.updated_at: dict[int, datetime] = {}
        self.ready_since: dict[int, datetime] = {}
        self.job_id = await self._submit(state)
        self.batch_ids = [row[0] for row in await rows(self.db, BATCHES, self.job_id)]
        for step, action in enumerate(actions):
            where = f"step {step}: {action}\nof {actions}"
            after, expected = self.protocol.apply(state, action)
            answer = await getattr(self, f"_{action.verb}")(state, action, after)
            assert answer is None or answer == expected, where
            await self._compare(after, where)
            state = after
        return len(actions)

    async def _submit(self, state: ModelState) -> UUID:
        """Submit the items as batches of equal size; a smaller last one is the rest."""
        return await add_job(self.db, len(state.outcomes), batch_size=max(batch.open for batch in state.batches))

    async def _claim(self, _: ModelState, action: ModelAction, after: ModelState) -> None:
        memory, expected = self.memories[action.worker], after.workers[action.worker]
        assert expected.lease is not None
        self.lease_ids[expected.lease] = uuid4()
        claim = batch_leases.BatchClaim(
            self.job_id, self.lease_ids[expected.lease], f"w{action.worker}", action.item_count, LEASE_S
        )
        await rows(self.db, CLAIM_FIRST, self.batch_ids[action.batch], self.job_id)
        lease = await self.db.run_async_commit(batch_leases.claim_batch, claim)
        assert lease is not None, "nothing was claimed"
        memory.claim, memory.lease = claim, None if action.is_answer_lost else lease
        if not action.is_answer_lost:
            assert await self._read(lease) == expected.holds

    async def _claim_again(self, _: ModelState, action: ModelAction, after: ModelState) -> str:
        memory = self.memories[action.worker]
        assert memory.claim is not None
        lease = await self.db.run(batch_leases.find_leased_batch, memory.claim.worker, memory.claim.lease_id)
        if lease is None:
            return "lost"
        assert await self.db.run_async_commit(batch_leases.claim_batch, memory.claim) == lease
        assert await self._read(lease) == after.workers[action.worker].holds
        memory.lease = lease
        return "adopted"

    async def _read(self, lease: Lease) -> tuple[int, ...]:
        return tuple(item.seq for item in await self.db.run_async_commit(item_records.read_unsettled_items, lease))

    async def _flush(self, before: ModelState, action: ModelAction, _: ModelState) -> str:
        memory, flush = self.memories[action.worker], action.flush
        assert memory.lease is not None
        assert flush is not None
        result = await self.db.run(flush_outcomes, memory.lease, self._build_verdicts(before, flush), lease_s=LEASE_S)
        if not action.is_answer_lost:
            memory.lease = memory.lease.with_flushed(len(flush.seqs))
        return result.value

    _flush_again = _flush

    def _build_verdicts(self, before: ModelState, flush: ModelFlush) -> list[Verdict]:
        """The attempt numbers of a repeated flush do not matter: it must write nothing."""
        attempts = [outcome.attempts if (outcome := before.outcomes[seq]) else 0 for seq in flush.seqs]
        delay = RETRY_DELAY_S if flush.status == "retry_wait" else None
        return [
            verdict(seq, ItemStatus(flush.status), attempts=attempt + 1, delay=delay)
            for seq, attempt in zip(flush.seqs, attempts, strict=True)
        ]

    async def _release(self, _: ModelState, action: ModelAction, __: ModelState) -> str:
        lease = self.memories[action.worker].lease
        assert lease is not None
        released = await self.db.run(batch_leases.release_rest_of_batch, lease)
        return "stale" if released is None else "applied"

    async def _split(self, before: ModelState, action: ModelAction, _: ModelState) -> str:
        lease, worker = self.memories[action.worker].lease, before.workers[action.worker]
        assert lease is not None
        parts = [
            BatchPart(lo, hi, seqs, isolated=lease.isolated, half=seqs is not None)
            for seqs, lo, hi in halve(before.batches[worker.batch], worker.holds)
        ]
        return "applied" if await self.db.run(batch_leases.split_batch, lease, parts) else "stale"

    async def _crash(self, _: ModelState, action: ModelAction, __: ModelState) -> None:
        self.memories[action.worker] = WorkerMemory()

    async def _expire(self, _: ModelState, action: ModelAction, __: ModelState) -> None:
        await rows(self.db, EXPIRE, self.batch_ids[action.batch])

    async def _heartbeat(self, _: ModelState, action: ModelAction, __: ModelState) -> None:
        lease = self.memories[action.worker].lease
        assert lease is not None
        worker = f"w{action.worker}"
        assert await self.db.run_async_commit(batch_leases.extend_leases, worker, [lease.lease_id], LEASE_S) == 1

    async def _sweep(self, before: ModelState, _: ModelAction, __: ModelState) -> None:
        expected = {self.batch_ids[b.id] for b in before.batches if b.state == "leased" and b.has_expired}
        assert {row[0] for row in await reclaim_without_pauses(self.db)} == expected

    async def _make_due(self, *_: object) -> None:
        await rows(self.db, MAKE_DUE, self.job_id)

    async def _pause(self, *_: object) -> None:
        await self.db.run(job_lifecycle.pause_job, self.job_id)

    async def _resume(self, *_: object) -> None:
        await self.db.run(job_lifecycle.resume_job, self.job_id)

    async def _cancel(self, *_: object) -> None:
        await self.db.run(job_lifecycle.cancel_job, self.job_id)

    async def _cancel_ready(self, *_: object) -> None:
        assert await self.db.run(job_lifecycle.cancel_some_ready_batches, self.job_id)

    async def _finalize(self, *_: object) -> str:
        closed_as = await self.db.run(close_job_as, self.job_id)
        assert closed_as is not None
        return closed_as.value

    async def _fold(self, *_: object) -> None:
        await self.db.run(job_lifecycle.fold_tally, self.job_id)

    async def _redrive(self, *_: object) -> None:
        await self.db.run(reprocess_items, self.job_id, REDRIVEN)

    async def _compare(self, state: ModelState, where: str) -> None:
        assert await rows(self.db, JOB, self.job_id) == [(state.intent, state.closed_as)], where
        assert await rows(self.db, TALLY, self.job_id) == [tuple(state.tally)], where
        self._compare_outcomes(await rows(self.db, OUTCOMES, self.job_id), state, where)
        self._compare_batches(await rows(self.db, BATCHES, self.job_id), state, where)
        may_claim = state.intent == "run" and state.closed_as is None
        due = may_claim and any(batch.state == "ready" and batch.is_due for batch in state.batches)
        assert bool(await self.db.run(batch_leases.list_claimable_jobs, ["test"])) == due, where
        await assert_sound(self.db)

    def _compare_outcomes(self, found: list[tuple[Any, ...]], state: ModelState, where: str) -> None:
        stored = {seq: (status, attempts) for seq, status, attempts, _ in found}
        expected = {seq: tuple(outcome) for seq, outcome in enumerate(state.outcomes) if outcome is not None}
        assert stored == expected, where
        for seq, _, _, updated_at in found:
            assert updated_at >= self.updated_at.get(seq, updated_at), f"item {seq} was changed in the past; {where}"
            self.updated_at[seq] = updated_at

    def _compare_batches(self, found: list[tuple[Any, ...]], state: ModelState, where: str) -> None:
        self.batch_ids = [row[0] for row in found]  # the model creates batches in the same order as the store
        assert len(found) == len(state.batches), where
        for row, batch in zip(found, state.batches, strict=True):
            *compared, is_due, has_expired, flush_no, since = row[1:]
            lease_id = None if batch.lease is None else self.lease_ids[batch.lease]
            seqs = None if batch.seqs is None else list(batch.seqs)
            content = [batch.lo, batch.hi, seqs, batch.state, batch.open, *batch.tally, batch.is_folded, lease_id]
            assert compared == [*content, batch.losses, batch.isolated, batch.retrying, batch.half], where
            if batch.state == "ready":
                assert is_due == batch.is_due, where
                assert since == self.ready_since.get(batch.id, since), f"`since` of batch {batch.id} moved; {where}"
                self.ready_since[batch.id] = since
            else:
                self.ready_since.pop(batch.id, None)
            if batch.state == "leased":
                assert (has_expired, flush_no) == (batch.has_expired, batch.flush_no), where
