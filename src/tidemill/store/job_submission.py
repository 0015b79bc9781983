"""Creates a job, in a transaction of its own or of the caller, on a blocking or an async connection.

The steps are written once, as a generator without I/O; three small drivers run them.
"""

import hashlib
from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row, tuple_row
from psycopg.types.json import Jsonb

from tidemill.core.batch import BatchCutter
from tidemill.core.errors import Conflict, IdempotencyKeyReused
from tidemill.core.input_source import SourceReference
from tidemill.core.principal import LOCAL_USER_ID, Role
from tidemill.core.quotas import UNLIMITED, Quota, QuotaUse, resolve_quota
from tidemill.store.copy_rows import encode_item_row
from tidemill.store.database import Connection
from tidemill.store.jsonb import encode_json
from tidemill.store.statements import sql

T = TypeVar("T")
SyncConnection = psycopg.Connection[Any]

SUBMIT_ATTEMPTS = 3
SUBMIT_COPY_CHUNK_BYTES = 256 * 1024  # libpq buffers writes, so write in chunks


@dataclass(frozen=True, slots=True)
class ExistingJob:
    """The job that an earlier submission with the same idempotency key created."""

    id: UUID
    idem_print: bytes | None
    kind: str
    params: dict[str, Any]
    policy: dict[str, Any]
    priority: int


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to create. A worker ingests ``source`` later; without a source, the rows come with the submission.

    ``fingerprint_params`` replaces ``params`` and rows in the fingerprint, if they differ from the client's request.
    """

    kind: str
    owner_id: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    fingerprint_params: dict[str, Any] | None = None
    policy: dict[str, Any] = field(default_factory=dict)
    source: SourceReference | None = None
    priority: int = 0
    limiter: str | None = None
    sparse: bool = False
    columns: tuple[str, ...] = ()  # result columns; if empty, those of its registered kind
    requires: tuple[str, ...] = ()  # what a worker must declare, such as "dataset:prices"
    request_id: str | None = None
    traceparent: str | None = None
    ip_address: str | None = None
    file_id: str | None = None
    file_bytes: int | None = None  # of the file that the job stores, 0 if it is not known yet; None without a file
    quota: Quota = UNLIMITED  # of users for whom no other limits are set
    idem_key: str | None = None
    idem_print: bytes | None = None
    existing: ExistingJob | None = None  # what a lookup of idem_key found
    batch_size: int = 1_000


@dataclass(frozen=True, slots=True)
class ExecuteStep:
    statement: bytes
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CopyStep:
    statement: bytes
    lines: Iterator[bytes]


class LoopRunner(Protocol):
    """An event loop in another thread. The caller blocks while it runs a coroutine."""

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T: ...
    def enter_on_loop(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]: ...


SubmissionSteps = Generator[ExecuteStep | CopyStep, Any, tuple[UUID, bool]]


def build_submission_steps(spec: Submission, rows: Iterable[bytes]) -> SubmissionSteps:
    """Create job, items and ready batches. Returns the job's id and whether it is new."""
    yield ExecuteStep(sql("partition/ensure"), {"days": 0})
    for _ in range(SUBMIT_ATTEMPTS):
        added = yield ExecuteStep(sql("job/add"), _build_job_columns(spec))
        if added is not None:
            break
        existing = yield ExecuteStep(sql("job/by_idem_key"), {"owner_id": spec.owner_id, "idem_key": spec.idem_key})
        if existing is not None:
            return _resolve_repeated_job_id(spec, rows, existing), False
    else:  # the job was deleted between the two statements, each time
        raise Conflict(f'The job with idempotency key "{spec.idem_key}" is being deleted. Try again.')
    job_id, at = added
    quota_and_use = None if spec.owner_id == LOCAL_USER_ID else (yield from _check_quota(spec, job_id))
    if spec.file_id is not None:
        yield ExecuteStep(sql("file/keep"), {"file_id": spec.file_id})
        if spec.file_bytes:
            size = {"file_id": spec.file_id, "job_id": job_id, "bytes": spec.file_bytes}
            yield ExecuteStep(sql("file/add_stored"), size)
    counter = _RowAccumulator(spec)
    if spec.source is None:
        yield CopyStep(sql("item/copy"), _encode_and_count_rows(job_id, at, rows, counter))
        if quota_and_use is not None:
            quota, used = quota_and_use
            quota.check_rows(used.open_rows, counter.n)
    fetch_pending = spec.source is not None and spec.source.url is not None
    state = {"job_id": job_id, "next_seq": counter.n, "fetch_pending": fetch_pending}
    yield ExecuteStep(sql("ingest/add"), state)
    if counter.n:
        los, his = counter.cutter.close_and_get_starts_and_ends()
        batches = {"job_id": job_id, "owner_id": spec.owner_id, "kind": spec.kind}
        yield ExecuteStep(sql("batch/add_ranges"), batches | {"los": los, "his": his})
    if spec.idem_key is not None:
        yield ExecuteStep(sql("job/set_print"), {"job_id": job_id, "print": counter.fingerprint})
    yield ExecuteStep(sql("outbox/announce"), {"job_id": job_id})
    return job_id, True


