"""Recovers the work of a dead child: records finished items, isolates suspects, releases the rest."""

import time
from dataclasses import replace
from uuid import UUID

from tidemill.core.batch import Lease, split_off_suspects
from tidemill.core.child_exit import (
    OUTSIDE_KILL_MEMORY_S,
    POISON_CRASH_COUNT,
    ExitCause,
    KillCounts,
    is_only_one_item_running,
    is_uncertain_cause,
)
from tidemill.core.decide import Tally, make_poison_failure, make_timeout_retry
from tidemill.core.job import Item
from tidemill.core.kinds import HandlerLookup
from tidemill.core.outcome import Outcome
from tidemill.engine.children.shared_state import LaneState, SharedState
from tidemill.engine.flusher import tally_and_emit_flush, write_verdicts
from tidemill.engine.lane import fail_or_close_job_if_due
from tidemill.engine.learned_columns import LearnedColumnsCache
from tidemill.engine.verdicts import decide
from tidemill.failpoints import failpoint
from tidemill.limits import limiter_records
from tidemill.runtime import FindKindHooks
from tidemill.store import batch_leases, ingestion, job_lifecycle
from tidemill.store.batch_leases import find_leased_batch
from tidemill.store.database import Database
from tidemill.store.item_records import read_unsettled_items
from tidemill.store.job_events import bind_job_fields
from tidemill.store.outcome_flush import FlushResult
from tidemill.telemetry.events import bind_fields, emit

MAX_INGEST_CRASHES = 3
PULSE_LOST_AFTER_S = 1.0  # without a pulse for longer, one item blocked the whole process


