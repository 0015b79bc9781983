"""How much a strained machine takes on.

How strained this machine and this process are, looked at about once a second.
"""

import sys
import time
from dataclasses import dataclass

import psutil

from tidemill.config import Settings
from tidemill.core.stats import clamp

MIN_CLAIM_FACTOR = 0.1


def compute_time_factor(load: float, high: float) -> float:
    """The part of a slice that is still claimed, 0.1 … 1; ``load`` is per core.

    1 is a machine that is busy, and no reason to do less. A worker that does the work it is there for, its database
    beside it, makes a load of 2 per core by itself. Only well beyond that claims shrink, in proportion: at twice
    ``high``, half. It is their time that shrinks, so that other machines get the work; a claim of a thousand quick
    items holds up nobody, and in smaller ones they cost more: 40 % more at a third of the size.
    """
    return 1.0 if load <= high else clamp(high / load, MIN_CLAIM_FACTOR, 1.0)


def compute_size_factor(memory: float, high: float) -> float:
    """The part of a claim's items that is still taken, 0.1 … 1; ``memory`` is the used part of what there is.

    From ``high`` on evenly down, to a tenth when nothing is left.
    """
    if memory <= high:
        return 1.0
    left = (1 - memory) / (1 - high) if high < 1 else 0.0
    return clamp(MIN_CLAIM_FACTOR + (1 - MIN_CLAIM_FACTOR) * left, MIN_CLAIM_FACTOR, 1.0)


LOAD_SAMPLE_INTERVAL_S = 1.0
BYTES_PER_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SystemLoad:
    """The load per core, the used part of the memory that is nearest to its end, and what they make of a claim."""

    cpu: float = 0.0
    memory: float = 0.0
    claim_time_factor: float = 1.0
    claim_size_factor: float = 1.0


class SystemLoadMonitor:
    """Looks again when the last look is old."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process = psutil.Process()
        self._measured_at = float("-inf")
        self._load = SystemLoad()

    def read_load(self) -> SystemLoad:
        now = time.monotonic()
        if now - self._measured_at >= LOAD_SAMPLE_INTERVAL_S:
            self._measured_at = now
            self._load = self._measure_load()
        return self._load

    def _measure_load(self) -> SystemLoad:
        cpu, memory = read_load_per_core(), max(self._process_memory_share(), read_machine_memory_share())
        time_left = compute_time_factor(cpu, self._settings.cpu_high_percent / 100)
        room = compute_size_factor(memory, self._settings.memory_high_percent / 100)
        return SystemLoad(round(cpu, 2), round(memory, 3), round(time_left, 2), round(room, 2))

    def _process_memory_share(self) -> float:
        """Of what a child may have. On Linux that limit is on its data, most of which is resident, some is not."""
        info = self._process.memory_info()
        used = info.data if sys.platform == "linux" else info.rss
        return float(used) / (self._settings.child_memory_mb * BYTES_PER_MB)


def read_load_per_core() -> float:
    return float(psutil.getloadavg()[0]) / (psutil.cpu_count() or 1)


def read_machine_memory_share() -> float:
    memory = psutil.virtual_memory()
    return 1 - float(memory.available) / float(memory.total)
