"""A worker parent: starts child processes, detects dead and stuck ones, and recovers the work of dead ones."""

import asyncio
import contextlib
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from tidemill.core.batch import Lease, split_off_suspects
from tidemill.core.child_exit import (
    OUTSIDE_KILL_MEMORY_S,
    POISON_CRASH_COUNT,
    ExitCause,
    KillCounts,
    classify_exit,
    is_only_one_item_running,
    is_uncertain_cause,
)
from tidemill.core.decide import Tally, describe_exception, make_poison_failure, make_timeout_retry
from tidemill.core.errors import TidemillError
from tidemill.core.job import Item
from tidemill.core.kinds import HandlerLookup
from tidemill.core.outcome import Outcome
from tidemill.engine.children.child_process import ChildCommand, ChildProcess
from tidemill.engine.children.control_pipe import StopMessage, WakeMessage
from tidemill.engine.children.shared_state import LaneState, SharedState
from tidemill.engine.flusher import tally_and_emit_flush, write_verdicts
from tidemill.engine.lane import fail_or_close_job_if_due
from tidemill.engine.learned_columns import LearnedColumnsCache
from tidemill.engine.periodic_loop import LOOP_ERROR_PAUSE_S, PeriodicLoop
from tidemill.engine.verdicts import decide
from tidemill.failpoints import failpoint
from tidemill.limits import limiter_records
from tidemill.runtime import FindKindHooks
from tidemill.store import batch_leases, ingestion, job_lifecycle, workers
from tidemill.store.batch_leases import find_leased_batch
from tidemill.store.database import Database
from tidemill.store.item_records import read_unsettled_items
from tidemill.store.job_events import bind_job_fields
from tidemill.store.jsonb import decode_json
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


MAX_HEARTBEAT_INTERVAL_S = 5.0


class HeartbeatLoop(PeriodicLoop):
    """Extends leases. It runs in the parent, so that a stuck or crashing handler never stops it.

    It extends only leases in the shared state of a child. A lease that no child works on expires and is reclaimed.
    """

    name = "heartbeat"

    def __init__(
        self,
        db: Database,
        worker: str,
        *,
        lease_seconds: float,
        list_lease_ids: Callable[[], list[UUID]],
        describe_worker: Callable[[], dict[str, Any]],
        list_child_pids: Callable[[], list[int]],
    ) -> None:
        super().__init__()
        self._db = db
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._host_and_pid = (socket.gethostname(), os.getpid())
        self._list_lease_ids = list_lease_ids
        self._describe_worker = describe_worker
        self._list_child_pids = list_child_pids

    async def tick(self) -> float:
        await self._db.run_async_commit(
            batch_leases.extend_leases, self._worker, self._list_lease_ids(), self._lease_seconds
        )
        await self._db.run_async_commit(
            limiter_records.renew_slots, self._worker, self._list_child_pids(), self._lease_seconds
        )
        info = self._describe_worker()
        await self._db.run(workers.register_worker, self._worker, *self._host_and_pid, info)
        emit("worker.adapted", children=info.get("adaptive", []))
        return min(self._lease_seconds / 3, MAX_HEARTBEAT_INTERVAL_S)


SUPERVISOR_TICK_S = 0.1
EXIT_CANNOT_START = 78  # EX_CONFIG: a restart would fail again
KILL_AFTER_GRACE_S = 5.0
DRAIN_GIVE_UP_S = 3.0
QUICK_DEATH_S = 2.0
PARENT_SUSPENDED_S = 5.0  # after a longer pause of the parent itself, it cannot determine which items are late


