"""psql's COPY and exports in turns."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.exports import books
from tidemill.cli.bench.exports.plan import Plan
from tidemill.cli.bench.exports.stream import drain
from tidemill.cli.bench.service.http import Client
from tidemill.cli.bench.service.server import BenchServer
from tidemill.cli.bench.worker import BenchWorker
from tidemill.cli.views import errors
from tidemill.domain.errors import TidemillError
from tidemill.domain.exporting import ExportPlan, TableExport
from tidemill.operations.exports import plan_export
from tidemill.operations.resources import Resources
from tidemill.store import bench
from tidemill.store.bench_export import TABLE, BareCopy
from tidemill.store.database import Database
from tidemill.store.extract import compiled

POLL_S = 0.02

Samples = defaultdict[str, list[float]]


class Turns:
    """Takes every sample of a plan, from a service and a worker of one process each."""

    def __init__(
        self,
        plan: Plan,
        db: Database,
        engine: Engine,
        bare: BareCopy,
        server: BenchServer,
        worker: BenchWorker,
        key: str,
        folder: Path,
    ) -> None:
        self.samples: Samples = defaultdict(list)
        self._plan = plan
        self._db = db
        self._engine = engine
        self._bare = bare
        self._server = server
        self._worker = worker
        self._key = key
        self._copied = folder / "copied"

    async def take(self) -> Samples:
        plan = self._plan
        self._note("load_average_before", os.getloadavg()[0])
        csv, ndjson, xlsx = [await self._planned(name) for name in ("csv", "ndjson", "xlsx")]
        with errors.status("") as status:
            for number in range(plan.rounds):
                status.update(f"round {number + 1} of {plan.rounds}: {plan.users:,} users")
                await self._round(csv, ndjson)
            status.update(f"workbooks of {plan.book_rows:,} users")
            await self._books(csv, xlsx)
        return self.samples

    async def _round(self, csv: ExportPlan, ndjson: ExportPlan) -> None:
        """Each of ours beside what it is compared with."""
        await self._copy("copy_to_reader_s", csv)
        await self._stream("csv_stream_s", csv)
        await self._copy("copy_to_reader_s", csv)
        await self._copy("copy_to_file_s", csv)
        await self._file("csv_file_s", "csv")
        await self._file("parquet_s", "parquet")
        await self._copy("copy_to_file_s", csv)
        await self._copy("ndjson_copy_s", ndjson)
        await self._stream("ndjson_stream_s", ndjson)
        await self._copy("ndjson_copy_s", ndjson)

    async def _copy(self, name: str, plan: ExportPlan) -> None:
        into = self._copied if name == "copy_to_file_s" else None
        self._note(name, await asyncio.to_thread(self._bare.copy, compiled(plan), plan.form.feed, into))

    async def _stream(self, name: str, plan: ExportPlan) -> None:
        """From the request until the last byte is here."""
        path = f"/v1/exports?resource={TABLE}&format={plan.format}"
        running = asyncio.create_task(_until_done(asyncio.to_thread(drain, self._server.place, path, self._key)))
        self._note("service_rss_mb", await self._server.peak_rss_mb(running))
        self._note(name, await running)

    async def _file(self, name: str, format_: str) -> None:
        """From the request until the job is closed, and its file stored."""
        started = time.monotonic()
        async with Client(self._server.place, self._key) as client:
            asked = (await client.post("/v1/exports", {"resource": TABLE, "format": format_})).value
        job_id = UUID(asked["job_id"])
        self._engine.jobs.append(job_id)
        while not await self._db.run(bench.is_closed, job_id):
            self._worker.look()
            await asyncio.sleep(POLL_S)
        self._note(name, time.monotonic() - started)
        self._note("worker_rss_mb", self._worker.child_rss_mb)
        async with Client(self._server.place, self._key) as client:
            made = (await client.get(f"/v1/exports/{job_id}")).value
        if (made["status"], made["record_count"]) != ("completed", self._plan.users):
            raise TidemillError(f"{format_}: {made['status']}, {made['failure_reason']}; {made['record_count']} rows")

    async def _books(self, csv: ExportPlan, xlsx: ExportPlan) -> None:
        some, made = self._copied.with_suffix(".some"), self._copied.with_suffix(".xlsx")
        await asyncio.to_thread(self._bare.copy, compiled(csv), "csv", self._copied)
        await asyncio.to_thread(books.first_rows, self._copied, some, self._plan.book_rows)
        turns: dict[str, Any] = {"xlsx_s": books.ours}
        if books.has_xlsxwriter():
            turns["xlsxwriter_s"] = books.theirs
        for _ in range(min(2, self._plan.rounds)):
            for name, make in turns.items():
                self._note(name, await asyncio.to_thread(make, xlsx.form, some, made))

    async def _planned(self, format_: str) -> ExportPlan:
        resource = await Resources({}).find(self._db, TABLE, any_table=True, reads=True)
        return await plan_export(self._db, resource, TableExport(resource=TABLE, format=format_))

    def _note(self, name: str, value: float) -> None:
        self.samples[name].append(value)


async def _until_done(waited: Awaitable[float]) -> float:
    return await waited
