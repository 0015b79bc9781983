"""Tests that the starts of eight processes respect one limiter and use most of its rate."""

from pathlib import Path

import pytest

from limits.model import most_above
from support import Workers, add_job, eventually
from tidemill.store.database import Database

RATE, BURST, PROCESSES = 20.0, 10, 8
USED = 0.95  # of the rate
USED_BESIDE_OTHERS = 0.7  # within a few seconds, on a machine that runs other tests too

APP = """
    mill.limiter("shop", "{rate}/s", burst={burst})
    book = open(f"starts.{{os.getpid()}}", "a", buffering=1)

    @mill.handler("call", limit="shop", concurrency=20)
    async def call(item):
        book.write(f"{{time.monotonic()}}\\n")
        await asyncio.sleep(0.02)
"""


def starts_in(folder: Path) -> list[float]:
    """Return when items started, on the clock that all processes of a machine share."""
    lines = [line for path in folder.glob("starts.*") for line in path.read_text().splitlines()]
    return sorted(float(line) for line in lines if line)


def processes_in(folder: Path) -> int:
    return sum(1 for path in folder.glob("starts.*") if path.stat().st_size)


async def _accuracy(db: Database, workers: Workers, tmp_path: Path, seconds: float, least: float) -> None:
    workers.app(APP.format(rate=RATE, burst=BURST))
    await add_job(db, int(RATE * seconds * 10), "call")
    for _ in range(2):
        workers.start(processes=PROCESSES // 2, claim_max=20)

    async def all_at_work() -> bool:
        return processes_in(tmp_path) == PROCESSES

    await eventually(all_at_work)
    begun = len(starts_in(tmp_path))

    async def enough() -> bool:
        return len(starts_in(tmp_path)) >= begun + RATE * seconds

    await eventually(enough, within=max(60, 2 * seconds))
    workers.end()
    starts = starts_in(tmp_path)
    assert most_above(starts, RATE, BURST) <= 0
    steady = starts[begun : begun + int(RATE * seconds)]
    used = len(steady) / (steady[-1] - steady[0]) / RATE
    assert used >= least, f"{used:.1%} of the rate was used"


async def test_limiter_rate_is_kept_and_used_by_eight_processes(db: Database, workers: Workers, tmp_path: Path) -> None:
    await _accuracy(db, workers, tmp_path, 8, USED_BESIDE_OTHERS)


@pytest.mark.full
async def test_limiter_rate_is_kept_and_used_by_eight_processes_for_a_minute(
    db: Database, workers: Workers, tmp_path: Path
) -> None:
    await _accuracy(db, workers, tmp_path, 60, USED)
