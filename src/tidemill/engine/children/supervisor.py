"""The parent process of a worker: starts child processes, detects dead and stuck ones, and recovers their work."""

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