def _check_quota(
    spec: Submission, job_id: UUID
) -> Generator[ExecuteStep | CopyStep, Any, tuple[Quota, QuotaUse] | None]:
    """Raise QuotaExceeded if the job does not fit. Return the owner's limits, if any, and their use without this job.

    The lock serializes the submissions of a user with limits, so that concurrent ones do not exceed them together.
    """
    owner = {"owner_id": spec.owner_id}
    found = yield ExecuteStep(sql("quota/limits"), owner)
    quota = None if found is None else resolve_quota(spec.quota, Role(found[0]), found[1])
    if quota is None or quota.is_unlimited:
        return None
    yield ExecuteStep(sql("quota/lock"), owner)
    used = QuotaUse(*(yield ExecuteStep(sql("quota/use"), owner | {"job_id": job_id})))
    quota.check_job(used, file_bytes=spec.file_bytes)
    return quota, used


async def find_repeated_submission(conn: Connection, spec: Submission) -> UUID | None:
    """Return the job that an equal submission created. Raises IdempotencyKeyReused if the submissions differ."""
    existing = None if spec.idem_key is None else await find_job_by_idempotency_key(conn, spec.owner_id, spec.idem_key)
    return None if existing is None else check_same_submission_and_get_id(spec, existing)


def check_same_submission_and_get_id(spec: Submission, existing: ExistingJob) -> UUID:
    """Return the id of the existing job. Raises IdempotencyKeyReused if another submission created it."""
    if existing.idem_print != _RowAccumulator(spec).fingerprint:
        raise make_key_reused_error(spec)
    return existing.id


async def find_job_by_idempotency_key(conn: Connection, owner_id: int, idem_key: str) -> ExistingJob | None:
    """Return the job that an owner's idempotency key created, or None."""
    async with conn.cursor(row_factory=class_row(ExistingJob)) as cursor:
        await cursor.execute(sql("job/by_idem_key"), {"owner_id": owner_id, "idem_key": idem_key})
        return await cursor.fetchone()


def begins_transaction_implicitly(conn: Connection | SyncConnection) -> bool:
    """Return whether the next statement starts a transaction that the caller commits."""
    return not conn.autocommit and conn.info.transaction_status is TransactionStatus.IDLE


async def run_steps_async(conn: Connection, steps: SubmissionSteps) -> tuple[UUID, bool]:
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = None
        if isinstance(step, CopyStep):
            async with conn.cursor() as cursor, cursor.copy(step.statement) as copy:
                for piece in _join_lines_into_chunks(step.lines):
                    await copy.write(piece)
        else:
            async with conn.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(step.statement, step.params)
                answer = await cursor.fetchone() if cursor.description else None