class Supervisor(PeriodicLoop):
    """Keeps the configured number of child processes running."""

    name = "supervise"

    def __init__(
        self,
        worker: str,
        salvage: CrashSalvage,
        command: ChildCommand,
        *,
        processes: int,
        lanes: int,
        env: dict[str, str],
        memory_mb: int,
        silence_s: float,
        on_demand: bool = False,
    ) -> None:
        super().__init__()
        self._salvage = salvage
        self._spawn_child: Callable[[int], ChildProcess] = partial(
            ChildProcess, worker=worker, command=command, lanes=lanes, env=env
        )
        self._memory_mb = memory_mb
        self._silence_s = silence_s
        self._on_demand = on_demand
        self._quick_deaths = 0
        self._tick_lock = asyncio.Lock()
        self._next_spawn_at = 0.0
        self._ticked_at = time.monotonic()
        self._retired_counters: Counter[str] = Counter()
        self._child_numbers = list(range(processes))
        self.children: dict[int, ChildProcess] = {}
        self.failure: TidemillError | None = None

    async def tick(self) -> float:
        async with self._tick_lock:  # stop_children() also ticks, while another tick may still be cleaning up
            return await self._reap_and_respawn_children()

    async def _reap_and_respawn_children(self) -> float:
        now_ns = time.monotonic_ns()
        just_woke = time.monotonic() - self._ticked_at > PARENT_SUSPENDED_S
        self._ticked_at = time.monotonic()
        for child in list(self.children.values()):
            dead = child.reap()
            if dead is not None:
                await self._try_clean_up_child(child, *dead, now_ns)
            elif child.kill_cause is None and not just_woke:
                self._kill_if_stuck_or_overdue(child, now_ns)
        if not self.is_stopping and time.monotonic() >= self._next_spawn_at:
            for number in self._child_numbers:
                if number not in self.children:
                    self.children[number] = self._spawn_child(number)
        return SUPERVISOR_TICK_S

    def _kill_if_stuck_or_overdue(self, child: ChildProcess, now_ns: int) -> None:
        if child.is_stuck(now_ns, self._silence_s):
            child.kill(ExitCause.STUCK)
        elif child.is_slice_overdue:
            child.kill(ExitCause.STOPPED)

    def wake_children(self) -> None:
        for child in self.children.values():
            if not (self._on_demand and child.is_slice_over):
                child.send_message(WakeMessage())

    def wake_idlest_child(self, job_id: UUID) -> None:
        """Send the hint about a job to the child with the most idle lanes; among equals, to a random one."""
        if self._on_demand:
            return
        children = random.sample(list(self.children.values()), len(self.children))
        for child in sorted(children, key=lambda child: -child.idle_lane_count):
            if child.send_message(WakeMessage(job_id)):
                return

    @property
    def has_idle_lane(self) -> bool:
        """Whether a child could claim another batch now."""
        return any(child.idle_lane_count for child in self.children.values())

    def find_free_child(self) -> ChildProcess | None:
        """Return a child that can start a time slice now, or None."""
        free = [child for child in self.children.values() if child.can_start_slice]
        return free[0] if free and not self.is_stopping else None

    @property
    def has_starting_child(self) -> bool:
        """Whether a child is still starting."""
        ready = [child for child in self.children.values() if child.shared_state.accepts_slices]
        return len(ready) < len(self._child_numbers) and not self.is_stopping

    def has_child(self, child: ChildProcess) -> bool:
        """Return whether a child is alive, or dead and not cleaned up yet."""
        return self.children.get(child.number) is child

    async def stop_children(self, grace: float) -> None:
        """Stop the children. Items that finish in the grace period are recorded, the rest is released uncharged."""
        deadline = time.monotonic() + grace + KILL_AFTER_GRACE_S
        for child in self.children.values():
            child.send_message(StopMessage())
        while self.children and time.monotonic() < deadline + DRAIN_GIVE_UP_S:
            if time.monotonic() > deadline:
                for child in self.children.values():
                    child.kill(ExitCause.STOPPED)
            # The cleanup needs the database. Without it, the leases expire.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.tick(), max(0.1, deadline + DRAIN_GIVE_UP_S - time.monotonic()))
            await asyncio.sleep(SUPERVISOR_TICK_S / 2)

    def list_lease_ids(self) -> list[UUID]:
        """Return the leases that the children hold or are about to claim."""
        pages = [page for child in self.children.values() for page in child.shared_state.lanes]
        return [lease_id for page in pages if (lease_id := page.lease_id) is not None]

    def list_child_pids(self) -> list[int]:
        """Return the PIDs of the running children."""
        return [child.process.pid for child in self.children.values() if child.process.returncode is None]

    def sum_counters(self) -> dict[str, int]:
        """Return the summed counters of all children, including dead ones."""
        total = Counter(self._retired_counters)
        for child in self.children.values():
            total.update(child.shared_state.read_counters())
        return dict(total)

    def describe_children(self) -> dict[str, Any]:
        """Return the counters and the adaptive state of the children, as users see them."""
        return {"adaptive": self._read_adaptive_states()} | self.sum_counters()

    def _read_adaptive_states(self) -> list[dict[str, Any]]:
        texts = [(child.number, child.shared_state.adaptive_text.read()) for child in self.children.values()]
        return [{"child": number} | decode_json(text) for number, text in texts if text is not None]

    async def _try_clean_up_child(self, child: ChildProcess, returncode: int, peak_mb: float, now_ns: int) -> None:
        """Clean up after a dead child; retry later on failure, so that other children can still be started."""
        if time.monotonic() < child.reap_retry_at:
            return
        try:
            await self._clean_up_dead_child(child, returncode, peak_mb, now_ns)
        except Exception as error:  # noqa: BLE001  every error is reported
            emit("loop.failed", loop=self.name, error=describe_exception(error))
            child.reap_retry_at = time.monotonic() + LOOP_ERROR_PAUSE_S

    async def _clean_up_dead_child(self, child: ChildProcess, returncode: int, peak_mb: float, now_ns: int) -> None:
        in_hand = sum(page.running_item_count for page in child.shared_state.lanes)
        cause = classify_exit(
            returncode=returncode,
            killed_as=child.kill_cause,
            running_items=in_hand,
            peak_rss_mb=peak_mb,
            limit_mb=self._memory_mb,
        )
        name = "child.stopped" if cause is ExitCause.STOPPED else "child.died"
        emit(name, child=child.number, pid=child.process.pid, cause=cause, returncode=returncode, in_hand=in_hand)
        if returncode == EXIT_CANNOT_START and not in_hand:
            self.failure = TidemillError("A child process could not start; see its message above")
            self.request_stop()
        await self._salvage.recover_leased_work(child.shared_state, cause, now_ns)
        await self._salvage.release_limiter_slots(child.process.pid)
        self._retired_counters.update(child.shared_state.read_counters())
        child.shared_state.close()
        del self.children[child.number]
        self._delay_spawn_after_quick_death(child, quick=cause is ExitCause.CRASHED and not in_hand)

    def _delay_spawn_after_quick_death(self, child: ChildProcess, *, quick: bool) -> None:
        """Delay the next start if children die right after their start, to avoid a tight restart loop."""
        quick = quick and time.monotonic() - child.started_at < QUICK_DEATH_S
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        if self._quick_deaths > 5:  # noqa: PLR2004
            self._next_spawn_at = time.monotonic() + min(5.0, 0.1 * 2 ** (self._quick_deaths - 5))
