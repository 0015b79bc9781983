"""Reads input sources into items: opens them in a thread, applies fixes, and stores chunks with a checkpoint."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, ParamSpec, TypeVar
from uuid import UUID, uuid4

from tidemill.core.decide import describe_exception
from tidemill.core.errors import (
    DiskFull,
    Interrupted,
    InvalidInput,
    QuotaExceeded,
    ReaderKilled,
    StorageUnavailable,
    TidemillError,
)
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import InputBlock, InputObserver, InputSource
from tidemill.core.quotas import Quota
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.context import EngineContext
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.engine.sizing import ChunkSize
from tidemill.failpoints import failpoint
from tidemill.store import ingestion as store
from tidemill.store import item_fixes, item_records, job_lifecycle, job_records, quota_records
from tidemill.store.database import Database
from tidemill.store.ingestion import IngestChunk, IngestLease
from tidemill.store.job_events import report_ingest_completed
from tidemill.store.outcome_flush import FlushResult
from tidemill.telemetry.events import bind_fields, emit

P = ParamSpec("P")
T = TypeVar("T")
FixLookup = Callable[[int, int], dict[int, bytes]]  # (lo, hi) -> fixed inputs by seq


class SourceWithFixes:
    """A source whose rows are replaced by their fixes. The fixes are read per block, because there may be many."""

    def __init__(self, source: InputSource, row: int, lookup_fixes: FixLookup) -> None:
        self._source = source
        self._next_row = row
        self._lookup_fixes = lookup_fixes

    @property
    def columns(self) -> list[str] | None:
        return self._source.columns

    @property
    def first_line(self) -> int:
        return self._source.first_line

    @property
    def layout(self) -> FileLayout:
        return self._source.layout

    def read_sample(self) -> list[bytes]:
        return self._source.read_sample()

    def read(self, rows: int, size: int) -> InputBlock:
        block = self._source.read(rows, size)
        lo, self._next_row = self._next_row, self._next_row + len(block.inputs)
        fixes = self._lookup_fixes(lo, self._next_row) if block.inputs else {}
        if not fixes:
            return block
        inputs = [fixes.get(seq, old) for seq, old in enumerate(block.inputs, lo)]
        defects = {index: defect for index, defect in block.defects.items() if lo + index not in fixes}
        return replace(block, inputs=inputs, defects=defects)

    def close(self) -> None:
        self._source.close()


def apply_fixes_to_source(db: Database, lease: IngestLease, source: InputSource) -> InputSource:
    """Return the source of a job with its fixes applied. A thread reads the source, the event loop reads the fixes."""
    loop = asyncio.get_running_loop()

    def lookup_fixes(lo: int, hi: int) -> dict[int, Any]:
        return asyncio.run_coroutine_threadsafe(
            db.run(item_fixes.read_latest_fixes, lease.job_id, lo, hi), loop
        ).result()

    return SourceWithFixes(source, lease.next_seq, lookup_fixes)


LeaseCheck = Callable[[], Awaitable[bool]]
MAX_LEASE_MISSES = 2  # a single miss may be a conflict with another statement on the same row


@asynccontextmanager
async def open_leased_source(
    context: EngineContext, lease: IngestLease, is_lease_held: LeaseCheck
) -> AsyncIterator["MonitoredSource"]:
    """Open the source; raise Interrupted if the process must stop or the ingest lease is lost in the meantime."""
    monitor = SourceMonitor(context, is_lease_held)
    with translate_source_errors():
        source = await monitor.run_in_thread(context.open_source, lease.source, lease.checkpoint, monitor)
    with closing(source):
        yield MonitoredSource(
            apply_fixes_to_source(context.db, lease, source) if lease.source.fixes_of else source, monitor
        )


@contextmanager
def translate_source_errors() -> Iterator[None]:
    """Convert unexpected exceptions of a reader to InvalidInput, because a retry would fail the same way forever."""
    try:
        yield
    except (TidemillError, OSError, UnicodeError):
        raise
    except Exception as error:
        raise InvalidInput(describe_exception(error)) from error


class SourceMonitor:
    """Returns whether to continue with a source. The thread calls it; the event loop checks the lease meanwhile."""

    def __init__(self, context: EngineContext, is_lease_held: LeaseCheck) -> None:
        self._context = context
        self._is_lease_held = is_lease_held
        self._is_over = False

    def __call__(self) -> bool:
        return not self._is_over and not self._context.is_stopping

    async def run_in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the source in a thread, and check the lease while it runs."""
        misses, call = 0, asyncio.create_task(asyncio.to_thread(function, *args, **kwargs))
        while not (await asyncio.wait([call], timeout=self._context.settings.poll_ms / 1000))[0]:
            misses = 0 if await self._is_lease_held_or_unknown() else misses + 1
            self._is_over = self._is_over or misses >= MAX_LEASE_MISSES
        return call.result()

    async def _is_lease_held_or_unknown(self) -> bool:
        try:
            return await self._is_lease_held()
        except Exception:  # noqa: BLE001  a database that does not respond is no reason to stop
            return True


