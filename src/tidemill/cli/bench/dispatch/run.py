"""One run of the benchmark of wake-ups."""

from typing import Any

from tidemill.cli.bench.dispatch.places import brokers
from tidemill.cli.bench.dispatch.plan import Plan
from tidemill.cli.bench.dispatch.report import report
from tidemill.cli.bench.dispatch.turns import Turns
from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.measured import Samples, measured
from tidemill.config import Settings
from tidemill.store import bench
from tidemill.store.database import Database


def run(plan: Plan) -> dict[str, Any]:
    """Measure wake-ups."""

    async def take(db: Database, settings: Settings, engine: Engine) -> Samples:
        with brokers(plan, settings.home) as urls:
            try:
                return await Turns(plan, db, settings, engine, urls).take()
            finally:
                await db.run(bench.forget_broker)

    return measured(take, lambda *found: report(plan, *found))
