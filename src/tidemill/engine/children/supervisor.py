"""The parent of a worker: starts children, notices the dead and the stuck, and clears up after them."""

import asyncio
import contextlib
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from tidemill.core.child_exit import ExitCause, classify_exit
from tidemill.core.decide import describe_exception
from tidemill.core.errors import TidemillError
from tidemill.engine.children.child_process import ChildCommand, ChildProcess
from tidemill.engine.children.control_pipe import StopMessage, WakeMessage
from tidemill.engine.children.salvage import CrashSalvage
from tidemill.engine.periodic_loop import LOOP_ERROR_PAUSE_S, PeriodicLoop
from tidemill.limits import limiter_records
from tidemill.store import batch_leases, workers
from tidemill.store.database import Database
from tidemill.store.jsonb import decode_json
from tidemill.telemetry.events import emit

MAX_HEARTBEAT_INTERVAL_S = 5.0


class HeartbeatLoop(PeriodicLoop):
    """Runs in the parent, so that a stuck or dying handler never takes the lease keeper along.

    Only leases that are in some child's logbook are kept: one that nobody works on runs out and is swept.
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
EXIT_CANNOT_START = 78  # EX_CONFIG: no use in trying again
KILL_AFTER_GRACE_S = 5.0
DRAIN_GIVE_UP_S = 3.0
QUICK_DEATH_S = 2.0
PARENT_SUSPENDED_S = 5.0  # a parent that was stopped itself cannot say who was late


class Supervisor(PeriodicLoop):
    """Keeps so many children alive."""

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
        async with self._tick_lock:  # drain() ticks too, while a burial may still be under way
            return await self._reap_and_respawn_children()

    async def _reap_and_respawn_children(self) -> float:
        now_ns = time.monotonic_ns()
        just_woke = time.monotonic() - self._ticked_at > PARENT_SUSPENDED_S
        self._ticked_at = time.monotonic()
        for hand in list(self.children.values()):
            dead = hand.reap()
            if dead is not None:
                await self._try_clean_up_child(hand, *dead, now_ns)
            elif hand.kill_cause is None and not just_woke:
                self._kill_if_stuck_or_overdue(hand, now_ns)
        if not self.is_stopping and time.monotonic() >= self._next_spawn_at:
            for number in self._child_numbers:
                if number not in self.children:
                    self.children[number] = self._spawn_child(number)
        return SUPERVISOR_TICK_S

    def _kill_if_stuck_or_overdue(self, hand: ChildProcess, now_ns: int) -> None:
        if hand.is_stuck(now_ns, self._silence_s):
            hand.kill(ExitCause.STUCK)
        elif hand.is_slice_overdue:
            hand.kill(ExitCause.STOPPED)

    def wake_children(self) -> None:
        for hand in self.children.values():
            if not (self._on_demand and hand.is_slice_over):
                hand.send_message(WakeMessage())

    def wake_idlest_child(self, job_id: UUID) -> None:
        """Have one child look at that job first: the one that has most to spare, any of them if several have."""
        if self._on_demand:
            return
        hands = random.sample(list(self.children.values()), len(self.children))
        for hand in sorted(hands, key=lambda hand: -hand.idle_lane_count):
            if hand.send_message(WakeMessage(job_id)):
                return

    @property
    def has_idle_lane(self) -> bool:
        """Whether some child could take another batch at once."""
        return any(hand.idle_lane_count for hand in self.children.values())

    def find_free_child(self) -> ChildProcess | None:
        """A child that a slice may be asked of."""
        free = [hand for hand in self.children.values() if hand.can_start_slice]
        return free[0] if free and not self.is_stopping else None

    @property
    def is_starting(self) -> bool:
        """Whether a child will be there soon."""
        ready = [hand for hand in self.children.values() if hand.shared_state.is_ready]
        return len(ready) < len(self._child_numbers) and not self.is_stopping

    def has_child(self, hand: ChildProcess) -> bool:
        """Whether a child lives, or is not buried yet."""
        return self.children.get(hand.number) is hand

    async def drain_children(self, grace: float) -> None:
        """Stop the children: what they finish in the grace is kept, the rest goes back uncharged."""
        deadline = time.monotonic() + grace + KILL_AFTER_GRACE_S
        for hand in self.children.values():
            hand.send_message(StopMessage())
        while self.children and time.monotonic() < deadline + DRAIN_GIVE_UP_S:
            if time.monotonic() > deadline:
                for hand in self.children.values():
                    hand.kill(ExitCause.STOPPED)
            # Clearing up needs the database; without it the leases run out by themselves.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.tick(), max(0.1, deadline + DRAIN_GIVE_UP_S - time.monotonic()))
            await asyncio.sleep(SUPERVISOR_TICK_S / 2)

    def list_lease_ids(self) -> list[UUID]:
        """What the children have in hand, or are about to."""
        pages = [page for hand in self.children.values() for page in hand.shared_state.lanes]
        return [lease_id for page in pages if (lease_id := page.lease_id) is not None]

    def list_child_pids(self) -> list[int]:
        """Of the children that live."""
        return [hand.process.pid for hand in self.children.values() if hand.process.returncode is None]

    def sum_counters(self) -> dict[str, int]:
        """What the children, the dead ones too, have done."""
        total = Counter(self._retired_counters)
        for hand in self.children.values():
            total.update(hand.shared_state.read_counters())
        return dict(total)

    def describe_children(self) -> dict[str, Any]:
        """What people see of the children: what they have done, and what their controllers have come to."""
        return {"adaptive": self._read_adaptive_states()} | self.sum_counters()

    def _read_adaptive_states(self) -> list[dict[str, Any]]:
        notes = [(hand.number, hand.shared_state.adaptive_text.read()) for hand in self.children.values()]
        return [{"child": number} | decode_json(note) for number, note in notes if note is not None]

    async def _try_clean_up_child(self, hand: ChildProcess, returncode: int, peak_mb: float, now_ns: int) -> None:
        """One that cannot be cleared up after must not keep the others from being started; it is tried again."""
        if time.monotonic() < hand.reap_retry_at:
            return
        try:
            await self._clean_up_dead_child(hand, returncode, peak_mb, now_ns)
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            emit("loop.failed", loop=self.name, error=describe_exception(error))
            hand.reap_retry_at = time.monotonic() + LOOP_ERROR_PAUSE_S

    async def _clean_up_dead_child(self, hand: ChildProcess, returncode: int, peak_mb: float, now_ns: int) -> None:
        in_hand = sum(page.started_item_count for page in hand.shared_state.lanes)
        cause = classify_exit(
            returncode=returncode,
            killed_as=hand.kill_cause,
            running_items=in_hand,
            peak_rss_mb=peak_mb,
            limit_mb=self._memory_mb,
        )
        name = "child.stopped" if cause is ExitCause.STOPPED else "child.died"
        emit(name, child=hand.number, pid=hand.process.pid, cause=cause, returncode=returncode, in_hand=in_hand)
        if returncode == EXIT_CANNOT_START and not in_hand:
            self.failure = TidemillError("a child process could not start; its message is above")
            self.stop()
        await self._salvage.recover_leases(hand.shared_state, cause, now_ns)
        await self._salvage.release_limiter_slots(hand.process.pid)
        self._retired_counters.update(hand.shared_state.read_counters())
        hand.shared_state.close()
        del self.children[hand.number]
        self._delay_spawn_after_quick_death(hand, quick=cause is ExitCause.CRASHED and not in_hand)

    def _delay_spawn_after_quick_death(self, hand: ChildProcess, *, quick: bool) -> None:
        """A child that dies as soon as it starts, of no item, must not be started in a tight loop."""
        quick = quick and time.monotonic() - hand.started_at < QUICK_DEATH_S
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        if self._quick_deaths > 5:  # noqa: PLR2004
            self._next_spawn_at = time.monotonic() + min(5.0, 0.1 * 2 ** (self._quick_deaths - 5))
