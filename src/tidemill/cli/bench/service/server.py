"""The service of its own process, as `tidemill serve` starts it."""

import asyncio
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tidemill.cli.bench.process import NOTHING, BenchProcess, cpu_seconds, rss_mb
from tidemill.config import Settings
from tidemill.domain.errors import TidemillError

PATIENCE_S = 30.0
POLL_S = 0.05
LOOK_S = 0.1
_ADDRESS = re.compile(rb"listening at http://(\S+):(\d+)")


class BenchServer(BenchProcess):
    """Started and stopped; ``place`` is where it listens. It logs as it always does, into a file."""

    def __init__(
        self,
        settings: Settings,
        log: Path,
        *,
        max_file_size_mb: int | None = None,
        environment: Mapping[str, str] = NOTHING,
    ) -> None:
        self._log = log
        self._file = log.open("wb")
        super().__init__(settings, "serve", "--host", "127.0.0.1", "--port", "0", said=self._file)
        self._env |= {"TIDEMILL_MAX_FILE_SIZE_MB": str(max_file_size_mb or settings.max_file_size_mb)}
        self._env |= environment

    async def __aenter__(self) -> Self:
        with self._file:
            await super().__aenter__()
        try:
            self.place = await self._listening()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def rss_mb(self) -> float:
        return rss_mb(self.process)

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process)

    async def peak_rss_mb(self, during: "asyncio.Task[object]") -> float:
        """The most memory it had until a task was done."""
        peak = self.rss_mb()
        while not during.done():
            await asyncio.wait([during], timeout=LOOK_S)
            peak = max(peak, self.rss_mb())
        return peak

    async def _listening(self) -> tuple[str, int]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = self._log.read_bytes()
            found = _ADDRESS.search(said)
            if found:
                return found[1].decode(), int(found[2])
            if not self.is_alive or time.monotonic() > deadline:
                raise TidemillError(f"the service did not start: {said.decode(errors='replace').strip()}")
            await asyncio.sleep(POLL_S)
