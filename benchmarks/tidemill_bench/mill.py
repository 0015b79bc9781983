"""The handlers of the benchmarks: a no-op, one that records its process and time, and two that wait."""

import asyncio
import os
import time

from tidemill.app.mill import Mill
from tidemill.core.job import Item

mill = Mill()
BENCH_MILL_REFERENCE = "tidemill_bench.mill:mill"
NOOP_KIND, STAMP_KIND = "bench.noop", "bench.stamp"
PACED_KIND, LIMITED_KIND = "bench.paced", "bench.limited"
HINT_KIND = "bench.hint"  # a kind without a handler
STAMP_HANDLER_SLEEP_S = 0.005  # so that one process cannot run all items of a warm-up


@mill.handler(NOOP_KIND, max_attempts=1, max_attempts_not_found=1)
async def noop(item: Item) -> None:
    """Do nothing, so that only the engine is measured."""


@mill.handler(STAMP_KIND, max_attempts=1, max_attempts_not_found=1)
async def record_process_and_time(item: Item) -> dict[str, int]:  # noqa: ARG001  as above
    """Return the process id and the start by the monotonic clock, which all processes of a machine share."""
    started = time.monotonic_ns()
    await asyncio.sleep(STAMP_HANDLER_SLEEP_S)
    return {"pid": os.getpid(), "ns": started}


# 50 concurrent items of 55 ms each need 909 permits per second. The limiter grants more, so it delays no item.
SIMULATED_CALL_S = 0.055
mill.limiter("bench", "1000/s", burst=1_000)


@mill.handler(PACED_KIND, concurrency=50, max_attempts=1, max_attempts_not_found=1)
async def wait_without_limiter(item: Item) -> None:  # noqa: ARG001  as above
    await asyncio.sleep(SIMULATED_CALL_S)


@mill.handler(LIMITED_KIND, concurrency=50, max_attempts=1, max_attempts_not_found=1, limit="bench")
async def wait_with_limiter(item: Item) -> None:  # noqa: ARG001  as above
    await asyncio.sleep(SIMULATED_CALL_S)
