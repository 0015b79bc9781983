"""One run of the benchmark of imports."""

from typing import Any

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.imports.plan import Plan
from tidemill.cli.bench.imports.report import report
from tidemill.cli.bench.imports.turns import Turns
from tidemill.cli.bench.measured import Samples, measured
from tidemill.config import Settings
from tidemill.store.bench_import import BareTable
from tidemill.store.database import Database


def run(plan: Plan) -> dict[str, Any]:
    """Measure imports."""

    async def take(db: Database, settings: Settings, engine: Engine) -> Samples:
        with BareTable(db.url) as bare:
            return await Turns(plan, db, settings, engine, bare).take()

    return measured(take, lambda *found: report(plan, *found))
