"""Runs settled items again, as tracked bulk operations, and replaces the inputs of failed items."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Literal
from uuid import UUID

from tidemill.config import Settings
from tidemill.core.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    UnknownEntity,
    UnknownJob,
    UnknownResource,
)
from tidemill.core.job import Job
from tidemill.core.list_pages import check_storable_text
from tidemill.core.principal import LOCAL_USER_ID, Principal
from tidemill.core.quotas import UNLIMITED, Quota
from tidemill.core.status import TERMINAL_ITEM_STATUSES, ItemStatus
from tidemill.jobs.submission import encode_inputs, list_revoked_kinds, make_kind_grants
from tidemill.runtime import FindKindHooks, Runtime, return_no_kind_hooks
from tidemill.store import item_fixes as store
from tidemill.store import job_records, operation_records, workers
from tidemill.store.database import Database
from tidemill.store.job_events import report_operation_step
from tidemill.store.operation_records import BulkOperation
from tidemill.store.reprocess_items import ReprocessSelection

__all__ = ["BulkOperation", "ReprocessSelection"]  # used in signatures of this module
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
    find_kind_hooks: FindKindHooks = return_no_kind_hooks,
    quota: Quota = UNLIMITED,
) -> BulkOperation:
    """Requeue the selected items of a job and reopen it.

    After ``timeout_s`` seconds the operation is returned unfinished, and a maintenance loop continues it. ``quota`` has
    the limits of users for whom no others are set.

    Raises:
        QuotaExceeded: The items exceed a quota of the user.
        Conflict: The job cannot be reprocessed, or only done items are selected and its kind does not run them again.
    """
    reject_unsettled_statuses(choice.statuses)
    check_storable_text("The error code", *(choice.codes or ()))
    check_storable_text("The key", choice.key)
    hooks = find_kind_hooks((await db.read(job_records.get_job, job_id)).kind)
    if hooks is not None and hooks.done_refusal is not None:
        choice = _exclude_done_items(choice, hooks.done_refusal)
    predicate: dict[str, object] = {"statuses": list(choice.statuses), "reset_attempts": choice.reset_attempts}
    predicate |= {"seqs": None if choice.seqs is None else sorted(set(choice.seqs)), "codes": choice.codes}
    predicate |= {"ranges": choice.ranges} if choice.ranges else {}
    predicate |= ({"but": sorted(set(choice.excluded_seqs))} if choice.excluded_seqs else {}) | (
        {"key": choice.key} if choice.key else {}
    )
    predicate |= build_quota_part(quota)
    added = await add_operation_once(db, "reprocess", predicate, user_id=user_id, job_id=job_id, request_id=request_id)
    return await run_operation_until_end_or_timeout(db, added, timeout_s)


def build_quota_part(quota: Quota) -> dict[str, object]:
    return {} if quota.is_unlimited else {operation_records.QUOTA_KEY: asdict(quota)}


def _exclude_done_items(choice: ReprocessSelection, refusal: str) -> ReprocessSelection:
    statuses = [status for status in choice.statuses if status is not ItemStatus.DONE]
    if not statuses:
        raise Conflict(refusal)
    return replace(choice, statuses=statuses)


DeadLetterVerb = Literal["redrive", "dismiss", "restore"]


async def run_dead_letter_operation(
    db: Database,
    *,
    verb: DeadLetterVerb = "redrive",
    owner_id: int | None,
    items: Sequence[ItemId] | None = None,
    excluded_items: Sequence[ItemId] = (),
    filters: Mapping[str, Any] | None = None,
    user_id: int = LOCAL_USER_ID,
    request_id: str | None = None,
    timeout_s: float | None = None,
    quota: Quota = UNLIMITED,
) -> BulkOperation:
    """Requeue dead letters across jobs, and the items that a failed ``fail_fast`` job had cancelled.

    A filter does not match dismissed items. With ``verb`` "dismiss" or "restore", the items leave the list of dead
    letters or return to it; nothing runs.
    """
    given = dict(filters or {})
    check_storable_text("The filter", given.get("kind"), *(given.get("codes") or ()))
    predicate = given | {"owner_id": owner_id, "except": _group_by_job(excluded_items)}
    predicate |= build_quota_part(quota) if verb == "redrive" else {}
    if items is not None:
        predicate["items"] = _group_by_job(items)
    added = await add_operation_once(db, verb, predicate, user_id=user_id, request_id=request_id)
    return await run_operation_until_end_or_timeout(db, added, timeout_s)


async def run_dead_letter_operation_for_user(
    runtime: Runtime,
    me: Principal,
    *,
    verb: DeadLetterVerb = "redrive",
    owner_id: int | None,
    items: Sequence[ItemId] | None,
    excluded_items: Sequence[ItemId],
    job_id: UUID | None,
    filters: Mapping[str, Any],
    request_id: str,
    timeout_s: float,
) -> BulkOperation:
    """Redrive, dismiss or restore dead letters. Skip jobs whose kind, resource or dataset the user may no longer use.

    Raises:
        Forbidden: A job in the request has such a kind, resource or dataset.
    """
    jobs = None if job_id is None else [str(job_id)]
    selected = dict(filters) | {"jobs": jobs}
    if not me.is_admin:
        named = {job for job, _ in items or ()} | (set() if job_id is None else {job_id})
        await _authorize_named_jobs(runtime, me, named, owner_id)
        denied = [*await _list_revoked_targets(runtime, me), *await list_revoked_kinds(runtime, me)]
        selected |= {"denied": denied} if denied else {}
    return await run_dead_letter_operation(
        runtime.db,
        verb=verb,
        owner_id=owner_id,
        items=items,
        excluded_items=excluded_items,
        filters=selected,
        user_id=me.user_id,
        request_id=request_id,
        timeout_s=timeout_s,
        quota=runtime.settings.default_quota,
    )


async def authorize_rerun(runtime: Runtime, me: Principal, job: Job) -> None:
    """Raise if the user may no longer run the kind of the job, or use its resource or dataset."""
    known = await runtime.db.read(workers.read_options_by_kind)
    if job.kind in known:  # built-in kinds have targets instead
        runtime.get(make_kind_grants).require_grant(job.kind, known[job.kind], me.role)
    hooks = runtime.kind_hooks.get(job.kind)
    if hooks is not None and hooks.get_target is not None and hooks.authorize is not None:
        target = hooks.get_target(job)
        if target is not None:
            await hooks.authorize(runtime, me, target)
    if hooks is not None and hooks.authorize_job is not None:
        await hooks.authorize_job(runtime, me, job)


async def _authorize_named_jobs(runtime: Runtime, me: Principal, job_ids: set[UUID], owner_id: int | None) -> None:
    """Check jobs by id. Unknown jobs and jobs of other users are skipped: the redrive does not select them."""
    for job_id in job_ids:
        with suppress(UnknownJob):
            job = await runtime.db.read(job_records.get_job_by_id_or_key, str(job_id), owner_id)
            await authorize_rerun(runtime, me, job)


async def _list_revoked_targets(runtime: Runtime, me: Principal) -> list[str]:
    """Return the targets of a user's jobs, as ``kind:name``, that the user may no longer use."""
    authorize_by_kind = {kind: hooks.authorize for kind, hooks in runtime.kind_hooks.items() if hooks.authorize}
    revoked = []
    for kind, name in await runtime.db.run(job_records.list_targets_of_owner, me.user_id, list(authorize_by_kind)):
        try:
            await authorize_by_kind[kind](runtime, me, name)
        except (Forbidden, UnknownResource, InvalidInput):
            revoked.append(f"{kind}:{name}")
    return revoked


