"""The handlers of the benchmarks: a no-op, one that records its process and time, and four that wait."""

import asyncio
import os
import time

from tidemill.app.mill import Mill
from tidemill.core.job import Item
from tidemill_bench.claim_recorder import record_claims_if_requested
from tidemill_bench.kinds import BRIEF_KIND, PARKED_KIND, SLOW_KIND

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


@mill.handler(SLOW_KIND, max_attempts=1, max_attempts_not_found=1)
async def sleep_for_a_second(item: Item) -> None:  # noqa: ARG001  as above
    await asyncio.sleep(1)


@mill.handler(BRIEF_KIND, max_attempts=1, max_attempts_not_found=1)
async def sleep_briefly(item: Item) -> None:  # noqa: ARG001  as above
    await asyncio.sleep(0.01)


parked_mill = Mill()


@parked_mill.handler(PARKED_KIND)
async def park(item: Item) -> None:
    """Never run: no worker serves this mill."""


record_claims_if_requested()
