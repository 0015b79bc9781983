"""Measures the load of the machine and the memory of the process, and how much they reduce the size of claims."""

import sys
import time
from dataclasses import dataclass

import psutil

from tidemill.config import Settings
from tidemill.core.arithmetic import clamp

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
