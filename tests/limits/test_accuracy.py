"""Eight processes and one limiter: starts keep to it in any window, and use what it gives."""

import json
import time
from pathlib import Path

import pytest

from support import Workers, add_job, closed, eventually
from tidemill.store.database import Database

RATE, BURST, PROCESSES = 50.0, 10, 8

APP = """
    import json
    mill.limiter("shop", "{rate}/s", burst={burst})
    book = open(f"starts.{{os.getpid()}}", "a", buffering=1)

    @mill.handler("call", limit="shop", concurrency=20)
    async def call(item):
        book.write(f"{{time.monotonic()}}\\n")
        await asyncio.sleep(0.02)
"""


def starts_in(folder: Path) -> list[float]:
    """When items began, on the clock that all processes of a machine share."""
    lines = [line for path in folder.glob("starts.*") for line in path.read_text().splitlines()]
    return sorted(float(line) for line in lines if line)


def most_above(starts: list[float], rate: float, burst: float) -> float:
    """By how many starts the worst window of all is above ``burst + rate x window``; 0 or less is none."""
    # From start i to start j there are j - i + 1 of them; the worst i for each j is the one with the least i - rate * t.
    worst, lowest = float("-inf"), float("inf")
    for place, moment in enumerate(starts):
        lowest = min(lowest, place - rate * moment)
        worst = max(worst, place + 1 - rate * moment - lowest - burst)
    return worst


async def _accuracy(db: Database, workers: Workers, tmp_path: Path, seconds: float) -> None:
    workers.app(APP.format(rate=RATE, burst=BURST))
    job_id = await add_job(db, int(RATE * seconds), "call")
    workers.start(processes=PROCESSES // 2, log_level="info")
    workers.start(processes=PROCESSES // 2, log_level="info")
    await closed(db, job_id, within=seconds * 2 + 30)
    starts = starts_in(tmp_path)
    assert len(starts) == int(RATE * seconds)
    used = (len(starts) - BURST) / (starts[-1] - starts[0]) / RATE
    print(f"{len(list(tmp_path.glob('starts.*')))} processes, {used:.1%} of the rate used, worst window {most_above(starts, RATE, BURST):+.2f}")
    assert most_above(starts, RATE, BURST) <= 0
    assert used >= 0.95


async def test_eight_processes_keep_to_one_limiter_in_any_window_and_use_it(
    db: Database, workers: Workers, tmp_path: Path
) -> None:
    await _accuracy(db, workers, tmp_path, 8)


@pytest.mark.full
async def test_eight_processes_keep_to_one_limiter_for_a_minute(db: Database, workers: Workers, tmp_path: Path) -> None:
    await _accuracy(db, workers, tmp_path, 60)
