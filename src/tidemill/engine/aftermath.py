"""What a parent does when a child is dead: save what was finished, find the suspects, give back the rest."""

from dataclasses import replace
from uuid import UUID

from tidemill.domain.batch import Lease, cut_suspects
from tidemill.domain.crash import POISON_DEATHS, Cause, is_alone
from tidemill.domain.decide import poisoned, timed_out
from tidemill.domain.item import Item
from tidemill.domain.outcome import Outcome
from tidemill.domain.ports import Handlers
from tidemill.domain.tally import Tally
from tidemill.engine import tell
from tidemill.engine.columns import ColumnsByJob
from tidemill.engine.finalize import after_batch
from tidemill.engine.flush import count, write
from tidemill.engine.logbook import Logbook, Page
from tidemill.engine.verdicts import verdict_of
from tidemill.store import ingest, jobs, leases, limiters
from tidemill.store.about import about
from tidemill.store.claim import by_lease
from tidemill.store.database import Database
from tidemill.store.flush import Flushed
from tidemill.store.items import read
from tidemill.telemetry.events import bound, emit

INGEST_DEATHS = 3
BLOCKED_S = 1.0  # without a pulse for so long, one item had the whole process to itself


class Aftermath:
    """For one dead child."""

    def __init__(self, db: Database, handlers: Handlers, worker: str, *, lease_seconds: float) -> None:
        self._db = db
        self._handlers = handlers
        self._worker = worker
        self._seconds = lease_seconds
        self._blocked = False
        self._book: Logbook  # of the dead child
        self._columns = ColumnsByJob()

    async def clear(self, book: Logbook, cause: Cause, now_ns: int) -> None:
        self._book, pages = book, book.pages
        self._blocked = now_ns - book.pulse_ns > BLOCKED_S * 1e9
        in_hand = sum(page.items_in_hand for page in pages)
        for page in pages:
            lease_id = page.lease_id
            if lease_id is None:
                continue
            if page.is_ingest:
                await self._clear_ingest(lease_id, to_blame=cause is Cause.CRASHED and not in_hand)
            else:
                await self._clear_batch(page, lease_id, cause, now_ns, alone=is_alone(in_hand))
            page.end()

    async def leave_limiters(self, child: int) -> None:
        """What it had of limiters' places is for others."""
        await self._db.run(limiters.leave_all, self._worker, child)

    async def _clear_ingest(self, lease_id: UUID, *, to_blame: bool) -> None:
        found = await self._db.run(ingest.release_for_the_dead, self._worker, lease_id, losses=int(to_blame))
        if to_blame and found is not None and found[1] >= INGEST_DEATHS:
            reason = f"reading the source killed its process {found[1]} times"
            await self._db.run(jobs.fail, found[0], reason)
            async with about(self._db, found[0]):
                emit("job.failed", job=found[0], reason=reason)

    async def _clear_batch(self, page: Page, lease_id: UUID, cause: Cause, now_ns: int, *, alone: bool) -> None:
        held = await self._db.run(by_lease, self._worker, lease_id)
        if held is None:  # the claim never arrived, or a last flush settled everything and nobody lived to count it
            for _, verdicts in page.unflushed():
                count(self._book, Tally.of(verdicts))
            return
        with bound(**held.facts):
            await self._save_finished(page, held)
            held = await self._db.run(by_lease, self._worker, lease_id)
            if held is not None:
                await self._give_back(page, held, cause, now_ns, alone=alone)
                await after_batch(self._db, held.job_id, failed=1)

    async def _save_finished(self, page: Page, held: Lease) -> None:
        """Flush by flush, in the dead child's name: the fence says which of them had arrived."""
        ahead, columns = 0, self._columns.of(held)
        for flush_no, verdicts in page.unflushed():
            columns.see_all(verdicts)
            await columns.store(self._db)
            lease = replace(held, flush_no=flush_no + ahead)
            written = await write(self._db, lease, verdicts, seconds=self._seconds)
            if written.result is not Flushed.STALE:  # one that had arrived, the child had no time to tell of
                count(self._book, tell.flushed(lease, written.verdicts, seconds=None))
            if written.result is Flushed.APPLIED:
                ahead += written.lease.flush_no - lease.flush_no - 1  # written in parts

    async def _give_back(self, page: Page, held: Lease, cause: Cause, now_ns: int, *, alone: bool) -> None:
        if cause is Cause.STUCK:
            await self._time_out(page, held, now_ns, alone=alone)
        elif cause is Cause.CRASHED and page.items_in_hand:
            await self._suspect(page, held, alone=alone)
        else:
            await self._release(held, losses=int(cause is not Cause.STOPPED))

    async def _time_out(self, page: Page, held: Lease, now_ns: int, *, alone: bool) -> None:
        """The items that were over their time have used an attempt; their neighbours have not.

        Where nobody can tell who was late — one item blocked the whole process, or a set-based handler hung on
        a batch — they run one by one from here on, and the next time it is clear.
        """
        seconds = page.timeout or 0.0
        if (page.whole and held.open > 1) or (self._blocked and not alone and page.in_hand()):
            await self._suspect(page, held, alone=False)
            return
        late = {hand.seq for hand in page.in_hand() if hand.started_ns and now_ns - hand.started_ns > seconds * 1e9}
        items = [item for item in await self._db.run(read, held) if item.seq in late or page.whole]
        if seconds and items:
            await self._settle(held, [(item, timed_out(seconds)) for item in items], round(seconds * 1000))
        else:
            await self._release(held, losses=1)  # nobody was late: the process itself hung

    async def _suspect(self, page: Page, held: Lease, *, alone: bool) -> None:
        """Suspects run alone from here on; three deaths alone are enough."""
        suspects = [hand.seq for hand in page.in_hand()] or list(held.seqs or range(held.lo, held.hi))
        deaths = held.crashes + 1 if alone else 0
        if deaths < POISON_DEATHS:
            pieces = cut_suspects(held, suspects)
            await self._db.run(leases.split, held, pieces, speaking_for_the_dead=True, crashes=deaths)
            emit("batch.split", job=held.job_id, batch=held.batch_id, pieces=len(pieces))
            return
        items = [item for item in await self._db.run(read, held) if item.seq in suspects]
        for item in items:
            item.attempt -= 1  # a death charges no attempt
            emit("item.poison", job=held.job_id, seq=item.seq)
        await self._settle(held, [(item, poisoned(deaths)) for item in items], 0)

    async def _settle(self, held: Lease, said: list[tuple[Item, Outcome]], duration_ms: int) -> None:
        """Write these outcomes in the dead child's name, and give back what is left of the batch."""
        handler = self._handlers.get(held.kind)
        verdicts = [verdict_of(item, outcome, handler, duration_ms) for item, outcome in said]
        written = await write(self._db, held, verdicts, seconds=self._seconds)
        if written.result is not Flushed.STALE:
            count(self._book, tell.flushed(held, written.verdicts, seconds=None))
        if held.open > len(verdicts):
            await self._release(held, losses=0)

    async def _release(self, held: Lease, *, losses: int) -> None:
        if await self._db.run(leases.release, held, speaking_for_the_dead=True, losses=losses) is not None:
            emit("batch.released", job=held.job_id, batch=held.batch_id, items=held.open)
