"""The handlers that are measured: one that does nothing, one that says who ran it and when, two that wait."""

import asyncio
import os
import time

from tidemill.app import Mill
from tidemill.domain.item import Item

mill = Mill()
REFERENCE = "tidemill.cli.bench.mill:mill"
NOOP, STAMP = "bench.noop", "bench.stamp"
PACED, LIMITED = "bench.paced", "bench.limited"
HINT = "bench.hint"  # a kind that nobody runs
LINGER_S = 0.005  # so that one process cannot take all of a warm-up


@mill.handler(NOOP, max_attempts=1, max_attempts_not_found=1)
async def noop(item: Item) -> None:
    """Nothing: what is left is the engine's own cost."""


@mill.handler(STAMP, max_attempts=1, max_attempts_not_found=1)
async def stamp(item: Item) -> dict[str, int]:  # noqa: ARG001  as above
    """Which process, and when by the clock that all processes of a machine share."""
    started = time.monotonic_ns()
    await asyncio.sleep(LINGER_S)
    return {"pid": os.getpid(), "ns": started}


# As fast as 50 at a time can be that take 55 ms each: the limiter lets begin a little more, and holds back nobody.
CALL_S = 0.055
mill.limiter("bench", "1000/s", burst=1_000)


@mill.handler(PACED, concurrency=50, max_attempts=1, max_attempts_not_found=1)
async def paced(item: Item) -> None:  # noqa: ARG001  as above
    await asyncio.sleep(CALL_S)


@mill.handler(LIMITED, concurrency=50, max_attempts=1, max_attempts_not_found=1, limit="bench")
async def limited(item: Item) -> None:  # noqa: ARG001  as above
    await asyncio.sleep(CALL_S)
