"""How strained this machine and this process are, looked at about once a second."""

import sys
import time
from dataclasses import dataclass

import psutil

from tidemill.config import Settings
from tidemill.engine.adapt.pressure import spare_room, spare_time

EVERY_S = 1.0
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Strain:
    """The load per core, the used part of the memory that is nearest to its end, and what they make of a claim."""

    cpu: float = 0.0
    memory: float = 0.0
    time: float = 1.0
    room: float = 1.0


class Machine:
    """Looks again when the last look is old."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process = psutil.Process()
        self._looked_at = float("-inf")
        self._strain = Strain()

    def strain(self) -> Strain:
        now = time.monotonic()
        if now - self._looked_at >= EVERY_S:
            self._looked_at = now
            self._strain = self._look()
        return self._strain

    def _look(self) -> Strain:
        cpu, memory = load_per_core(), max(self._of_process(), of_machine())
        time_left = spare_time(cpu, self._settings.cpu_high_percent / 100)
        room = spare_room(memory, self._settings.memory_high_percent / 100)
        return Strain(round(cpu, 2), round(memory, 3), round(time_left, 2), round(room, 2))

    def _of_process(self) -> float:
        """Of what a child may have. On Linux that limit is on its data, most of which is resident, some is not."""
        info = self._process.memory_info()
        used = info.data if sys.platform == "linux" else info.rss
        return float(used) / (self._settings.child_memory_mb * MB)


def load_per_core() -> float:
    return float(psutil.getloadavg()[0]) / (psutil.cpu_count() or 1)


def of_machine() -> float:
    memory = psutil.virtual_memory()
    return 1 - float(memory.available) / float(memory.total)