class MonitoredSource(NamedTuple):
    """An open source, and the monitor of its calls."""

    source: InputSource
    monitor: SourceMonitor


QUOTA_CHECK_ROWS = 100_000  # rows that are stored between two counts of the owner's open rows


class _RowQuota:
    """Counts the rows of one ingest towards the owner's quota of open rows.

    Other jobs of the owner may exceed the quota meanwhile, each by at most ``QUOTA_CHECK_ROWS``.
    """

    def __init__(self, db: Database, owner_id: int, quota: Quota) -> None:
        self._db = db
        self._owner_id = owner_id
        self._quota = quota
        self._granted_rows = 0

    @classmethod
    async def load(cls, db: Database, job_id: UUID, defaults: Quota) -> "_RowQuota":
        return cls(db, *await db.read(quota_records.read_quota_of_job, job_id, defaults))

    async def reserve_rows(self, rows: int) -> None:
        """Raise QuotaExceeded if this number of rows does not fit."""
        if self._quota.open_rows is None:
            return
        if rows > self._granted_rows:
            used = await self._db.read(quota_records.count_open_rows, self._owner_id)
            self._quota.check_rows(used, rows)
            self._granted_rows = min(self._quota.open_rows - used, QUOTA_CHECK_ROWS)
        self._granted_rows -= rows


INTAKE_REPLAY_ROWS = 10_000
STORE_UNAVAILABLE_PAUSE_S = 2.0
MAX_READER_KILLS = 3  # of reader processes in a row for one source
_jitter = random.Random().random  # noqa: S311  spreads retries, guards no secret