async def list_operations(
    db: Database, owner_id: int | None, *, before: UUID | None, limit: int
) -> list[BulkOperation]:
    """Return bulk operations of a user, or of all users, newest first, and only those older than ``before``."""
    return await db.run(operation_records.list_operations, user_id=owner_id, before=before, limit=limit)


async def get_operation(db: Database, me: Principal, operation_id: UUID) -> BulkOperation:
    """Return a bulk operation; raise UnknownEntity if it does not exist or the user may not see it."""
    operation = await db.run(operation_records.get_operation, operation_id)
    if not me.may_see(operation.user_id):
        raise UnknownEntity(f'Unknown operation "{operation_id}"')
    return operation


async def cancel_operation(db: Database, me: Principal, operation_id: UUID) -> BulkOperation:
    """Cancel a running operation. Items that it has already changed stay changed.

    Raises:
        UnknownEntity: The operation does not exist, or the user may not see it.
        Conflict: The operation is not running.
    """
    operation = await get_operation(db, me, operation_id)
    if not await db.run(operation_records.cancel_operation, operation_id):
        operation = await db.run(operation_records.get_operation, operation_id)
        if operation.state != "cancelled":  # else a repeated request
            raise Conflict(f"Cannot cancel the operation: its state is {operation.state}")
    return await db.run(operation_records.get_operation, operation_id)


