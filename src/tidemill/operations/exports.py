"""Rows of a table, out of the house: as a file that a job makes, or at once, as they come."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import msgspec

from tidemill.connectors.encoders import open_encoder
from tidemill.domain.errors import InvalidInput
from tidemill.domain.export import KIND
from tidemill.domain.exporting import ExportPlan, TableExport, make_plan
from tidemill.domain.form import Compression, FileFormat
from tidemill.domain.resource import Resource
from tidemill.operations.submit import submit
from tidemill.store.catalog import denied
from tidemill.store.database import Database
from tidemill.store.extract import compiled, copy_out
from tidemill.store.json import encode
from tidemill.store.submit import Submission, find_repeated
from tidemill.telemetry.summary import export_completed

FAIL_FAST = {"mode": "fail_fast"}  # an export that has no file has failed
AHEAD = 2  # pieces that wait for a reader


async def plan_export(db: Database, resource: Resource, request: TableExport) -> ExportPlan:
    """What an export would do; InvalidInput with all that is wrong with the request, or why the table is not read."""
    plan = make_plan(request, resource)
    needed = [one.column for one in plan.fields] + [one.column for one in plan.filters]
    needed += [one.column for one in plan.order]
    lacking = await db.run(denied, plan.table, list(dict.fromkeys(needed)), "read")
    lacking = [one for one in lacking if not one.startswith("row-level security")]  # what a role sees is what it gets
    if lacking:
        raise InvalidInput(f"{plan.table} cannot be read: {'; '.join(lacking)}")
    return plan


async def repeated_export(db: Database, spec: Submission, request: TableExport) -> UUID | None:
    """The job that the same words have made before, whatever has become of the table."""
    return await db.run(find_repeated, _asking(spec, request))


async def submit_export(db: Database, spec: Submission, plan: ExportPlan, request: TableExport) -> tuple[UUID, bool]:
    """The job that makes the file, and whether it is new. A key that comes again stands for what was said."""
    spec = replace(_asking(spec, request), params={"asked": request.words(), "plan": msgspec.to_builtins(plan)})
    return await submit(db, spec, [encode({"resource": request.resource})], built_in=True)


def _asking(spec: Submission, request: TableExport) -> Submission:
    return replace(spec, kind=KIND, asked=request.words(), policy=FAIL_FAST)


async def stream_export(
    db: Database, plan: ExportPlan, told: Callable[[int], None] = lambda _: None
) -> AsyncGenerator[bytes]:
    """The file, piece by piece, while it is read; ``told`` how many rows it had. Who stops listening ends the query."""
    pipe = _Pipe()
    reading = asyncio.create_task(_read(db, plan, pipe, told))
    reading.add_done_callback(lambda _: pipe.end())
    try:
        while (piece := await pipe.take()) is not None:
            yield piece
        await reading
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await reading


async def _read(db: Database, plan: ExportPlan, pipe: "_Pipe", told: Callable[[int], None]) -> None:
    started, output = time.monotonic(), _Output()
    is_plain = plan.compression is Compression.NONE and plan.format in (FileFormat.CSV, FileFormat.NDJSON)
    encoder = open_encoder(plan.form, output)

    async def sink(chunk: bytes) -> None:
        if is_plain:  # a thread would cost more than it does
            encoder.write(chunk)
        else:
            await asyncio.to_thread(encoder.write, chunk)
        await pipe.put(output.taken())

    rows = await copy_out(db, compiled(plan), plan.form.feed, sink)
    await asyncio.to_thread(encoder.close)
    await pipe.put(output.taken())
    told(rows)
    export_completed(plan, rows, time.monotonic() - started)


class _Pipe:
    """A few pieces at most between one who reads and one who writes; the end always finds room."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(AHEAD)

    async def put(self, piece: bytes) -> None:
        if piece:
            await self._room.acquire()
            self._pieces.put_nowait(piece)

    async def take(self) -> bytes | None:
        piece = await self._pieces.get()
        self._room.release()
        return piece

    def end(self) -> None:
        self._pieces.put_nowait(None)


class _Output:
    """Keeps what an encoder writes until somebody takes it."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, piece: bytes, /) -> int:
        self._written.append(bytes(piece))
        return len(piece)

    def flush(self) -> None: ...

    def taken(self) -> bytes:
        written, self._written = self._written, []
        return written[0] if len(written) == 1 else b"".join(written)
