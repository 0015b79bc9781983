"""One run of the benchmark of exports."""

from typing import Any
from uuid import uuid4

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.exports.deliveries import deliver
from tidemill.cli.bench.exports.plan import Plan
from tidemill.cli.bench.exports.report import report
from tidemill.cli.bench.exports.turns import Turns
from tidemill.cli.bench.measured import Samples, measured
from tidemill.cli.bench.s3 import has_rclone
from tidemill.cli.bench.service.server import BenchServer
from tidemill.cli.views import errors
from tidemill.config import Settings
from tidemill.domain.identity import Role
from tidemill.store import users
from tidemill.store.bench_export import BareCopy
from tidemill.store.database import Database


def run(plan: Plan) -> dict[str, Any]:
    """Measure exports."""

    async def take(db: Database, settings: Settings, engine: Engine) -> Samples:
        user = await db.run(users.add, f"bench {uuid4().hex[:8]}", Role.ADMIN)
        try:
            key, _ = await db.run(users.add_key, user.id)
            with errors.status(f"making {plan.users:,} users"):
                bare = await BareCopy.make(db, plan.users)
            async with BenchServer(settings, settings.home / "serve.log") as server, engine.worker(1) as worker:
                samples = await Turns(plan, db, engine, bare, server, worker, key, settings.home).take()
            if has_rclone():
                samples |= await deliver(plan, db, settings, engine.jobs, key)
            return samples
        finally:
            await db.run(users.remove, user)

    return measured(take, lambda *found: report(plan, *found))