def run_steps_sync(conn: SyncConnection, steps: SubmissionSteps) -> tuple[UUID, bool]:
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = None
        if isinstance(step, CopyStep):
            # One COPY per chunk. In between, the connection is free: a lazy query of the caller may read the inputs
            # through it, and would wait forever for the end of a COPY.
            for piece in _join_lines_into_chunks(step.lines):
                with conn.cursor() as cursor, cursor.copy(step.statement) as copy:
                    copy.write(piece)
        else:
            with conn.cursor(row_factory=tuple_row) as cursor:
                cursor.execute(step.statement, step.params)
                answer = cursor.fetchone() if cursor.description else None


def run_steps_from_thread(conn: Connection, steps: SubmissionSteps, loop: LoopRunner) -> tuple[UUID, bool]:
    """As ``run_steps_sync``, with an async connection of another thread. The caller's thread reads the rows."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = None
        if isinstance(step, CopyStep):
            with loop.enter_on_loop(conn.cursor()) as cursor, loop.enter_on_loop(cursor.copy(step.statement)) as copy:
                for piece in _join_lines_into_chunks(step.lines):
                    loop.run_coroutine(copy.write(piece))
        else:
            cursor = loop.run_coroutine(conn.execute(step.statement, step.params))
            answer = loop.run_coroutine(cursor.fetchone()) if cursor.description else None


def _resolve_repeated_job_id(spec: Submission, rows: Iterable[bytes], found: Sequence[Any]) -> UUID:
    """Return the existing job if it has the same fingerprint. Raises IdempotencyKeyReused otherwise."""
    counter = _RowAccumulator(spec)
    for row in rows:
        counter.add(row)
    job_id, print_, *_ = found
    if print_ != counter.fingerprint:
        raise make_key_reused_error(spec)
    return job_id  # type: ignore[no-any-return]


def make_key_reused_error(spec: Submission) -> IdempotencyKeyReused:
    return IdempotencyKeyReused(f'Idempotency key "{spec.idem_key}" was already used for a different submission')


def _build_job_columns(spec: Submission) -> dict[str, Any]:
    names = ("owner_id", "kind", "priority", "limiter", "sparse", "request_id", "traceparent", "ip_address")
    columns = {name: getattr(spec, name) for name in (*names, "file_id", "idem_key", "idem_print")}
    source = None if spec.source is None else Jsonb(spec.source.to_json())
    return columns | {
        "params": Jsonb(spec.params),
        "policy": Jsonb(spec.policy),
        "source": source,
        "columns": list(spec.columns),
        "requires": list(spec.requires),
        "ingest_done": spec.source is None,
    }


class _RowAccumulator:
    """Counts rows, cuts them into batches, and computes the fingerprint that an idempotency key is compared by."""

    def __init__(self, spec: Submission) -> None:
        self.n = 0
        self.cutter = BatchCutter(0, spec.batch_size)
        self._includes_rows = spec.idem_key is not None and spec.fingerprint_params is None
        self._digest = hashlib.sha256()
        if spec.idem_key is not None:
            params = spec.params if spec.fingerprint_params is None else spec.fingerprint_params
            parts = [spec.kind, params, spec.policy, spec.priority, spec.idem_print]
            self._digest.update(encode_json(parts))

    def add(self, row: bytes) -> None:
        self.n += 1
        self.cutter.add_item(len(row))
        if self._includes_rows:
            self._digest.update(len(row).to_bytes(8, "big") + row)

    @property
    def fingerprint(self) -> bytes:
        return self._digest.digest()


def _encode_and_count_rows(job_id: UUID, at: str, rows: Iterable[bytes], counter: _RowAccumulator) -> Iterator[bytes]:
    head, tail = f"{job_id}\t".encode(), f"\t{at}\n".encode()
    for row in rows:
        yield encode_item_row(head, counter.n, row, tail)
        counter.add(row)


def _join_lines_into_chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for line in lines:
        buffer += line
        if len(buffer) >= SUBMIT_COPY_CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)


async def release_idempotency_key(conn: Connection, job_id: UUID, idem_key: str) -> None:
    """Clear the idempotency key of a job that created nothing, so that the same submission creates a new job."""
    await conn.execute(sql("job/release_key"), {"job_id": job_id, "idem_key": idem_key})
