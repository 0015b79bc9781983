"""Built-in: rows of a table as a file, straight from COPY through an encoder into the store."""

import time
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec

from tidemill.connectors.blobs import Blob, Blobs, Label, Writing
from tidemill.connectors.encoders import Encoder, open_encoder
from tidemill.domain.errors import Conflict, InvalidInput
from tidemill.domain.exporting import ExportPlan
from tidemill.domain.item import Item
from tidemill.domain.outcome import Fail, Wait
from tidemill.handlers.desk import Desk
from tidemill.store import exports, files, jobs
from tidemill.store.database import Database
from tidemill.store.extract import compiled, copy_out
from tidemill.telemetry.summary import export_completed

LOOK_EVERY_S = 1.0  # whether somebody still wants the file


class TableExporter:
    """Reads in the event loop and writes in a thread, a chunk apart: neither gets far ahead of the other."""

    def __init__(self, db: Database, blobs: Blobs, *, ttl_hours: int) -> None:
        self._db = db
        self._blobs = blobs
        self._ttl_hours = ttl_hours

    async def run(self, item: Item) -> dict[str, Any]:
        """The file is whole, or there is none."""
        job = await self._db.run(jobs.get, item.job_id)
        plan = msgspec.convert(job.params["plan"], ExportPlan)
        name, started = plan.file_name(job.key), time.monotonic()
        writing, desk = self._blobs.write(), Desk()  # as of jobs: each attempt has its own
        writing.label = Label(name, plan.form.content_type)
        encoders: list[Encoder] = []
        try:
            rows, cut_cells = await self._write(plan, item.job_id, writing, desk, encoders)
            blob, expires_at = await self._finish(item.job_id, writing, desk)
        except (Conflict, InvalidInput) as error:
            await desk.clear(lambda: _abandon(writing, encoders))
            raise Fail(str(error), code="unreadable", retryable=True) from error
        except BaseException:
            await desk.clear(lambda: _abandon(writing, encoders))
            raise
        desk.close()
        export_completed(plan, rows, time.monotonic() - started, job=item.job_id)
        return _facts(plan, name, rows) | {"cut_cells": cut_cells} | _stored(blob) | {"expires_at": expires_at}

    async def _write(
        self, plan: ExportPlan, job_id: UUID, writing: Writing, desk: Desk, encoders: list[Encoder]
    ) -> tuple[int, int]:
        encoder = await desk.do(open_encoder, plan.form, writing)
        encoders.append(encoder)
        looked = time.monotonic()

        async def sink(chunk: bytes) -> None:
            nonlocal looked
            await desk.begin(encoder.write, chunk)
            if time.monotonic() - looked > LOOK_EVERY_S:
                await self._insist(job_id)
                looked = time.monotonic()

        rows = await copy_out(self._db, compiled(plan), plan.form.feed, sink)
        await desk.do(encoder.close)
        encoders.clear()
        return rows, encoder.cut_cells

    async def _finish(self, job_id: UUID, writing: Writing, desk: Desk) -> tuple[Blob, str]:
        """When it expires is written first: should nobody live to tell of the file, it goes all the same."""
        await self._insist(job_id)
        expires_at = await self._db.run(files.expire, writing.name, job_id, self._ttl_hours)
        return await desk.do(writing.finish), expires_at.isoformat()

    async def _insist(self, job_id: UUID) -> None:
        """A file that nobody wants any more is not made; nor is one that somebody else has made meanwhile."""
        if not await self._db.run(exports.is_wanted, job_id):
            raise Wait("nobody wants this file any more", after=1.0, code="unwanted")


def _facts(plan: ExportPlan, name: str, rows: int) -> dict[str, Any]:
    said: dict[str, Any] = {"name": name, "format": str(plan.format), "compression": str(plan.compression)}
    return said | {"rows": rows, "spreadsheet_safe": plan.spreadsheet_safe}


def _stored(blob: Blob) -> dict[str, Any]:
    return {"size": blob.size, "sha256": blob.sha256.hex(), "file_id": blob.id}


def _abandon(writing: Writing, encoders: list[Encoder]) -> None:
    """Nothing stays. An encoder that is not closed would write its end whenever the garbage collector finds it."""
    writing.discard()
    for encoder in encoders:
        with suppress(Exception):
            encoder.close()
