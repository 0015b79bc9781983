"""Reading sources into items: chunks that grow while the database is quick, a checkpoint with each."""

import asyncio
import random
import time
from uuid import UUID, uuid4

from tidemill.domain.errors import Interrupted, NoRoom, StoreUnavailable, TidemillError
from tidemill.domain.ports import Intake, Source
from tidemill.engine.adapt.chunk import ChunkSize
from tidemill.engine.context import Context
from tidemill.engine.logbook import Page
from tidemill.engine.opening import opened, reading
from tidemill.engine.service import Service
from tidemill.store import ingest as store
from tidemill.store import items, jobs
from tidemill.store.flush import Flushed
from tidemill.store.ingest import Chunk, IngestLease
from tidemill.telemetry.events import bound, emit
from tidemill.telemetry.summary import ingest_completed

SEEN_AT_ONCE = 10_000
STORE_AWAY_S = 2.0
_jitter = random.Random().random  # noqa: S311  spreads tries, guards no secret


class Ingester(Service):
    """Takes one job's source at a time and reads it to the end, or until it is paused, cancelled or stopped."""

    name = "ingest"

    def __init__(self, context: Context, page: Page) -> None:
        super().__init__()
        self.only: UUID | None = None  # read this job's source and no other
        self._context = context
        self._page = page
        self._read_rows = self._defects = 0
        self._intake: Intake | None = None

    async def tick(self) -> float:
        context, lease_id = self._context, uuid4()
        self._page.begin(lease_id, ingest=True)
        self._page.set_timeout(None)
        lease = await self._take(lease_id, self.only)
        try:
            if lease is not None:
                with bound(**lease.facts):
                    await self._read(lease, lease_id)
        except StoreUnavailable as error:
            await context.db.run(store.release_for_the_dead, context.worker, lease_id, losses=0)
            emit("store.unavailable", error=str(error))
            return STORE_AWAY_S
        except Exception:
            await context.db.run(store.release_for_the_dead, context.worker, lease_id, losses=0)
            raise
        finally:
            self._page.end()
        return context.settings.poll_ms / 1000 if lease is None else 0

    async def _take(self, lease_id: UUID, job_id: UUID | None) -> IngestLease | None:
        """The right to read a source; the same one again, and for longer, if we have it already."""
        context, kinds, seconds = self._context, self._context.handlers.kinds(), self._lease_seconds
        return await context.db.run(
            store.take, kinds, lease_id=lease_id, lease=seconds, worker=context.worker, job_id=job_id
        )

    async def _read(self, lease: IngestLease, lease_id: UUID) -> None:
        started, self._read_rows, self._defects = time.monotonic(), 0, 0

        async def still_ours() -> bool:
            return await self._take(lease_id, lease.job_id) is not None

        try:
            async with opened(self._context, lease, still_ours) as source:
                await self._open_intake(lease, source)
                finished = await self._append_all(lease, lease_id, source)
        except Interrupted:
            finished = False
        except StoreUnavailable:  # it goes on from its checkpoint when the store is back
            raise
        except (TidemillError, OSError, UnicodeError) as error:
            finished = False
            if await still_ours():  # or whoever has it now finds out for himself
                blamed = "" if isinstance(error, NoRoom) else "the source cannot be read: "
                await self._fail(lease.job_id, f"{blamed}{error}")
        finally:
            if self._intake is not None:
                self._intake.close()
            self._intake = None
        if not finished:
            await self._context.db.run(store.release, lease.job_id, lease_id)
        elif await self._context.db.run(store.finish, lease.job_id, lease_id):
            seconds = time.monotonic() - started
            rows, total = self._read_rows, lease.next_seq + self._read_rows
            ingest_completed(lease.job_id, rows=rows, total=total, defects=self._defects, seconds=seconds)

    async def _open_intake(self, lease: IngestLease, source: Source) -> None:
        """Whoever looks at the inputs as they come has seen all that are stored already."""
        make, db = self._context.handlers.get(lease.kind).intake, self._context.db
        if make is None:
            return
        params = await db.run(jobs.params, lease.job_id)
        with reading():
            intake = self._intake = make(params, source)
        if intake.params != params:
            await db.run(jobs.set_params, lease.job_id, intake.params)
        for lo in range(0, lease.next_seq, SEEN_AT_ONCE):
            inputs = await db.run(items.inputs, lease.job_id, lo, min(lo + SEEN_AT_ONCE, lease.next_seq))
            with reading():
                await asyncio.to_thread(intake.see, lo, inputs)

    async def _append_all(self, lease: IngestLease, lease_id: UUID, source: Source) -> bool:
        """Whether the source was read to its end. The next chunk is read while this one is written."""
        chunk = await asyncio.to_thread(self._chunk, lease.next_seq, source)
        while chunk.block.inputs and not self._context.stopping:
            async with self._context.gate.passing(alone=False):
                ahead = asyncio.create_task(asyncio.to_thread(self._chunk, chunk.hi, source))
                try:
                    appended = await self._append(lease.job_id, lease.kind, lease_id, chunk)
                finally:
                    chunk = await ahead  # also after an error: the file must not be closed under it
            if not appended:
                return False
            await self._context.rest(self._context.chunk.backoff_s(_jitter()))
        return not chunk.block.inputs

    def _chunk(self, lo: int, source: Source) -> Chunk:
        """The next records: so many rows and about so many bytes at most, but one at least."""
        most = self._context.settings.ingest_max_batch_bytes
        with reading():
            block = source.read(self._context.chunk.rows, most)
            bounded = sum(map(len, block.inputs)) >= most
            if self._intake is None:
                return Chunk(lo, block, source.first_line, bounded=bounded)
            repeats, held = self._intake.see(lo, block.inputs), self._intake.held
        return Chunk(lo, block, source.first_line, repeats, held=held, bounded=bounded)

    async def _append(self, job_id: UUID, kind: str, lease_id: UUID, chunk: Chunk) -> bool:
        db, batch_size = self._context.db, self._context.batch_size(self._context.handlers.get(kind))
        rows = len(chunk.block.inputs)
        waited_ms = db.signals.pool_waited_ms
        try:
            ran = await db.measured(
                store.append, job_id, lease_id, chunk, lease=self._lease_seconds, batch_size=batch_size
            )
        except Exception:
            self._adapt(job_id, self._context.chunk.fail(rows=rows))
            raise
        waited_ms = db.signals.pool_waited_ms - waited_ms
        self._adapt(
            job_id,
            self._context.chunk.observe(
                ran.ms, rows=rows, failed=ran.failed, waited_ms=waited_ms, full=not chunk.bounded
            ),
        )
        if ran.value is Flushed.STALE:
            emit("ingest.stale", job=job_id)
            return False
        self._read_rows += rows
        self._defects += len(chunk.block.defects)
        emit("ingest.chunk", job=job_id, lo=chunk.lo, hi=chunk.hi, ms=round(ran.ms, 1))
        return True

    def _adapt(self, job_id: UUID, size: ChunkSize) -> None:
        was, self._context.chunk = self._context.chunk, size
        if size.rows < was.rows:
            emit("ingest.shrunk", job=job_id, was=was.rows, now=size.rows, reason=size.reason)

    async def _fail(self, job_id: UUID, reason: str) -> None:
        await self._context.db.run(jobs.fail, job_id, reason)
        emit("job.failed", job=job_id, reason=reason)

    @property
    def _lease_seconds(self) -> float:
        return self._context.settings.lock_floor_ms / 1000
