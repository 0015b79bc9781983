"""Sending items round again: a tracked operation each time, done at once when it is small.

Correcting the inputs of items that failed, or that were not found.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tidemill.config import Settings
from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.list_pages import check_text
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.core.status import TERMINAL_ITEM_STATUSES, ItemStatus
from tidemill.jobs.submission import encode_inputs
from tidemill.store import item_fixes as store
from tidemill.store import job_records, operation_records
from tidemill.store.database import Database
from tidemill.store.job_events import report_operation_step
from tidemill.store.operation_records import BulkOperation
from tidemill.store.reprocess_items import ReprocessSelection

ItemId = tuple[UUID, int]
OPERATION_POLL_S = 0.05


async def reprocess_items(
    db: Database,
    job_id: UUID,
    choice: ReprocessSelection,
    *,
    user_id: int = LOCAL_USER_ID,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> BulkOperation:
    """Open a job again for chosen items. What takes longer than ``within`` seconds goes on without us."""
    check_settled_statuses(choice.statuses)
    check_text("an error code", *(choice.codes or ()))
    check_text("a key", choice.key)
    await db.read(job_records.get_job, job_id)
    predicate: dict[str, object] = {"statuses": list(choice.statuses), "reset_attempts": choice.reset_attempts}
    predicate |= {"seqs": None if choice.seqs is None else sorted(set(choice.seqs)), "codes": choice.codes}
    predicate |= {"ranges": choice.ranges} if choice.ranges else {}
    predicate |= ({"but": sorted(set(choice.excluded_seqs))} if choice.excluded_seqs else {}) | (
        {"key": choice.key} if choice.key else {}
    )
    added = await db.run(
        operation_records.add_operation, "reprocess", predicate, user_id=user_id, job_id=job_id, request_id=request_id
    )
    return await run_operation(db, added, timeout_s)


async def redrive_dead_letters(
    db: Database,
    *,
    owner_id: int | None,
    items: Sequence[ItemId] | None = None,
    excluded_items: Sequence[ItemId] = (),
    filters: Mapping[str, Any] | None = None,
    user_id: int = LOCAL_USER_ID,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> BulkOperation:
    """Dead letters across jobs, and what a fail_fast job had cancelled, go round again."""
    asked = dict(filters or {})
    check_text("a filter", asked.get("kind"), *(asked.get("codes") or ()))
    predicate = asked | {"owner_id": owner_id, "except": _group_by_job(excluded_items)}
    if items is not None:
        predicate["items"] = _group_by_job(items)
    added = await db.run(operation_records.add_operation, "redrive", predicate, user_id=user_id, request_id=request_id)
    return await run_operation(db, added, timeout_s)


async def run_operation(db: Database, operation_id: UUID, timeout_s: float | None = None) -> BulkOperation:
    """Step by step to its end, or until the time is up: whoever does bulk work next goes on from there.

    What refuses it before an item is touched is raised; what stops it later, the operation says.
    """
    started = time.monotonic()
    operation = await db.run(operation_records.get_operation, operation_id)
    while operation.state == "running" and (timeout_s is None or time.monotonic() - started < timeout_s):
        step = await db.run(operation_records.run_operation_step, operation_id)
        if step is None:
            await asyncio.sleep(OPERATION_POLL_S)  # somebody else is at it
        elif step.error is not None and not operation.items:
            raise step.error
        else:
            await report_operation_step(db, step)
        operation = await db.run(operation_records.get_operation, operation_id)
    if operation.state == "failed" and not operation.items:  # as somebody else found
        raise Conflict(str(operation.error))
    return operation


def check_settled_statuses(statuses: Sequence[ItemStatus]) -> None:
    wrong = [status.value for status in statuses if status not in TERMINAL_ITEM_STATUSES]
    if wrong:
        raise InvalidInput(f"items that are {', '.join(wrong)} are not settled: they cannot be reprocessed")


def _group_by_job(items: Sequence[ItemId]) -> dict[str, list[int]]:
    grouped: dict[str, set[int]] = defaultdict(set)
    for job_id, seq in items:
        grouped[str(job_id)].add(seq)
    return {job_id: sorted(seqs) for job_id, seqs in sorted(grouped.items())}


DEFAULT_MAX_ROW_BYTES: int = Settings.model_fields["max_row_bytes"].default


async def fix_item(
    db: Database,
    job_id: UUID,
    seq: int,
    input: Any,  # noqa: A002  what it is called everywhere
    *,
    by: int,
    max_row_bytes: int = DEFAULT_MAX_ROW_BYTES,
) -> int:
    """The revision. The item stays what it is until somebody reprocesses it; then it runs with this input."""
    (value,) = encode_inputs([input], max_row_bytes)
    return await db.run(store.add_item_fix, job_id, seq, value, by=by)
