"""The sizes of claims, leases, flushes and ingest chunks, computed from measurements of this process and machine."""

import math
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, replace

import psutil

from tidemill.config import Settings
from tidemill.core.arithmetic import MOVING_AVERAGE_ALPHA, clamp, update_moving_average
from tidemill.core.kinds import Handler

MIN_CLAIM_FACTOR = 0.1


def compute_claim_time_factor(load: float, high: float) -> float:
    """Return the factor for the time of a claim, from 0.1 to 1; ``load`` is per core.

    A busy worker on the machine of its database causes a load of 2 per core. Above ``high``, claims shrink in
    proportion: at twice ``high``, to a half. The time of a claim shrinks instead of its number of items, so that other
    machines get the slow items. Shrinking claims of fast items to a third would make them 40 % more expensive.
    """
    return 1.0 if load <= high else clamp(high / load, MIN_CLAIM_FACTOR, 1.0)


def compute_claim_size_factor(memory: float, high: float) -> float:
    """Return the factor for the items of a claim, from 0.1 to 1; ``memory`` is the used share of the memory.

    Above ``high`` it falls linearly, to a tenth when no memory is left.
    """
    if memory <= high:
        return 1.0
    left = (1 - memory) / (1 - high) if high < 1 else 0.0
    return clamp(MIN_CLAIM_FACTOR + (1 - MIN_CLAIM_FACTOR) * left, MIN_CLAIM_FACTOR, 1.0)


LOAD_SAMPLE_INTERVAL_S = 1.0
BYTES_PER_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SystemLoad:
    """The load per core, the used share of the scarcest memory, and the factors that claims are multiplied by."""

    cpu: float = 0.0
    memory: float = 0.0
    claim_time_factor: float = 1.0
    claim_size_factor: float = 1.0


class SystemLoadMonitor:
    """Measures the load about once a second, when it is read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process = psutil.Process()
        self._measured_at = float("-inf")
        self._load = SystemLoad()

    def get_recent_load(self) -> SystemLoad:
        now = time.monotonic()
        if now - self._measured_at >= LOAD_SAMPLE_INTERVAL_S:
            self._measured_at = now
            self._load = self._measure_load()
        return self._load

    def _measure_load(self) -> SystemLoad:
        cpu, memory = read_load_per_core(), max(self._measure_process_memory_share(), read_machine_memory_share())
        time_left = compute_claim_time_factor(cpu, self._settings.cpu_high_percent / 100)
        room = compute_claim_size_factor(memory, self._settings.memory_high_percent / 100)
        return SystemLoad(round(cpu, 2), round(memory, 3), round(time_left, 2), round(room, 2))

    def _measure_process_memory_share(self) -> float:
        """Return the used share of a child's memory limit. On Linux the limit includes data that is not resident."""
        info = self._process.memory_info()
        used = info.data if sys.platform == "linux" else info.rss
        return float(used) / (self._settings.child_memory_mb * BYTES_PER_MB)


def read_load_per_core() -> float:
    return float(psutil.getloadavg()[0]) / (psutil.cpu_count() or 1)


def read_machine_memory_share() -> float:
    memory = psutil.virtual_memory()
    return 1 - float(memory.available) / float(memory.total)


FLUSH_SPACING_S = 0.5  # fast handlers flush about twice a second, not every hundred items
MIN_ITEM_MS = 0.001


@dataclass(frozen=True, slots=True)
class ItemPace:
    """The wall time per item of a kind in one process, with all its concurrency."""

    item_ms: float | None = None

    def with_batch(self, *, items: int, seconds: float) -> "ItemPace":
        if not items:
            return self
        newest, average = seconds * 1000 / items, self.item_ms
        return ItemPace(newest if average is None else average + MOVING_AVERAGE_ALPHA * (newest - average))

    def claim_size(self, *, slice_ms: float, safety: float, first: int, low: int, high: int) -> int:
        """Return the number of items for about one slice of work; ``first`` before the first measurement."""
        wanted = first if self.item_ms is None else slice_ms / max(self.item_ms, MIN_ITEM_MS) * safety
        return int(max(low, min(wanted, high)))

    def lease_seconds(self, *, items: int, floor: float, cap: float) -> float:
        """Return twice the expected duration of the batch, within limits."""
        expected = 0.0 if self.item_ms is None else items * self.item_ms / 1000
        return max(floor, min(2 * expected, cap))

    def flush_size(self, *, low: int, high: int) -> int:
        """Return the outcomes per flush: at least ``low``, or the outcomes of half a second if that is more."""
        wanted = low if self.item_ms is None else FLUSH_SPACING_S * 1000 / max(self.item_ms, MIN_ITEM_MS)
        return int(max(low, min(wanted, high)))


