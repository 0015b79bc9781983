"""Sending items round again: a tracked operation each time, done at once when it is small."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tidemill.domain.errors import Conflict, InvalidInput
from tidemill.domain.identity import LOCAL_USER
from tidemill.domain.page import check_text
from tidemill.domain.status import TERMINAL, ItemStatus
from tidemill.store import bulk, jobs
from tidemill.store.about import tell_step
from tidemill.store.bulk import Operation
from tidemill.store.database import Database
from tidemill.store.reprocess import Choice

ItemId = tuple[UUID, int]
BESIDE_S = 0.05


async def reprocess(
    db: Database,
    job_id: UUID,
    choice: Choice,
    *,
    user_id: int = LOCAL_USER,
    request_id: str | None = None,
    within: float | None = None,
) -> Operation:
    """Open a job again for chosen items. What takes longer than ``within`` seconds goes on without us."""
    check(choice.statuses)
    check_text("an error code", *(choice.codes or ()))
    check_text("a key", choice.key)
    await db.run(jobs.get, job_id)
    predicate: dict[str, Any] = {"statuses": list(choice.statuses), "reset_attempts": choice.reset_attempts}
    predicate |= {"seqs": None if choice.seqs is None else sorted(set(choice.seqs)), "codes": choice.codes}
    predicate |= {"ranges": choice.ranges} if choice.ranges else {}
    predicate |= ({"but": sorted(set(choice.but))} if choice.but else {}) | ({"key": choice.key} if choice.key else {})
    added = await db.run(bulk.add, "reprocess", predicate, user_id=user_id, job_id=job_id, request_id=request_id)
    return await carry_out(db, added, within)


async def redrive(
    db: Database,
    *,
    owner_id: int | None,
    items: Sequence[ItemId] | None = None,
    but: Sequence[ItemId] = (),
    filters: Mapping[str, Any] | None = None,
    user_id: int = LOCAL_USER,
    request_id: str | None = None,
    within: float | None = None,
) -> Operation:
    """Dead letters across jobs, and what a fail_fast job had cancelled, go round again."""
    asked = dict(filters or {})
    check_text("a filter", asked.get("kind"), *(asked.get("codes") or ()))
    predicate = asked | {"owner_id": owner_id, "except": _by_job(but)}
    if items is not None:
        predicate["items"] = _by_job(items)
    added = await db.run(bulk.add, "redrive", predicate, user_id=user_id, request_id=request_id)
    return await carry_out(db, added, within)


async def carry_out(db: Database, operation_id: UUID, within: float | None = None) -> Operation:
    """Step by step to its end, or until the time is up: whoever does bulk work next goes on from there.

    What refuses it before an item is touched is raised; what stops it later, the operation says.
    """
    started = time.monotonic()
    operation = await db.run(bulk.find, operation_id)
    while operation.state == "running" and (within is None or time.monotonic() - started < within):
        step = await db.run(bulk.step, operation_id)
        if step is None:
            await asyncio.sleep(BESIDE_S)  # somebody else is at it
        elif step.error is not None and not operation.items:
            raise step.error
        else:
            await tell_step(db, step)
        operation = await db.run(bulk.find, operation_id)
    if operation.state == "failed" and not operation.items:  # as somebody else found
        raise Conflict(str(operation.error))
    return operation


def check(statuses: Sequence[ItemStatus]) -> None:
    wrong = [status.value for status in statuses if status not in TERMINAL]
    if wrong:
        raise InvalidInput(f"items that are {', '.join(wrong)} are not settled: they cannot be reprocessed")


def _by_job(items: Sequence[ItemId]) -> dict[str, list[int]]:
    grouped: dict[str, set[int]] = defaultdict(set)
    for job_id, seq in items:
        grouped[str(job_id)].add(seq)
    return {job_id: sorted(seqs) for job_id, seqs in sorted(grouped.items())}