async def add_operation_once(
    db: Database,
    verb: str,
    predicate: Mapping[str, Any],
    *,
    user_id: int,
    job_id: UUID | None = None,
    request_id: str | None = None,
) -> UUID:
    """Store a bulk operation, only once even if the answer to its COMMIT is lost. Return its id."""
    operation_id = await db.read(operation_records.make_operation_id)
    return await db.run(
        operation_records.add_operation,
        verb,
        predicate,
        user_id=user_id,
        job_id=job_id,
        request_id=request_id,
        operation_id=operation_id,
    )


async def run_operation_until_end_or_timeout(
    db: Database,
    operation_id: UUID,
    timeout_s: float | None = None,
    feature_steps: Mapping[str, operation_records.RunStep] | None = None,
) -> BulkOperation:
    """Run an operation until it ends or times out; after a timeout a maintenance loop continues it.

    An error before the first item was changed is raised. A later error is recorded in the operation.
    """
    started = time.monotonic()
    operation = await db.run(operation_records.get_operation, operation_id)
    while operation.state == "running" and (timeout_s is None or time.monotonic() - started < timeout_s):
        step = await db.run(operation_records.run_operation_step, operation_id, feature_steps)
        if step is None:
            await asyncio.sleep(OPERATION_POLL_S)  # another process runs a step
        elif step.error is not None and not operation.items:
            raise step.error
        else:
            await report_operation_step(db, step)
        operation = await db.run(operation_records.get_operation, operation_id)
    if operation.state == "failed" and not operation.items:  # in another process
        raise Conflict(str(operation.error))
    return operation


def reject_unsettled_statuses(statuses: Sequence[ItemStatus]) -> None:
    invalid = [status.value for status in statuses if status not in TERMINAL_ITEM_STATUSES]
    if invalid:
        raise InvalidInput(f"Items with status {', '.join(invalid)} are not settled and cannot be reprocessed")


def _group_by_job(items: Sequence[ItemId]) -> dict[str, list[int]]:
    grouped: dict[str, set[int]] = defaultdict(set)
    for job_id, seq in items:
        grouped[str(job_id)].add(seq)
    return {job_id: sorted(seqs) for job_id, seqs in sorted(grouped.items())}


DEFAULT_MAX_ROW_BYTES: int = Settings.model_fields["max_row_bytes"].default


async def record_item_fix(
    db: Database,
    job_id: UUID,
    seq: int,
    input: Any,  # noqa: A002  the name of this field in all interfaces
    *,
    by: int,
    max_row_bytes: int = DEFAULT_MAX_ROW_BYTES,
) -> int:
    """Record a fixed input of an item and return the number of the fix. The next attempt after a reprocess uses it."""
    (value,) = encode_inputs([input], max_row_bytes)
    return await db.run(store.add_item_fix, job_id, seq, value, by=by)


async def check_and_record_item_fix(runtime: Runtime, me: Principal, job: Job, seq: int, fixed_input: Any) -> int:
    """Record a fixed input like ``record_item_fix``, if the rules of the job's kind allow it.

    Raises:
        Conflict: This item, or any item of this kind, cannot be fixed.
    """
    hooks = runtime.find_kind_hooks(job.kind)
    if hooks is not None and hooks.fix_refusal is not None:
        raise Conflict(hooks.fix_refusal)
    enabled_hooks = runtime.kind_hooks.get(job.kind)
    if enabled_hooks is not None and enabled_hooks.parse_fix is not None:
        fixed_input = await enabled_hooks.parse_fix(runtime, job, seq, fixed_input)
    max_row_bytes = runtime.settings.max_row_bytes
    return await record_item_fix(runtime.db, job.id, seq, fixed_input, by=me.user_id, max_row_bytes=max_row_bytes)
