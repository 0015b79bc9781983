"""Making a job out of inputs, or of a stored file."""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from tidemill.domain.errors import InvalidInput
from tidemill.domain.policy import FailurePolicy
from tidemill.store.database import Connection, Database
from tidemill.store.json import encode
from tidemill.store.submit import Submission, SyncConnection, run_async, run_sync, submission
from tidemill.telemetry.events import emit

PRIORITIES = (-100, 100)


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


def check(spec: Submission) -> None:
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


async def submit(db: Database, spec: Submission, rows: Iterable[bytes] = ()) -> tuple[UUID, bool]:
    """In a transaction of our own: the job is there with all its rows, or not at all."""
    check(spec)
    async with db.transaction(bounded=False) as conn:
        job_id, is_new = await run_async(conn, submission(spec, rows))
    _tell(job_id, spec, is_new=is_new)
    return job_id, is_new


async def submit_within(conn: Connection, spec: Submission, rows: Iterable[bytes]) -> tuple[UUID, bool]:
    """In the caller's own transaction: the job exists if and only if that commits."""
    check(spec)
    return await run_async(conn, submission(spec, rows))


def submit_within_sync(conn: SyncConnection, spec: Submission, rows: Iterable[bytes]) -> tuple[UUID, bool]:
    """The same, on a blocking connection."""
    check(spec)
    return run_sync(conn, submission(spec, rows))


def _tell(job_id: UUID, spec: Submission, *, is_new: bool) -> None:
    if is_new:
        emit("job.submitted", job=job_id, kind=spec.kind)
