"""Correcting the inputs of items that failed, or that were not found."""

from typing import Any
from uuid import UUID

from tidemill.config import Settings
from tidemill.operations.submit import encode_inputs
from tidemill.store import fix as store
from tidemill.store.database import Database

MAX_ROW_BYTES: int = Settings.model_fields["max_row_bytes"].default


async def fix_item(
    db: Database,
    job_id: UUID,
    seq: int,
    input: Any,  # noqa: A002  what it is called everywhere
    *,
    by: int,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> int:
    """The revision. The item stays what it is until somebody reprocesses it; then it runs with this input."""
    (value,) = encode_inputs([input], max_row_bytes)
    return await db.run(store.fix, job_id, seq, value, by=by)
