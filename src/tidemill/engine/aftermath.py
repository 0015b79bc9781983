"""What a parent does when a child is dead: save what was finished, find the suspects, give back the rest."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tidemill.domain.batch import Lease, cut_suspects
from tidemill.domain.crash import POISON_DEATHS, Cause, InHand, is_alone
from tidemill.domain.decide import poisoned, timed_out
from tidemill.domain.item import Item
from tidemill.domain.ports import Handlers
from tidemill.engine.finalize import after_batch
from tidemill.engine.logbook import Page
from tidemill.engine.process import verdict_of
from tidemill.store import ingest, jobs, leases
from tidemill.store.claim import by_lease
from tidemill.store.database import Database
from tidemill.store.flush import flush
from tidemill.telemetry.events import emit

INGEST_DEATHS = 3


class Aftermath:
    """For one dead child."""

    def __init__(self, db: Database, handlers: Handlers, worker: str, *, lease_seconds: float) -> None:
        self._db = db
        self._handlers = handlers
        self._worker = worker
        self._seconds = lease_seconds

    async def clear(self, pages: Sequence[Page], cause: Cause, now_ns: int) -> None:
        alone = is_alone(sum(len(page.in_hand()) + page.whole for page in pages))
        for page in pages:
            lease_id = page.lease_id
            if lease_id is None:
                continue
            if page.is_ingest:
                await self._clear_ingest(lease_id, cause)
            else:
                await self._clear_batch(page, lease_id, cause, now_ns, alone=alone)
            page.end()

    async def _clear_ingest(self, lease_id: UUID, cause: Cause) -> None:
        found = await self._db.run(ingest.release_for_the_dead, self._worker, lease_id)
        if found is not None and cause is Cause.CRASHED and found[1] >= INGEST_DEATHS:
            reason = f"reading the source killed its process {found[1]} times"
            await self._db.run(jobs.fail, found[0], reason)
            emit("job.failed", job=found[0], reason=reason)

    async def _clear_batch(self, page: Page, lease_id: UUID, cause: Cause, now_ns: int, *, alone: bool) -> None:
        held = await self._db.run(by_lease, self._worker, lease_id)
        if held is None:
            return  # the claim never arrived, or everything was settled
        await self._save_finished(page, held)
        held = await self._db.run(by_lease, self._worker, lease_id)
        if held is not None:
            await self._give_back(page, held, cause, now_ns, alone=alone)
            await after_batch(self._db, held.job_id, failed=1)

    async def _save_finished(self, page: Page, held: Lease) -> None:
        """Flush by flush, in the dead child's name: the fence says which of them had arrived."""
        sparse = self._handlers.get(held.kind).sparse
        for flush_no, verdicts in page.unflushed():
            lease = replace(held, flush_no=flush_no)
            await self._db.run(flush, lease, verdicts, seconds=self._seconds, sparse=sparse)

    async def _give_back(self, page: Page, held: Lease, cause: Cause, now_ns: int, *, alone: bool) -> None:
        in_hand = page.in_hand()
        if cause is Cause.STUCK:
            await self._time_out(page, held, in_hand, now_ns)
        elif cause is Cause.CRASHED and (in_hand or page.whole):
            await self._suspect(held, in_hand, alone=alone)
        else:
            losses = int(cause is not Cause.STOPPED)
            await self._db.run(leases.release, held, speaking_for_the_dead=True, losses=losses)

    async def _time_out(self, page: Page, held: Lease, in_hand: list[InHand], now_ns: int) -> None:
        """The items that were over their time have used an attempt; their neighbours have not."""
        handler = self._handlers.get(held.kind)
        limit_ns = int((page.timeout or 0) * 1e9)
        late = [hand for hand in in_hand if limit_ns and now_ns - hand.started_ns > limit_ns]
        verdicts = [
            verdict_of(
                Item(held.job_id, hand.seq, None, hand.attempt),
                timed_out(page.timeout or 0),
                handler,
                limit_ns // 10**6,
            )
            for hand in late
        ]
        if verdicts:
            await self._db.run(flush, held, verdicts, seconds=self._seconds, sparse=handler.sparse)
        if page.whole and held.open > 1:
            # A set-based handler hung on the whole batch: its items run one by one from here on.
            await self._suspect(held, in_hand, alone=False)
        elif len(verdicts) < held.open:
            losses = int(not late)  # nobody was late: the process itself hung
            await self._db.run(leases.release, held, speaking_for_the_dead=True, losses=losses)

    async def _suspect(self, held: Lease, in_hand: list[InHand], *, alone: bool) -> None:
        suspects = [hand.seq for hand in in_hand] if in_hand else list(held.seqs or range(held.lo, held.hi))
        deaths = held.crashes + 1 if alone else 0
        if deaths >= POISON_DEATHS:
            await self._poison(held, InHand(suspects[0], in_hand[0].attempt if in_hand else 1, 0), deaths)
            return
        pieces = cut_suspects(held, suspects)
        await self._db.run(leases.split, held, pieces, speaking_for_the_dead=True, crashes=deaths)

    async def _poison(self, held: Lease, hand: InHand, deaths: int) -> None:
        handler = self._handlers.get(held.kind)
        verdict = verdict_of(Item(held.job_id, hand.seq, None, hand.attempt), poisoned(deaths), handler, 0)
        verdict = replace(verdict, attempts=hand.attempt - 1)  # a death charges no attempt
        await self._db.run(flush, held, [verdict], seconds=self._seconds, sparse=handler.sparse)
        if held.open > 1:
            await self._db.run(leases.release, held, speaking_for_the_dead=True)
        emit("item.poison", job=held.job_id, seq=hand.seq)
