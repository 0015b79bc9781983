"""An actor that performs random operations on shared jobs, with its own connection."""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from support import close_job_as, job_of, reclaim_without_pauses, rows, settle, try_take, verdict
from tidemill.core.batch import Lease, split_evenly, split_off_suspects
from tidemill.core.decide import Verdict
from tidemill.core.errors import Conflict, UnknownJob
from tidemill.core.job import Item
from tidemill.core.status import ItemStatus
from tidemill.store import batch_leases, item_records, job_lifecycle
from tidemill.store.database import Database
from tidemill.store.outcome_flush import FlushResult
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items

MAX_ATTEMPTS = 3
WORDS = [ItemStatus.DONE] * 6 + [ItemStatus.FAILED, ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.RETRY_WAIT]
AGAIN = [ItemStatus.FAILED, ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.CANCELLED]
EXPIRE = """UPDATE tidemill.batch SET lease_until = tidemill.now() - interval '1 s' WHERE id IN
(SELECT id FROM tidemill.batch WHERE job_id = %s AND state = 'leased' ORDER BY id FOR UPDATE SKIP LOCKED)"""


@dataclass
class Stage:
    """The jobs: a calm one whose items settle exactly once, wild ones, and the expected outcomes of the calm one."""

    calm: UUID
    wild: list[UUID]
    sparse: UUID
    said: dict[int, list[ItemStatus]] = field(default_factory=dict)
    did: Counter[str] = field(default_factory=Counter)
    is_over: bool = False

    @property
    def jobs(self) -> list[UUID]:
        return [self.calm, *self.wild]

    async def more_work(self) -> bool:
        """Return whether ten more operations were performed since it last returned True."""
        made = self.did["work"] - self.did["seen"]
        if made >= 10:
            self.did["seen"] = self.did["work"]
        return made >= 10

    def hear(self, lease: Lease, said: list[Verdict]) -> None:
        if lease.job_id == self.calm:
            for answer in said:
                if answer.delay is None:
                    self.said.setdefault(answer.seq, []).append(answer.status)


class Actor:
    def __init__(self, db: Database, name: str, stage: Stage, seed: str) -> None:
        self._db = db
        self._name = name
        self._stage = stage
        self._random = random.Random(seed)
        self._memories: list[tuple[Lease, list[Verdict]]] = []
        self._moves: dict[Callable[[UUID], Awaitable[None]], int] = {
            self.work: 30,
            self.give_back: 3,
            self.repeat: 4,
            self.take_away: 2,
            self.tend: 3,
            self.reprocess: 2,
            self.pause_and_resume: 1,
            self.cancel_and_revive: 1,
        }

    async def play(self, until: float) -> None:
        while time.monotonic() < until and not self._stage.is_over:
            (move,) = self._random.choices(list(self._moves), list(self._moves.values()))
            self._stage.did[move.__name__] += 1
            with suppress(Conflict, UnknownJob):  # another actor has paused, cancelled, closed or deleted it
                await move(self._random.choice(self._stage.jobs))

    async def work(self, job_id: UUID) -> None:
        """Claim a batch and flush it in parts; sometimes stop in the middle."""
        lease = await try_take(self._db, job_id, self._random.choice([1, 7, 50, 400]), self._name)
        todo = [] if lease is None else await self._db.run_async_commit(item_records.read_unsettled_items, lease)
        size = len(todo) if job_id == self._stage.sparse else self._random.choice([20, 100, 1_000])
        self._random.shuffle(todo)
        while lease is not None and todo:
            said = [self._answer(item) for item in todo[:size]]
            self._memories = [*self._memories[-20:], (lease, said)]
            if self._random.random() < 0.05 or await self._say(lease, said) is not FlushResult.APPLIED:
                return
            lease, todo = lease.with_flushed(len(said)), todo[size:]

    async def repeat(self, _: UUID) -> None:
        """Repeat an earlier flush, or send one that was abandoned."""
        if self._memories:
            result = await self._say(*self._memories.pop(self._random.randrange(len(self._memories))))
            self._stage.did[f"repeat: {result}"] += 1

    async def _say(self, lease: Lease, said: list[Verdict]) -> FlushResult:
        result = await settle(self._db, lease, said)
        if result is FlushResult.APPLIED:
            self._stage.hear(lease, said)
        return result

    def _answer(self, item: Item) -> Verdict:
        word = self._random.choice(WORDS)
        if word is ItemStatus.RETRY_WAIT and item.attempt >= MAX_ATTEMPTS:
            word = ItemStatus.FAILED
        delay = self._random.choice([0.0, 0.0, 0.2]) if word is ItemStatus.RETRY_WAIT else None
        return verdict(item.seq, word, attempts=item.attempt, delay=delay)

    async def give_back(self, job_id: UUID) -> None:
        lease = await try_take(self._db, job_id, 50, self._name)
        if lease is None:
            return
        seqs = [item.seq for item in await self._db.run_async_commit(item_records.read_unsettled_items, lease)]
        suspects = self._random.sample(seqs, min(3, len(seqs)))
        match self._random.randrange(3):
            case 0:
                await self._db.run(batch_leases.release_rest_of_batch, lease)
            case 1:
                await self._db.run(batch_leases.split_batch, lease, split_evenly(lease))
            case _:
                await self._db.run(batch_leases.split_batch, lease, split_off_suspects(lease, suspects))

    async def take_away(self, job_id: UUID) -> None:
        await rows(self._db, EXPIRE, job_id)
        await reclaim_without_pauses(self._db)

    async def tend(self, job_id: UUID) -> None:
        await self._db.run(job_lifecycle.fold_tally, job_id)
        await self._db.run(job_lifecycle.cancel_some_ready_batches)
        await self._db.run(close_job_as, job_id)
        assert (await job_of(self._db, job_id)).counts.is_consistent

    async def reprocess(self, job_id: UUID) -> None:
        if job_id != self._stage.calm:
            await self._db.run(reprocess_items, job_id, ReprocessSelection(self._random.sample(AGAIN, 2)))

    async def pause_and_resume(self, job_id: UUID) -> None:
        await self._db.run(job_lifecycle.pause_job, job_id)
        await self._db.run(job_lifecycle.resume_job, job_id)

    async def cancel_and_revive(self, job_id: UUID) -> None:
        if job_id != self._stage.calm:
            await self._db.run(job_lifecycle.cancel_job, job_id)
            await self._db.run(job_lifecycle.cancel_some_ready_batches, job_id)
            await self._db.run(close_job_as, job_id)
            await self._db.run(reprocess_items, job_id, ReprocessSelection(AGAIN))