class CrashSalvage:
    """Recovers the leases of dead children of one worker."""

    def __init__(
        self,
        db: Database,
        handlers: HandlerLookup,
        worker: str,
        *,
        find_kind_hooks: FindKindHooks,
        lease_seconds: float,
    ) -> None:
        self._db = db
        self._handlers = handlers
        self._find_kind_hooks = find_kind_hooks
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._was_pulse_lost = False
        self._kill_counts = KillCounts()
        self._outside_kill_at = float("-inf")
        self._shared_state: SharedState  # of the dead child
        self._learned_columns = LearnedColumnsCache()

    async def recover_leased_work(self, shared_state: SharedState, cause: ExitCause, now_ns: int) -> None:
        self._shared_state, pages = shared_state, shared_state.lanes
        self._was_pulse_lost = now_ns - shared_state.pulse_ns > PULSE_LOST_AFTER_S * 1e9
        in_hand = sum(page.running_item_count for page in pages)
        if cause is ExitCause.KILLED and all(page.lease_id is None for page in pages):
            self._outside_kill_at = time.monotonic()
        for page in pages:
            lease_id = page.lease_id
            if lease_id is None:
                continue
            if page.is_ingest:
                await self._release_ingest_or_fail_job(lease_id, is_suspect=cause is ExitCause.CRASHED and not in_hand)
            else:
                await self._recover_batch(page, lease_id, cause, now_ns, alone=is_only_one_item_running(in_hand))
            page.clear_lease()

    async def release_limiter_slots(self, child: int) -> None:
        """Release the limiter slots of a dead child."""
        await self._db.run(limiter_records.release_all_slots, self._worker, child)

    async def _release_ingest_or_fail_job(self, lease_id: UUID, *, is_suspect: bool) -> None:
        found = await self._db.run(
            ingestion.release_crashed_ingest_lease, self._worker, lease_id, losses=int(is_suspect)
        )
        if is_suspect and found is not None and found[1] >= MAX_INGEST_CRASHES:
            reason = f"Reading the source crashed the worker process {found[1]} times"
            await self._db.run(job_lifecycle.fail_job, found[0], reason)
            async with bind_job_fields(self._db, found[0]):
                emit("job.failed", job=found[0], reason=reason)

    async def _recover_batch(
        self, page: LaneState, lease_id: UUID, cause: ExitCause, now_ns: int, *, alone: bool
    ) -> None:
        failpoint("salvage.before")
        held = await self._db.run(find_leased_batch, self._worker, lease_id)
        if held is None:  # the claim did not commit, or the child died after the last flush and before counting it
            for _, verdicts in page.read_unflushed_verdicts():
                self._shared_state.add_flush_counts(Tally.from_verdicts(verdicts))
            return
        with bind_fields(**held.event_fields):
            await self._flush_finished_items(page, held)
            failpoint("salvage.flushed")
            held = await self._db.run(find_leased_batch, self._worker, lease_id)
            if held is not None:
                await self._time_out_isolate_or_release_items(page, held, cause, now_ns, alone=alone)
                await fail_or_close_job_if_due(self._db, held.job_id, self._find_kind_hooks, failed=1)

    async def _flush_finished_items(self, page: LaneState, held: Lease) -> None:
        """Repeat the flushes of the dead child; the fence detects those that were committed."""
        ahead, columns = 0, self._learned_columns.get_for_lease(held)
        for flush_no, verdicts in page.read_unflushed_verdicts():
            columns.learn_from_verdicts(verdicts)
            await columns.store_new_columns(self._db)
            lease = replace(held, flush_no=flush_no + ahead)
            written = await write_verdicts(
                self._db, lease, verdicts, self._handlers.get(held.kind), lease_seconds=self._lease_seconds
            )
            if written.result is not FlushResult.STALE:  # the child did not count or report a committed flush
                self._shared_state.add_flush_counts(tally_and_emit_flush(lease, written.verdicts))
            if written.result is FlushResult.APPLIED:
                ahead += written.lease.flush_no - lease.flush_no - 1  # written in parts

    async def _time_out_isolate_or_release_items(
        self, page: LaneState, held: Lease, cause: ExitCause, now_ns: int, *, alone: bool
    ) -> None:
        if cause is ExitCause.STUCK:
            await self._time_out_items(page, held, now_ns, alone=alone)
        elif cause is ExitCause.CRASHED and page.running_item_count:
            await self._isolate_or_fail_suspects(page, held, alone=alone)
        elif is_uncertain_cause(cause):
            await self._release_or_isolate_after_uncertain_death(page, held, alone=alone)
        else:
            await self._release_batch(held, losses=int(cause is not ExitCause.STOPPED))

    async def _time_out_items(self, page: LaneState, held: Lease, now_ns: int, *, alone: bool) -> None:
        """Charge an attempt to the items that exceeded their timeout, and to no others.

        If the late item is unknown, because one item blocked the whole process or a set-based handler hung on a batch,
        isolate the items: each then runs alone, and the next timeout identifies it.
        """
        seconds = page.timeout_s or 0.0
        if (page.batch_item_count and held.open > 1) or (
            self._was_pulse_lost and not alone and page.list_running_items()
        ):
            await self._isolate_or_fail_suspects(page, held, alone=False)
            return
        late = {
            running.seq
            for running in page.list_running_items()
            if running.started_ns and now_ns - running.started_ns > seconds * 1e9
        }
        items = [
            item
            for item in await self._db.run_async_commit(read_unsettled_items, held)
            if item.seq in late or page.batch_item_count
        ]
        if seconds and items:
            await self._write_outcomes_and_release(
                held, [(item, make_timeout_retry(seconds)) for item in items], round(seconds * 1000)
            )
        else:
            await self._release_batch(held, losses=1)  # no item was late: the process itself hung

    async def _release_or_isolate_after_uncertain_death(self, page: LaneState, held: Lease, *, alone: bool) -> None:
        """Release the batch uncharged, but isolate an item that ran during several kills, and then charge it."""
        is_outside_kill = time.monotonic() - self._outside_kill_at < OUTSIDE_KILL_MEMORY_S
        if held.isolated and alone and page.running_item_count and not is_outside_kill:
            await self._isolate_or_fail_suspects(page, held, alone=True)
            return
        # A batch of a set-based handler has no single running items: three losses in a row isolate all its items.
        repeated = self._kill_counts.count_death(held.job_id, [one.seq for one in page.list_running_items()])
        if repeated and not held.isolated:
            await self._split_off_suspects(held, repeated, crashes=0)
        else:
            await self._release_batch(held, losses=1)

    async def _isolate_or_fail_suspects(self, page: LaneState, held: Lease, *, alone: bool) -> None:
        """Isolate the suspects, or fail an item whose process died POISON_CRASH_COUNT times while it ran alone."""
        suspects = [one.seq for one in page.list_running_items()] or list(held.seqs or range(held.lo, held.hi))
        deaths = held.crashes + 1 if alone else 0
        if deaths < POISON_CRASH_COUNT:
            await self._split_off_suspects(held, suspects, crashes=deaths)
            return
        items = [item for item in await self._db.run_async_commit(read_unsettled_items, held) if item.seq in suspects]
        for item in items:
            emit("item.poison", job=held.job_id, seq=item.seq)
        uncharged = [item._replace(attempt=item.attempt - 1) for item in items]  # a crash is not an attempt
        await self._write_outcomes_and_release(held, [(item, make_poison_failure(deaths)) for item in uncharged], 0)

    async def _split_off_suspects(self, held: Lease, suspects: list[int], *, crashes: int) -> None:
        pieces = split_off_suspects(held, suspects)
        await self._db.run(batch_leases.split_batch, held, pieces, after_crash=True, crashes=crashes)
        emit("batch.split", job=held.job_id, batch=held.batch_id, pieces=len(pieces))

    async def _write_outcomes_and_release(
        self, held: Lease, outcomes: list[tuple[Item, Outcome]], duration_ms: int
    ) -> None:
        """Write these outcomes under the dead child's lease, and release the rest of the batch."""
        handler = self._handlers.get(held.kind)
        verdicts = [decide(item, outcome, handler, duration_ms) for item, outcome in outcomes]
        written = await write_verdicts(self._db, held, verdicts, handler, lease_seconds=self._lease_seconds)
        if written.result is not FlushResult.STALE:
            self._shared_state.add_flush_counts(tally_and_emit_flush(held, written.verdicts))
        if held.open > len(verdicts):
            await self._release_batch(held, losses=0)

    async def _release_batch(self, held: Lease, *, losses: int) -> None:
        if await self._db.run(batch_leases.release_rest_of_batch, held, after_crash=True, losses=losses) is not None:
            emit("batch.released", job=held.job_id, batch=held.batch_id, items=held.open)
