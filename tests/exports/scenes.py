"""Helpers of the export tests."""

import json
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from support import job_of, rows
from tidemill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings
from tidemill.core.job import Job
from tidemill.core.principal import Role
from tidemill.exports.table_export_request import TableExportPlan, TableExportRequest, parse_filter_condition
from tidemill.exports.table_exporter import stream_table_export
from tidemill.exports.use_cases import plan_table_export, submit_table_export
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.runtime import Runtime
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.testing import drain

COPYING = "FROM pg_stat_activity WHERE application_name = 'tidemill, export' AND datname = current_database()"


@dataclass(frozen=True)
class Scene:
    """A database, a blob store, and exports between them."""

    db: Database
    settings: Settings
    mill: Mill

    @property
    def blobs(self) -> BlobStore:
        return open_blob_store(self.settings.blobs)

    @property
    def runtime(self) -> Runtime:
        return make_runtime(self.db, self.settings, self.mill.registry)

    async def run(self, *statements: str) -> None:
        for statement in statements:
            await rows(self.db, statement)

    async def plan(self, table: str, *where: str, **asked: Any) -> TableExportPlan:
        return await plan_table_export(self.runtime, self.request(table, *where, **asked), Role.ADMIN)

    def request(self, table: str, *where: str, **asked: Any) -> TableExportRequest:
        return TableExportRequest(resource=table, filters=tuple(map(parse_filter_condition, where)), **asked)

    async def stream(self, table: str, *where: str, **asked: Any) -> bytes:
        """Return the complete file as a stream returns it."""
        async with aclosing(stream_table_export(self.db, await self.plan(table, *where, **asked))) as pieces:
            return b"".join([piece async for piece in pieces])

    async def objects(self, table: str, *where: str, **asked: Any) -> list[Any]:
        return [json.loads(line) for line in (await self.stream(table, *where, format="ndjson", **asked)).splitlines()]

    async def submit(self, table: str, *where: str, **asked: Any) -> UUID:
        request = self.request(table, *where, **asked)
        job_id, _ = await submit_table_export(self.runtime, Submission(""), request, Role.ADMIN)
        return job_id

    async def made(self, table: str, *where: str, **asked: Any) -> Job:
        """Submit an export, run it, and return its closed job."""
        job_id = await self.submit(table, *where, **asked)
        await drain(self.mill, db=self.db)
        return await job_of(self.db, job_id)

    async def result(self, job_id: UUID) -> dict[str, Any]:
        [(result,)] = await rows(self.db, "SELECT result FROM tidemill.outcome WHERE job_id = %s", job_id)
        return dict(result)

    def stored(self) -> list[str]:
        return sorted(self.blobs.list_names())

    async def copying(self) -> list[int]:
        """Return the database sessions that run an export."""
        return [pid for (pid,) in await rows(self.db, f"SELECT pid {COPYING}")]

    async def is_quiet(self) -> bool:
        return not await self.copying()


def lines(data: bytes) -> list[str]:
    return data.decode().splitlines()


def sorted_by(found: Iterable[dict[str, Any]], name: str) -> list[Any]:
    return sorted(one[name] for one in found)


async def with_people(scene: Scene) -> Scene:
    """Create the table people with 1,000 rows."""
    await scene.run(
        "CREATE TABLE people (id int PRIMARY KEY, name text)",
        "INSERT INTO people SELECT n, 'name ' || n FROM generate_series(1, 1000) n",
    )
    return scene
