"""Many clients at once: some look on, once a second each; some submit jobs."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any
from uuid import UUID

from tidemill.cli.bench.mill import NOOP
from tidemill.cli.bench.rows import inputs
from tidemill.cli.bench.service.http import Answer, Client
from tidemill.domain.errors import TidemillError

EVERY_S = 1.0
ROWS = 10
Ask = Callable[[Client], Coroutine[Any, Any, Answer]]


class Crowd:
    """``answers`` are the milliseconds of what was answered, ``errors`` what was not, or not well."""

    def __init__(self, job_id: UUID, seconds: float) -> None:
        self.answers: list[float] = []
        self.errors: list[str] = []
        here = f"/v1/jobs/{job_id}"
        self._looks = (here, f"{here}/items?page_size=100", here, "/v1/jobs?page_size=20")
        self._seconds = seconds

    async def run(self, pollers: Sequence[Client], submitters: Sequence[Client]) -> None:
        everybody = [(client, self._look(n)) for n, client in enumerate(pollers)]
        everybody += [(client, _submit()) for client in submitters]
        async with asyncio.TaskGroup() as group:
            for n, (client, asks) in enumerate(everybody):
                group.create_task(self._visit(client, asks, EVERY_S * n / len(everybody)))

    def _look(self, number: int) -> Iterator[Ask]:
        """What somebody with a job's page open asks for, in turns; not all of them the same at once."""
        for path in itertools.islice(itertools.cycle(self._looks), number, None):
            yield lambda client, path=path: client.get(path)  # type: ignore[misc]

    async def _visit(self, client: Client, asks: Iterator[Ask], delay: float) -> None:
        started = time.monotonic()
        await asyncio.sleep(delay)
        while time.monotonic() - started < self._seconds:
            asked = time.monotonic()
            try:
                answer = await next(asks)(client)
                answer.value  # noqa: B018  raises if it was refused
            except (TidemillError, OSError, EOFError, TimeoutError) as error:
                self.errors.append(repr(error))
                return
            self.answers.append(answer.ms)
            await asyncio.sleep(max(0.0, asked + EVERY_S - time.monotonic()))


def _submit() -> Iterator[Ask]:
    job = {"kind": NOOP, "inputs": list(inputs(ROWS))}
    while True:
        yield lambda client: client.post("/v1/jobs", job)
