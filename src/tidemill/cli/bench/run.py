"""One run of the engine's benchmark."""

from typing import Any

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.measured import Samples, measured
from tidemill.cli.bench.plan import Plan
from tidemill.cli.bench.report import report
from tidemill.cli.bench.turns import Turns
from tidemill.config import Settings
from tidemill.store.bench import Bare
from tidemill.store.database import Database


def run(plan: Plan) -> dict[str, Any]:
    """Measure the engine."""

    async def take(db: Database, settings: Settings, engine: Engine) -> Samples:
        with Bare(db.url) as bare:
            return await Turns(plan, db, engine, bare, settings.home).take()

    return measured(take, lambda *found: report(plan, *found))
