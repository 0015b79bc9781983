"""Making a job out of inputs, or of a stored file."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from tidemill.domain.errors import Conflict, InvalidInput, KeyReused, Unavailable, UnknownJob, UnknownKind
from tidemill.domain.handler import OWN_KINDS
from tidemill.domain.job import Job
from tidemill.domain.policy import FailurePolicy
from tidemill.operations.services import KINDS, service_kind
from tidemill.store import jobs, workers
from tidemill.store.database import Connection, Database, is_transient
from tidemill.store.json import encode
from tidemill.store.submit import Submission, SyncConnection, find_by_key, run_async, run_sync, submission
from tidemill.telemetry.events import bound, emit

PRIORITIES = (-100, 100)
TRIES = 3


def encode_inputs(inputs: Iterable[Any], max_row_bytes: int) -> Iterator[bytes]:
    """Inputs as they are stored; InvalidInput names the row that cannot be."""
    for row, value in enumerate(inputs, 1):
        try:
            data = encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"input {row} cannot be stored as JSON: {error}") from error
        if len(data) > max_row_bytes:
            raise InvalidInput(f"input {row} has {len(data)} bytes; at most {max_row_bytes} are allowed")
        yield data


def check(spec: Submission, *, built_in: bool = False) -> None:
    if spec.kind.startswith(OWN_KINDS) and not built_in:
        raise InvalidInput(f"jobs of kind {spec.kind!r} are made by Tidemill itself and cannot be submitted")
    FailurePolicy.parse(spec.policy)
    try:
        encode(spec.params)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"params cannot be stored as JSON: {error}") from error
    low, high = PRIORITIES
    if not low <= spec.priority <= high:
        raise InvalidInput(f"priority is from {low} to {high}")
    if spec.idem_key is not None and not (0 < len(spec.idem_key) <= 255 and spec.idem_key.isprintable()):  # noqa: PLR2004
        raise InvalidInput("an idempotency key has 1 to 255 printable characters")


async def as_declared(db: Database, spec: Submission) -> Submission:
    """With what the kind's handler declares, as workers have registered it; UnknownKind if none ever has."""
    known = await db.run(workers.kinds)
    if spec.kind not in known:
        listed = ", ".join(known) if known else "none"
        raise UnknownKind(f"no worker has ever had a handler for {spec.kind!r} (known: {listed})")
    options = known[spec.kind]
    return replace(spec, sparse=options["sparse"], limiter=options.get("limiter"))


async def calls_service(db: Database, spec: Submission) -> bool:
    """Whether a kind is one of the built-in ones that call services; a handler of yours with such a name goes first."""
    kind = service_kind(spec.kind)
    return kind is not None and (kind == spec.kind or spec.kind not in await db.run(workers.kinds))


async def existing(db: Database, spec: Submission) -> UUID | None:
    """The job this owner's key made already. KeyReused if it was asked for with other words, whatever its rows."""
    found = None if spec.idem_key is None else await db.run(find_by_key, spec.owner_id, spec.idem_key)
    if found is None:
        return None
    asked = (spec.kind, spec.params, spec.policy, spec.priority)
    if asked != (found["kind"], found["params"], found["policy"], found["priority"]):
        raise KeyReused(f"idempotency key {spec.idem_key!r} was used for another submission")
    return UUID(str(found["id"]))


async def submit(
    db: Database, spec: Submission, rows: Iterable[bytes] = (), *, built_in: bool = False
) -> tuple[UUID, bool]:
    """In a transaction of our own: the job is there with all its rows, or not at all."""
    check(spec, built_in=built_in)
    try:
        async with db.transaction(bounded=False) as conn:
            job_id, is_new = await run_async(conn, submission(spec, rows))
    except Exception as error:
        if not is_transient(error):
            raise
        # Not run again by ourselves: the rows may come from a generator, and the COMMIT may have arrived.
        raise Unavailable(
            "the database is not available now; with an idempotency key it is safe to ask again"
        ) from error
    tell_submitted(job_id, spec, is_new=is_new)
    return job_id, is_new


async def submit_and_look(
    db: Database, spec: Submission, rows: Callable[[], Iterable[bytes]] = tuple, *, built_in: bool = False
) -> tuple[Job, bool]:
    """The same, and the job as it is then. What the key made before may be deleted meanwhile: then it is made anew."""
    for _ in range(TRIES):
        job_id, is_new = await submit(db, spec, rows(), built_in=built_in)
        try:
            return await db.run(jobs.get, job_id), is_new
        except UnknownJob:
            if is_new:
                break
    raise Conflict("the job was deleted as soon as it was made")


async def submit_within(conn: Connection, spec: Submission, rows: Iterable[bytes]) -> tuple[UUID, bool]:
    """In the caller's own transaction: the job exists if and only if that commits."""
    check(spec, built_in=spec.kind in KINDS)
    _insist_on_utf8(conn.info.encoding)
    return await run_async(conn, submission(spec, rows))


def submit_within_sync(conn: SyncConnection, spec: Submission, rows: Iterable[bytes]) -> tuple[UUID, bool]:
    """The same, on a blocking connection."""
    check(spec, built_in=spec.kind in KINDS)
    _insist_on_utf8(conn.info.encoding)
    return run_sync(conn, submission(spec, rows))


def _insist_on_utf8(encoding: str) -> None:
    """Rows are COPYed as bytes: the server would take them for another alphabet, without a word."""
    if encoding != "utf-8":
        raise InvalidInput(f"the connection's client_encoding is {encoding}: it must be UTF8")


def tell_submitted(job_id: UUID, spec: Submission, *, is_new: bool) -> None:
    if is_new:
        with bound(request_id=spec.request_id, traceparent=spec.traceparent):
            emit("job.submitted", job=job_id, kind=spec.kind)