class IngestOwners:
    """The owners of the sources that the ingesters of a process read. Each ingester reads for another owner."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # held while an ingester acquires a lease
        self.ids: set[int] = set()


class Ingester(PeriodicLoop):
    """Ingests one job's source at a time, to its end or until the job is paused or cancelled or the process stops."""

    name = "ingest"

    def __init__(self, context: EngineContext, page: LaneState, owners: IngestOwners | None = None) -> None:
        super().__init__()
        self.only_job_id: UUID | None = None  # ingest only this job
        self._context = context
        self._owners = owners or IngestOwners()
        self._lane_state = page
        self._rows_read = self._defect_rows = 0
        self._intake: InputObserver | None = None

    async def tick(self) -> float:
        context, lease_id = self._context, uuid4()
        self._lane_state.reset_and_record_lease(lease_id, ingest=True)
        self._lane_state.set_timeout(None)
        async with self._owners.lock:
            lease = await self._acquire_or_extend_lease(lease_id, self.only_job_id)
            if lease is not None:
                self._owners.ids.add(lease.owner_id)
        try:
            if lease is not None and not context.check_and_record_missing_requirements(lease.kind, lease.requires):
                await context.db.run(store.release_crashed_ingest_lease, context.worker, lease_id, losses=0)
            elif lease is not None:
                with bind_fields(**lease.event_fields):
                    await self._ingest_source(lease, lease_id)
        except StorageUnavailable as error:
            await context.db.run(store.release_crashed_ingest_lease, context.worker, lease_id, losses=0)
            emit("store.unavailable", error=str(error))
            return STORE_UNAVAILABLE_PAUSE_S
        except ReaderKilled as error:
            await self._release_or_fail_killed(lease_id, error)
        except Exception:
            await context.db.run(store.release_crashed_ingest_lease, context.worker, lease_id, losses=0)
            raise
        finally:
            if lease is not None:
                self._owners.ids.discard(lease.owner_id)
            self._lane_state.clear_lease()
        return context.settings.poll_ms / 1000 if lease is None else 0

    async def _acquire_or_extend_lease(self, lease_id: UUID, job_id: UUID | None) -> IngestLease | None:
        """Acquire the ingest lease of a job, or extend it if this process holds it."""
        context, kinds, seconds = self._context, self._context.handlers.kinds(), self._lease_seconds
        return await context.db.run(
            store.take_ingest_lease,
            kinds,
            lease_id=lease_id,
            lease=seconds,
            worker=context.worker,
            job_id=job_id,
            missing=context.missing_requirements,
            busy_owners=self._owners.ids,
        )

    async def _ingest_source(self, lease: IngestLease, lease_id: UUID) -> None:
        started, self._rows_read, self._defect_rows = time.monotonic(), 0, 0

        async def is_lease_held() -> bool:
            return await self._acquire_or_extend_lease(lease_id, lease.job_id) is not None

        failpoint("ingest.leased")
        try:
            async with open_leased_source(self._context, lease, is_lease_held) as monitored:
                await self._start_input_observer(lease, monitored.source)
                finished = await self._ingest_all_chunks(lease, lease_id, monitored)
        except Interrupted:
            finished = False
        except (StorageUnavailable, ReaderKilled):  # ingestion resumes from the checkpoint
            raise
        except (TidemillError, OSError, UnicodeError) as error:
            finished = False
            if await is_lease_held():  # otherwise the worker that holds the lease now gets the error itself
                prefix = "" if isinstance(error, DiskFull | QuotaExceeded) else "Cannot read the source: "
                await self._fail_job_and_report(lease.job_id, f"{prefix}{error}")
        finally:
            if self._intake is not None:
                self._intake.close()
            self._intake = None
        if not finished:
            await self._context.db.run(store.release_ingest_lease, lease.job_id, lease_id)
        elif await self._context.db.run(store.finish_ingest, lease.job_id, lease_id):
            seconds = time.monotonic() - started
            rows, total = self._rows_read, lease.next_seq + self._rows_read
            report_ingest_completed(lease.job_id, rows=rows, total=total, defects=self._defect_rows, seconds=seconds)

    async def _release_or_fail_killed(self, lease_id: UUID, error: ReaderKilled) -> None:
        """Release the lease after its reader process was killed, or fail the job if that happened repeatedly."""
        context = self._context
        found = await context.db.run(store.release_crashed_ingest_lease, context.worker, lease_id, losses=1)
        if found is not None and found[1] >= MAX_READER_KILLS:
            await self._fail_job_and_report(found[0], f"Cannot read the source: {error}")

    async def _start_input_observer(self, lease: IngestLease, source: InputSource) -> None:
        """Create the input observer of the kind, if any, and replay the inputs that are already stored."""
        make, db = self._context.handlers.get(lease.kind).make_input_observer, self._context.db
        if make is None:
            return
        params = await db.run(job_records.read_job_params, lease.job_id)
        with translate_source_errors():
            intake: InputObserver = make(params, source)
            self._intake = intake
        if intake.params != params:
            await db.run(job_records.set_job_params, lease.job_id, intake.params)
        for lo in range(0, lease.next_seq, INTAKE_REPLAY_ROWS):
            inputs = await db.run(
                item_records.read_submitted_inputs, lease.job_id, lo, min(lo + INTAKE_REPLAY_ROWS, lease.next_seq)
            )
            with translate_source_errors():
                await asyncio.to_thread(intake.add_inputs_and_find_duplicates, lo, inputs)

    async def _ingest_all_chunks(self, lease: IngestLease, lease_id: UUID, monitored: MonitoredSource) -> bool:
        """Store all chunks, reading the next one while one is written; return whether the source is at its end."""
        quota = await _RowQuota.load(self._context.db, lease.job_id, self._context.settings.default_quota)
        source, run_in_thread = monitored.source, monitored.monitor.run_in_thread
        chunk = await run_in_thread(self._read_and_observe_chunk, lease.next_seq, source)
        while chunk.block.inputs and not self._context.is_stopping:
            await quota.reserve_rows(len(chunk.block.inputs))
            async with self._context.isolation_lock.hold(exclusive=False):
                ahead = asyncio.create_task(run_in_thread(self._read_and_observe_chunk, chunk.hi, source))
                try:
                    appended = await self._append_chunk(lease.job_id, lease.kind, lease_id, chunk)
                finally:
                    chunk = await ahead  # also after an error: the file must stay open while the thread reads
            if not appended:
                return False
            await self._context.sleep_unless_stopping(self._context.sizing.chunk.backoff_s(_jitter()))
        return not chunk.block.inputs

    def _read_and_observe_chunk(self, lo: int, source: InputSource) -> IngestChunk:
        """Read the next chunk, limited by rows and bytes, with at least one row; empty at the end of the source."""
        max_bytes = self._context.settings.ingest_max_batch_bytes
        with translate_source_errors():
            block = source.read(self._context.sizing.chunk.rows, max_bytes)
            bounded = sum(map(len, block.inputs)) >= max_bytes
            if self._intake is None:
                return IngestChunk(lo, block, source.first_line, bounded=bounded)
            duplicates, waits = (
                self._intake.add_inputs_and_find_duplicates(lo, block.inputs),
                self._intake.rows_wait_for_end,
            )
        return IngestChunk(lo, block, source.first_line, duplicates, rows_wait_for_end=waits, bounded=bounded)

    async def _append_chunk(self, job_id: UUID, kind: str, lease_id: UUID, chunk: IngestChunk) -> bool:
        db, batch_size = self._context.db, self._context.sizing.get_max_batch_items(self._context.handlers.get(kind))
        rows = len(chunk.block.inputs)
        waited_ms = db.stats.pool_waited_ms
        failpoint("ingest.before_chunk")
        try:
            ran = await db.run_measured(
                store.append_chunk, job_id, lease_id, chunk, lease=self._lease_seconds, batch_size=batch_size
            )
        except Exception:
            self._set_chunk_size(job_id, self._context.sizing.chunk.shrink_after_failures(rows=rows))
            raise
        waited_ms = db.stats.pool_waited_ms - waited_ms
        self._set_chunk_size(
            job_id,
            self._context.sizing.chunk.adjust_to_chunk(
                ran.ms, rows=rows, failed=ran.failed, waited_ms=waited_ms, full=not chunk.bounded
            ),
        )
        if ran.value is FlushResult.STALE:
            emit("ingest.stale", job=job_id)
            return False
        failpoint("ingest.after_chunk")
        self._rows_read += rows
        self._defect_rows += len(chunk.block.defects)
        emit("ingest.chunk", job=job_id, lo=chunk.lo, hi=chunk.hi, ms=round(ran.ms, 1))
        return True

    def _set_chunk_size(self, job_id: UUID, size: ChunkSize) -> None:
        was, self._context.sizing.chunk = self._context.sizing.chunk, size
        if size.rows < was.rows:
            emit("ingest.shrunk", job=job_id, was=was.rows, now=size.rows, reason=size.reason)

    async def _fail_job_and_report(self, job_id: UUID, reason: str) -> None:
        await self._context.db.run(job_lifecycle.fail_job, job_id, reason)
        emit("job.failed", job=job_id, reason=reason)

    @property
    def _lease_seconds(self) -> float:
        return self._context.settings.lock_floor_ms / 1000
