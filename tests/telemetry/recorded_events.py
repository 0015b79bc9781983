"""Records events of this process and of real workers."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from support import Workers, eventually
from support.forks import MAIN, Forked
from tidemill.config import Settings
from tidemill.telemetry.events import Event


class Told(list[Event]):
    """Record every event of this process."""

    def of(self, name: str) -> list[dict[str, Any]]:
        return [dict(event.fields) for event in self if event.name == name]

    def about(self, job_id: object) -> list[Event]:
        return [event for event in self if event.fields.get("job") == job_id]


class Logged(Workers):
    """Workers whose log lines can be read."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__(settings, folder)
        self._logs: list[Path] = []

    def start(
        self, app: str = "app:mill", processes: int = 1, inside: Sequence[str] = (), **settings: object
    ) -> "subprocess.Popen[bytes]":
        log = self._folder / f"log-{len(self._logs)}"
        argv = [*inside, sys.executable, "-c", MAIN, "worker", app, "--processes", str(processes)]
        with log.open("wb") as stderr:
            process: subprocess.Popen[bytes] = Forked(
                argv, cwd=self._folder, env=self.env(**settings), stderr=stderr, start_new_session=True
            )
        self._started.append(process)
        self._logs.append(log)
        return process

    def lines(self, worker: int = 0) -> list[dict[str, Any]]:
        """Return the complete lines so far."""
        text = self._logs[worker].read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    async def said(self, event: str, worker: int = 0) -> dict[str, Any]:
        """Wait for the first line of an event and return it."""

        async def look() -> list[dict[str, Any]]:
            return [line for line in self.lines(worker) if line["event"] == event]

        return (await eventually(look))[0]

    async def metrics(self, worker: int = 0, path: str = "/metrics") -> dict[tuple[str, tuple[str, ...]], float]:
        """Return the series that Prometheus would scrape, by name and labels."""
        status, text = await self.page(worker, path)
        assert status == 200, text
        return {
            (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def page(self, worker: int = 0, path: str = "/metrics") -> tuple[int, str]:
        """Return the status and the body of a worker's response."""
        port = (await self.said("metrics.served", worker))["port"]
        async with httpx2.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{port}{path}")
        return answer.status_code, answer.text
