"""The benchmark of load: large jobs, many processes, and a soak. Each measurement can run on its own."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tidemill.config import Settings, load_settings
from tidemill.store import users
from tidemill.terminal.console import error_console
from tidemill_bench import database, load_clients, load_jobs, soak
from tidemill_bench.environment import open_bench_database, prepare_bench_settings
from tidemill_bench.load_scene import LoadScene
from tidemill_bench.mill import mill
from tidemill_bench.neighbour import check_nothing_lost, create_users, register_kinds
from tidemill_bench.plans import LoadBenchPlan
from tidemill_bench.results import build_result

MEASUREMENTS: Mapping[str, Callable[[LoadScene], Awaitable[None]]] = {
    "job": load_jobs.measure_big_job,
    "workers": load_clients.measure_many_workers,
    "clients": load_clients.measure_many_clients,
    "snapshot": load_jobs.measure_held_snapshot,
    "fairness": load_jobs.measure_small_beside_huge_job,
    "soak": soak.measure_soak,
}
API_KEYS = 20  # each has a rate limit of its own


def build_report(scene: LoadScene, server: dict[str, str]) -> dict[str, Any]:
    """Return the object that ``--json`` prints. ``series`` has the points of the plots: seconds and values."""
    found = scene.figures
    ratios = {
        name: found[part] / found[whole]
        for name, (part, whole) in {
            "job_cost_vs_10k": ("job_us_per_item", "job_small_us_per_item"),
            "job_last_vs_first_tenth": ("job_last_tenth_per_s", "job_first_tenth_per_s"),
            "snapshot_last_vs_first_tenth": ("snapshot_last_tenth_per_s", "snapshot_first_tenth_per_s"),
        }.items()
        if part in found
    }
    used = {name: getattr(scene.plan, name) for name in LoadBenchPlan.__slots__}
    result = build_result(ratios, found, used, server, scene.is_own)
    result["series"] = {
        measurement: {name: [[round(at, 2), round(value, 2)] for at, value in points] for name, points in lines.items()}
        for measurement, lines in scene.series.items()
    }
    return result


def run_benchmark(plan: LoadBenchPlan, names: Sequence[str] = ()) -> dict[str, Any]:
    """Run the measurements with these names, or all of them; return the report."""
    settings = load_settings()
    with prepare_bench_settings(settings) as bench_settings:
        return asyncio.run(_run_with_database(plan, names, bench_settings, is_own=settings.database_url is None))


async def _run_with_database(
    plan: LoadBenchPlan, names: Sequence[str], settings: Settings, *, is_own: bool
) -> dict[str, Any]:
    async with (
        open_bench_database(settings, is_own=is_own) as db,
        create_users(db, settings, "load", "load 2", is_own=is_own) as owners,
    ):
        await register_kinds(db, mill.registry)
        keys = [(await db.run(users.add_key, owners[0].id))[0] for _ in range(API_KEYS)]
        scene = LoadScene(plan, db, settings, [owner.id for owner in owners], keys, is_own)
        for name in names or MEASUREMENTS:
            scene.figures[f"{name}_load_average_before"] = os.getloadavg()[0]
            with error_console.status(f"Measuring {name}"):
                await MEASUREMENTS[name](scene)
            scene.figures[f"{name}_load_average_after"] = os.getloadavg()[0]
        await check_nothing_lost(db)
        return build_report(scene, await db.run(database.read_server_settings))