CHUNK_GROWTH_FACTOR = 2
FAILED_CHUNK_DIVISOR = 4  # the chunk after a failed one has a quarter of its rows
MAX_COUNTED_CHUNK_FAILURES = 8  # more failures change nothing: the chunk is at its minimum
CHUNK_BACKOFF_S = 0.1
MAX_CHUNK_BACKOFF_S = 5.0


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """Rows per ingest chunk: doubled while the database is quick, halved when it is slow, quartered when it fails."""

    rows: int
    min_rows: int
    max_rows: int
    good_ms: float
    bad_ms: float
    average_ms: float | None = None
    failures: int = 0  # in a row
    reason: str = ""  # why it shrank, if it did

    @classmethod
    def start_at_minimum(cls, *, min_rows: int, max_rows: int, good_ms: float, bad_ms: float) -> "ChunkSize":
        return cls(min_rows, min_rows, max_rows, good_ms, bad_ms)

    def adjust_to_chunk(
        self, ms: float, *, rows: int | None = None, failed: int = 0, waited_ms: float = 0.0, full: bool = True
    ) -> "ChunkSize":
        """Return the size after a chunk of ``rows`` rows was written in ``ms``, after ``failed`` failed attempts.

        ``waited_ms`` is how long other transactions waited for a connection: a smaller chunk releases its connection
        sooner. A chunk that is not ``full`` was limited by its bytes, so a fast write is no reason to grow.
        """
        average = update_moving_average(self.average_ms, ms)
        after = replace(self, average_ms=average, failures=0, reason="")
        if failed:
            return after.shrink_after_failures(failed, rows=rows)
        if waited_ms > 0:
            return after.shrink(rows, CHUNK_GROWTH_FACTOR, "pool")
        if ms > self.bad_ms:
            return after.shrink(rows, CHUNK_GROWTH_FACTOR, "slow")
        # Twice the rows may take twice the time. That must stay below the upper target.
        if full and average < self.good_ms and CHUNK_GROWTH_FACTOR * average <= self.bad_ms:
            return replace(after, rows=int(clamp(self.rows * CHUNK_GROWTH_FACTOR, self.min_rows, self.max_rows)))
        return after

    def shrink_after_failures(self, times: int = 1, *, rows: int | None = None) -> "ChunkSize":
        """Return the size after ``times`` failed attempts at writing a chunk."""
        times = min(times, MAX_COUNTED_CHUNK_FAILURES)
        failures = min(self.failures + times, MAX_COUNTED_CHUNK_FAILURES)
        return replace(self.shrink(rows, FAILED_CHUNK_DIVISOR**times, "errors"), failures=failures)

    def backoff_s(self, jitter: float) -> float:
        """Return the pause before the next chunk after failures; ``jitter`` is a random number from 0 to 1."""
        if not self.failures:
            return 0.0
        return min(MAX_CHUNK_BACKOFF_S, CHUNK_BACKOFF_S * 2.0**self.failures) * (0.5 + 0.5 * jitter)

    def shrink(self, rows: int | None, divisor: int, reason: str) -> "ChunkSize":
        """Return a fraction of ``rows``, or of the current size if that is smaller."""
        smaller = min(self.rows, (self.rows if rows is None else rows) // divisor)
        return replace(self, rows=int(clamp(smaller, self.min_rows, self.max_rows)), reason=reason)


class Sizing:
    """The sizes that one process chooses: items per claim, seconds per lease, outcomes per flush, rows per chunk."""

    def __init__(self, settings: Settings) -> None:
        self.load_monitor = SystemLoadMonitor(settings)
        self.chunk = ChunkSize.start_at_minimum(
            min_rows=settings.ingest_min_rows,
            max_rows=settings.ingest_max_rows,
            good_ms=settings.db_p50_ms,
            bad_ms=settings.db_p95_ms,
        )
        self.slice_ends_at: float | None = None  # monotonic; set in a child that runs time slices on demand
        self._settings = settings
        self.pace_by_kind: defaultdict[str, ItemPace] = defaultdict(ItemPace)

    def record_pace(self, kind: str, items: int, seconds: float) -> None:
        self.pace_by_kind[kind] = self.pace_by_kind[kind].with_batch(items=items, seconds=seconds)

    def get_target_batch_s(self) -> float:
        """Return how long a claimed batch should take; in a time slice, at most the rest of the slice."""
        target = self._settings.worker_target_slice_ms / 1000
        return target if self.slice_ends_at is None else min(target, max(0.0, self.slice_ends_at - time.monotonic()))

    def compute_claim_size(self, handler: Handler, *, slots: int, permits_per_s: float | None) -> int:
        """Return the number of items to claim at once.

        Args:
            handler: The handler of the kind.
            slots: The number of items of the kind that this process runs at a time now.
            permits_per_s: The number of calls per second that the handler's limiter allows, if it limits them.
        """
        settings, load = self._settings, self.load_monitor.get_recent_load()
        if handler.gate is not None and handler.gate.limits_items:
            slots = min(slots, handler.gate.width)
        low, high = settings.claim_min, handler.batch_size or settings.claim_max
        if handler.is_batch:  # in a time slice, the first batch of a set-based kind may take longer than the slice
            first = high if self.slice_ends_at is None else low
        else:
            # Items that need the resource of a gate would wait for it here although other processes are idle.
            first = max(low, handler.concurrency if handler.gate is None else math.ceil(slots / settings.worker_lanes))
            if permits_per_s is not None:  # items that wait for permits would be kept from other workers
                startable = permits_per_s * settings.worker_target_slice_ms / 1000 * settings.safety_factor
                high = max(low, min(high, int(startable)))
            # All lanes together fill the concurrency. If a claim were smaller, each item would take a larger share of
            # the batch's time, so the next claim would be smaller still and end at one item.
            low = max(low, min(math.ceil(slots / settings.worker_lanes), high))
        size = self.pace_by_kind[handler.kind].claim_size(
            slice_ms=self.get_target_batch_s() * 1000 * load.claim_time_factor,
            safety=settings.safety_factor,
            first=first,
            low=min(low, high),
            high=high,
        )
        return max(settings.claim_min, int(size * load.claim_size_factor))

    def compute_lease_seconds(self, kind: str, items: int) -> float:
        settings = self._settings
        return self.pace_by_kind[kind].lease_seconds(
            items=items, floor=settings.lock_floor_ms / 1000, cap=settings.lock_cap_ms / 1000
        )

    def get_max_batch_items(self, handler: Handler) -> int:
        return handler.batch_size or self._settings.claim_max
