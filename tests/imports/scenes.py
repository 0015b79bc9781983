"""Helpers of the import tests."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from support import assert_sound, job_of, rows
from tidemill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings
from tidemill.core.decide import add_unstored_error_fields
from tidemill.core.file_format import FileLayout
from tidemill.core.job import Job
from tidemill.core.kinds import IMPORT_KIND
from tidemill.files.blobs import open_blob_store
from tidemill.imports import handler, import_records
from tidemill.imports import write_rows as landing
from tidemill.imports.import_plan import ImportRequest
from tidemill.imports.import_submission import ImportFile, ImportSubmission
from tidemill.imports.use_cases import ImportUseCases
from tidemill.store.database import Connection, Database
from tidemill.store.job_submission import Submission
from tidemill.tables.resource import Resource
from tidemill.tables.resource_registry import ResourceRegistry
from tidemill.testing import drain

Errors = list[tuple[int, str]]
"""Row numbers from 1, and the code of the first error of each row."""


@dataclass(frozen=True)
class Scene:
    """A database, a folder for files, and imports."""

    db: Database
    settings: Settings
    mill: Mill

    async def submit(
        self, data: str | bytes, table: str, *, name: str = "rows.csv", resource: Resource | None = None, **options: Any
    ) -> UUID:
        """Submit an import of these bytes, without running it."""
        runtime = make_runtime(self.db, self.settings)
        importing = ImportUseCases(runtime)
        submission = ImportSubmission(
            spec=Submission(IMPORT_KIND, policy=options.pop("policy", {})),
            resource=resource or await ResourceRegistry({}).get_resource(self.db, table, any_table=True),
            request=ImportRequest(**options),
            layout=FileLayout(keep_empty=options.get("keep_empty") or None),
        )
        blob = open_blob_store(self.settings.blobs).put([data if isinstance(data, bytes) else data.encode()])
        return (await importing.submit_file(submission, ImportFile(blob, name))).job_id

    async def run(self, data: str | bytes, table: str, **asked: Any) -> Job:
        """Submit an import and run it until its job is closed."""
        job_id = await self.submit(data, table, **asked)
        return await self.finish(job_id)

    async def finish(self, job_id: UUID, *, drains: int = 1) -> Job:
        await asyncio.gather(*(drain(self.mill, db=self.db) for _ in range(drains)))
        await assert_sound(self.db, job_id)
        return await job_of(self.db, job_id)

    async def table(self, *ddl: str) -> None:
        for statement in ddl:
            await rows(self.db, statement)

    async def rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        return await rows(self.db, query, *params)

    async def count(self, table: str) -> int:
        return int((await rows(self.db, f"SELECT count(*) FROM {table}"))[0][0])

    async def outcomes(self, job: Job | UUID) -> list[tuple[int, str, dict[str, Any]]]:
        """Return the stored outcomes: row number from 1, status and error."""
        job_id = job if isinstance(job, UUID) else job.id
        query = "SELECT seq, status, error, attempts FROM tidemill.outcome WHERE job_id = %s ORDER BY seq"
        return [
            (seq + 1, status, {} if error is None else add_unstored_error_fields(error, seq, attempts))
            for seq, status, error, attempts in await rows(self.db, query, job_id)
        ]

    async def errors(self, job: Job | UUID) -> Errors:
        """Return the failed rows and the code of the first error of each."""
        found = await self.outcomes(job)
        return [(row, error["code"]) for row, status, error in found if status == "failed"]

    async def effects(self, job: Job | UUID) -> tuple[int, int, int]:
        """Return the numbers of inserted, updated and unchanged rows."""
        job_id = job if isinstance(job, UUID) else job.id
        found: Mapping[str, int] = await self.db.read(import_records.sum_import_effects, job_id)
        return found["inserted"], found["updated"], found["unchanged"]


def with_fields(resource: Resource, **changes: dict[str, Any]) -> Resource:
    """Return the resource with other rules for some fields."""
    fields = tuple(replace(field, **changes.get(field.name, {})) for field in resource.fields)
    return replace(resource, fields=fields)


def small_batches(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    make = handler.make_import_handler
    monkeypatch.setattr(handler, "make_import_handler", lambda runtime: replace(make(runtime), batch_size=size))


@asynccontextmanager
async def meanwhile(monkeypatch: pytest.MonkeyPatch, scene: Scene, *statements: str) -> AsyncIterator[None]:
    """Run these statements in another session, once, between the check of the table and the write."""
    land, left = landing.write_good_rows, list(statements)

    async def late(*args: Any) -> Any:
        while left:
            await rows(scene.db, left.pop(0))
        return await land(*args)

    monkeypatch.setattr(handler, "write_good_rows", late)
    yield
    assert not left, "the statements did not run"


async def look_at(db: Database, table: str) -> Resource:
    return await ResourceRegistry({}).get_resource(db, table, any_table=True)


__all__ = ["Connection", "Errors", "Scene", "look_at", "meanwhile", "small_batches", "with_fields"]
