"""What a limiter costs that never holds anybody back: the same items with it and without, turn by turn."""

from statistics import median

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.mill import LIMITED, PACED
from tidemill.cli.bench.worker import BenchWorker

ITEMS, TURNS = 2_500, 3
RATE = 1_000  # permits a second: items come a little slower


async def limiter_overhead(
    engine: Engine, worker: BenchWorker, *, items: int = ITEMS, turns: int = TURNS
) -> dict[str, float]:
    """How much slower items are at a limiter of 1,000 a second, as a part of the time without; and both rates."""
    seconds: dict[str, list[float]] = {PACED: [], LIMITED: []}
    for _ in range(turns):
        for kind, taken in seconds.items():
            taken.append(await engine.process(await engine.submit_paused(kind, items), items, worker))
    without, at_limiter = median(seconds[PACED]), median(seconds[LIMITED])
    return {
        "limiter_overhead": round(at_limiter / without - 1, 4),
        "paced_items_per_s": round(items / without, 1),
        "limited_items_per_s": round(items / at_limiter, 1),
    }
