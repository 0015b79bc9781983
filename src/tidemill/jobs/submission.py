"""Submits jobs: from inputs, from a stored file, or from a file that the request refers to."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

from tidemill.config_sections import ConfigTable, Roles, parse_section
from tidemill.core.errors import (
    Conflict,
    Forbidden,
    IdempotencyKeyReused,
    InvalidInput,
    QuotaExceeded,
    Unavailable,
    UnknownJob,
    UnknownKind,
)
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import SourceReference
from tidemill.core.job import Job
from tidemill.core.kinds import BUILTIN_KIND_PREFIX, KIND_REGEX
from tidemill.core.policies import FailurePolicy
from tidemill.core.principal import Principal, Role, has_role
from tidemill.failpoints import failpoint
from tidemill.files.blobs.blob_store import Blob
from tidemill.files.layout import FORMATS_BY_SUFFIX, KNOWN_FORMATS
from tidemill.files.layout_detection import COMPRESSED_SUFFIXES, detect_layout
from tidemill.jobs.file_inspection import inspect_file
from tidemill.jobs.staged_files import (
    FileReference,
    StagedFile,
    check_and_redact_url,
    make_staged_files,
    make_url_source,
    stage_referenced_file,
)
from tidemill.jobs.work_gates import make_inspection_gate
from tidemill.runtime import KindHooks, Runtime
from tidemill.store import job_records, quota_records, workers
from tidemill.store.database import Connection, Database, is_transient
from tidemill.store.job_submission import (
    ExistingJob,
    LoopRunner,
    Submission,
    SyncConnection,
    begins_transaction_implicitly,
    build_submission_steps,
    check_same_submission_and_get_id,
    find_job_by_idempotency_key,
    make_key_reused_error,
    run_steps_async,
    run_steps_from_thread,
    run_steps_sync,
)
from tidemill.store.jsonb import encode_json
from tidemill.store.workers import KindOptions
from tidemill.telemetry.events import bind_fields, emit

_KIND_PATTERN = re.compile(KIND_REGEX)


class KindTable(ConfigTable):
    """One table of the section ``[kinds]``."""

    roles: Roles


def parse_kind_roles(document: Mapping[str, Any]) -> dict[str, Sequence[Role]]:
    """Return the roles in a document by kind; raise InvalidSettings with all problems."""
    return parse_section(document, "kinds", KindTable, lambda _, table: table.roles, names=_KIND_PATTERN)


class KindGrants:
    """Decides which roles may run jobs of a kind. The configuration file overrides the declaration of the handler."""

    def __init__(self, configured: Mapping[str, Sequence[Role]], default: Sequence[Role]) -> None:
        self._configured = configured
        self._default = default

    def is_allowed(self, kind: str, options: KindOptions | None, role: Role) -> bool:
        """Return whether a role may run a kind. ``options`` are those that a worker registered, if one did."""
        declared = None if options is None else options.roles
        return has_role(self._configured.get(kind, self._default if declared is None else declared), role)

    def select_allowed(self, known: Mapping[str, KindOptions], role: Role) -> dict[str, KindOptions]:
        return {kind: options for kind, options in known.items() if self.is_allowed(kind, options, role)}

    def require_grant(self, kind: str, options: KindOptions | None, role: Role) -> None:
        if not self.is_allowed(kind, options, role):
            raise Forbidden(f'You may not run jobs of kind "{kind}". Ask an administrator to grant it to your role.')


def make_kind_grants(runtime: Runtime) -> KindGrants:
    return KindGrants(runtime.load_section(parse_kind_roles), runtime.settings.kind_roles)


async def list_revoked_kinds(runtime: Runtime, me: Principal) -> list[str]:
    """Return the registered kinds that the user may not run."""
    known = await runtime.db.read(workers.read_options_by_kind)
    return sorted(known.keys() - runtime.get(make_kind_grants).select_allowed(known, me.role).keys())


__all__ = ["Submission"]  # used in signatures of this module
PRIORITY_RANGE = (-100, 100)
RESUBMIT_ATTEMPTS_MAX = 3
DETECTED_FORMATS = ("csv", "tsv", "json")  # formats with details that only the content shows
BEGINNING_STATEMENT = b"SELECT 1"  # psycopg sends BEGIN before it


def encode_inputs(inputs: Iterable[Any], max_row_bytes: int) -> Iterator[bytes]:
    """Encode inputs for storage; raise InvalidInput with the number of an input that cannot be stored."""
    for row, value in enumerate(inputs, 1):
        try:
            data = encode_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"Input {row} cannot be stored as JSON: {error}") from error
        if len(data) > max_row_bytes:
            raise InvalidInput(f"Input {row} has {len(data)} bytes; at most {max_row_bytes} are allowed")
        yield data


def check_submission(spec: Submission, *, built_in: bool = False) -> None:
    if spec.kind.startswith(BUILTIN_KIND_PREFIX) and not built_in:
        raise InvalidInput(f'Kind "{spec.kind}" is reserved. Its jobs cannot be submitted directly.')
    if spec.policy:
        FailurePolicy.from_json(spec.policy)
    try:
        encode_json(spec.params)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"params cannot be stored as JSON: {error}") from error
    low, high = PRIORITY_RANGE
    if not low <= spec.priority <= high:
        raise InvalidInput(f"priority must be from {low} to {high}")
    if spec.idem_key is not None and not (0 < len(spec.idem_key) <= 255 and spec.idem_key.isprintable()):  # noqa: PLR2004
        raise InvalidInput("The idempotency key must have 1 to 255 printable characters")


async def read_and_apply_kind_options(db: Database, spec: Submission) -> Submission:
    """Add the options that workers registered for the kind; raise UnknownKind if no worker did."""
    return _apply_registered_options(spec, await db.read(workers.read_options_by_kind))


def _apply_registered_options(spec: Submission, known: Mapping[str, workers.KindOptions]) -> Submission:
    if spec.kind not in known:
        listed = ", ".join(known) if known else "none"
        raise UnknownKind(f'No worker has registered a handler for kind "{spec.kind}". Known kinds: {listed}.')
    options = known[spec.kind]
    return replace(spec, sparse=options.sparse, limiter=options.limiter)


async def prepare_submission(runtime: Runtime, spec: Submission, role: Role) -> Submission:
    """Return the submission with the options of its kind; the feature of the kind validates the parameters.

    Raises:
        UnknownKind: No worker has registered the kind.
        Forbidden: The role may not run the kind.
        InvalidInput: A parameter is invalid.
        IdempotencyKeyReused: The key belongs to another submission.
    """
    hooks = await _find_submission_hooks(runtime, spec)
    if hooks is not None and hooks.prepare_submission is not None:
        spec = hooks.prepare_submission(runtime, spec, role)
        check_submission(spec, built_in=True)
        return replace(spec, existing=await _find_existing_job(runtime.db, spec))
    check_submission(spec)
    grants, known = runtime.get(make_kind_grants), await runtime.db.read(workers.read_options_by_kind)
    if spec.kind in known:
        grants.require_grant(spec.kind, known[spec.kind], role)
    spec = replace(spec, existing=await _find_existing_job(runtime.db, spec))
    return _apply_registered_options(spec, grants.select_allowed(known, role))


async def _find_submission_hooks(runtime: Runtime, spec: Submission) -> KindHooks | None:
    """Return the hooks of a built-in kind by name or alias; None if a worker registered a handler for the alias."""
    kind = runtime.kind_aliases.get(spec.kind, spec.kind)
    hooks = runtime.kind_hooks.get(kind)
    if hooks is None or hooks.prepare_submission is None:
        return None
    if kind != spec.kind and spec.kind in await runtime.db.read(workers.read_options_by_kind):
        return None
    return hooks


async def check_quota_before_upload(db: Database, spec: Submission) -> None:
    """Raise QuotaExceeded if the owner has no room for another job with a file, before the file is read.

    The transaction that creates the job checks the quota again, with the size of the file.
    """
    quota = await db.read(quota_records.read_quota, spec.owner_id, spec.quota)
    if not quota.is_unlimited:
        quota.check_job(await db.read(quota_records.read_quota_use, spec.owner_id), file_bytes=0)


def check_columns(runtime: Runtime, spec: Submission, columns: Sequence[str]) -> None:
    """Raise InvalidInput if the inputs lack columns that the submission refers to."""
    hooks = runtime.kind_hooks.get(spec.kind)
    if hooks is not None and hooks.check_columns is not None:
        hooks.check_columns(spec, columns)


async def submit_inputs(runtime: Runtime, spec: Submission, inputs: Sequence[Any]) -> tuple[Job, bool]:
    """Create a job from inputs; return it and whether it is new. ``spec`` comes from ``prepare_submission``."""
    check_columns(runtime, spec, await asyncio.to_thread(_list_input_columns, inputs))
    rows = partial(encode_inputs, inputs, runtime.settings.max_row_bytes)
    return await submit_and_get_job(runtime.db, spec, rows, built_in=True)


def _list_input_columns(inputs: Iterable[Any]) -> list[str]:
    """Return the field names of all inputs."""
    return list({str(name) for row in inputs if isinstance(row, dict) for name in row})


async def submit_referenced_file(
    runtime: Runtime, spec: Submission, reference: FileReference, format_: str | None
) -> tuple[Job, bool]:
    """Create a job from a file that is not part of the request; return it and whether it is new.

    The idempotency key identifies the reference, not the content of the file.
    """
    place = [reference.name, reference.path] if reference.name is not None else [reference.url or reference.file_id]
    if reference.url is not None:
        check_and_redact_url(runtime.settings, reference.url)
    spec = replace(spec, idem_print=json.dumps([*place, format_]).encode())
    if spec.existing is not None:
        job_id = check_same_submission_and_get_id(spec, spec.existing)
        with suppress(UnknownJob):  # the job was deleted: submit it again
            return await runtime.db.read(job_records.get_job, job_id), False
    if reference.url is not None:
        # A worker downloads the file and detects its layout. Only then are its columns known.
        source = make_url_source(reference.url, format_=format_)
        spec = replace(spec, source=source, file_id=source.blob, file_bytes=0)
        return await submit_and_get_job(runtime.db, spec, built_in=True)
    await check_quota_before_upload(runtime.db, spec)
    file = await stage_referenced_file(runtime, reference, spec.owner_id)
    try:
        layout = await _detect_stored_layout(runtime, file, format_, spec.owner_id)
    except BaseException:
        await runtime.get(make_staged_files).discard(file.blob.id)
        raise
    return await submit_stored_file(runtime, spec, file.blob, file.name, layout)


async def _detect_stored_layout(runtime: Runtime, file: StagedFile, format_: str | None, owner_id: int) -> FileLayout:
    """Return the layout of a stored file: the given format, else that of its suffix, or detected from its content."""
    known = format_ or FORMATS_BY_SUFFIX.get(PurePath(file.name).suffix.lower())
    if known is not None and (format_ is not None or known not in DETECTED_FORMATS):
        return FileLayout(format=known)
    detect = runtime.file_reader.detect_layout
    return await runtime.get(make_inspection_gate).run(
        owner_id, partial(detect, file.blob.id, name=file.name, options={})
    )


async def submit_upload(runtime: Runtime, spec: Submission, blob: Blob, name: str, format_: str) -> tuple[Job, bool]:
    """Create a job from an upload; return it and whether it is new. ``spec`` comes from ``prepare_submission``."""
    fingerprint = blob.sha256 + format_.encode()  # the same file in another format is another submission
    return await submit_stored_file(
        runtime, replace(spec, idem_print=fingerprint), blob, name, FileLayout(format=format_)
    )


async def submit_local_file(runtime: Runtime, request: Submission, file: Path, format_: str | None = None) -> Job:
    """Create a job from a local file. The request is validated before the file is stored."""
    layout = _detect_local_layout(file, format_)
    spec = await prepare_submission(runtime, request, Role.ADMIN)
    blob = await runtime.get(make_staged_files).stage_file(file)
    return (await submit_stored_file(runtime, spec, blob, file.name, layout))[0]


def _detect_local_layout(file: Path, format_name: str | None) -> FileLayout:
    """Return the layout of a file: the format from its suffix, and the details of text files from their content."""
    suffix = file.suffix.lower()
    if format_name is None and (suffix in COMPRESSED_SUFFIXES or FORMATS_BY_SUFFIX.get(suffix) in DETECTED_FORMATS):
        return detect_layout(file)
    known_format = format_name or FORMATS_BY_SUFFIX.get(suffix, "")
    if known_format not in KNOWN_FORMATS:
        problem = f'Unknown format "{format_name}"' if format_name else f'Cannot detect the format of "{file.name}"'
        raise InvalidInput(f"{problem}. Set --format to one of {', '.join(KNOWN_FORMATS)}.")
    return FileLayout(format=known_format)


async def submit_stored_file(
    runtime: Runtime, spec: Submission, blob: Blob, name: str, layout: FileLayout
) -> tuple[Job, bool]:
    """Create a job from a stored file; return it and whether it is new. ``spec`` comes from ``prepare_submission``.

    The job owns the file. If the job is rejected or already exists, the file is removed. If the database fails and it
    is unknown whether the job exists, the file is kept, and maintenance removes it if there is no job.
    """
    staged = runtime.get(make_staged_files)
    try:
        hooks = runtime.kind_hooks.get(spec.kind)
        if hooks is not None and hooks.check_columns is not None:
            inspection = await inspect_file(
                runtime, blob.id, name=name, layout_options=layout.to_json(), owner_id=spec.owner_id
            )
            hooks.check_columns(spec, inspection.known_columns)
            layout = inspection.layout
        is_complete = layout != FileLayout(format=layout.format)
        source = SourceReference(blob=blob.id, format=layout.format, layout=layout if is_complete else None, name=name)
        spec = replace(spec, source=source, file_id=blob.id, file_bytes=blob.size)
        job, is_new = await submit_and_get_job(runtime.db, spec, built_in=True)
    except (InvalidInput, IdempotencyKeyReused, QuotaExceeded):
        await staged.discard(blob.id)
        raise
    if not is_new:
        await staged.discard(blob.id)
    return job, is_new


async def _find_existing_job(db: Database, spec: Submission) -> ExistingJob | None:
    """Return the job of this idempotency key; raise IdempotencyKeyReused if its parameters differ.

    Rows are not compared.
    """
    existing = (
        None if spec.idem_key is None else await db.run(find_job_by_idempotency_key, spec.owner_id, spec.idem_key)
    )
    if existing is None:
        return None
    parameters = (spec.kind, spec.params, spec.policy, spec.priority)
    if parameters != (existing.kind, existing.params, existing.policy, existing.priority):
        raise make_key_reused_error(spec)
    return existing


async def submit_job(
    db: Database, spec: Submission, rows: Iterable[bytes] = (), *, built_in: bool = False
) -> tuple[UUID, bool]:
    """Submit a job and all its rows in one transaction."""
    check_submission(spec, built_in=built_in)
    failpoint("submit.before_transaction")
    with _translate_transient_errors():
        async with db.transaction(bounded=False) as conn:
            job_id, is_new = await run_steps_async(conn, build_submission_steps(spec, rows))
            failpoint("submit.before_commit")
    failpoint("submit.after_commit")
    report_submitted_if_new(job_id, spec, is_new=is_new)
    return job_id, is_new


def submit_job_from_thread(
    loop: LoopRunner, db: Database, spec: Submission, rows: Iterable[bytes], *, built_in: bool = False
) -> tuple[UUID, bool]:
    """Submit a job like ``submit_job``, from a thread without an event loop. The caller's thread reads the rows."""
    check_submission(spec, built_in=built_in)
    with _translate_transient_errors(), loop.enter_on_loop(db.transaction(bounded=False)) as conn:
        job_id, is_new = run_steps_from_thread(conn, build_submission_steps(spec, rows), loop)
    report_submitted_if_new(job_id, spec, is_new=is_new)
    return job_id, is_new


@contextmanager
def _translate_transient_errors() -> Iterator[None]:
    """Raise Unavailable for transient errors.

    A submission is not retried: its rows may come from a generator, and the COMMIT may have succeeded.
    """
    try:
        yield
    except Exception as error:
        if not is_transient(error):
            raise
        raise Unavailable(
            "The database is not available. It is safe to retry if the request has an idempotency key."
        ) from error


async def submit_and_get_job(
    db: Database, spec: Submission, rows: Callable[[], Iterable[bytes]] = tuple, *, built_in: bool = False
) -> tuple[Job, bool]:
    """Submit a job and read it. If the job of a repeated key was deleted in the meantime, submit it again."""
    for _ in range(RESUBMIT_ATTEMPTS_MAX):
        job_id, is_new = await submit_job(db, spec, rows(), built_in=built_in)
        try:
            return await db.read(job_records.get_job, job_id), is_new
        except UnknownJob:
            if is_new:
                break
    raise Conflict("The job was deleted immediately after it was created")


async def submit_in_transaction(
    conn: Connection, spec: Submission, rows: Iterable[bytes], *, is_declared: bool = True
) -> tuple[UUID, bool]:
    """Submit a job in the caller's transaction. The job exists if and only if the transaction commits.

    A kind that this process does not declare gets the options that workers registered. A savepoint undoes a submission
    that fails, so that the caller can continue. In autocommit mode outside a transaction, the job is committed at once.
    """
    if not is_declared:
        spec = _apply_registered_options(spec, await workers.read_options_by_kind(conn))
    check_submission(spec, built_in=is_declared)
    _check_client_encoding(conn.info.encoding)
    if begins_transaction_implicitly(conn):
        await conn.execute(BEGINNING_STATEMENT)
    async with conn.transaction():
        return await run_steps_async(conn, build_submission_steps(spec, rows))


def submit_in_transaction_sync(
    conn: SyncConnection, spec: Submission, rows: Iterable[bytes], *, is_declared: bool = True
) -> tuple[UUID, bool]:
    """Submit a job like ``submit_in_transaction``, on a blocking connection."""
    if not is_declared:
        spec = _apply_registered_options(spec, workers.read_options_by_kind_sync(conn))
    check_submission(spec, built_in=is_declared)
    _check_client_encoding(conn.info.encoding)
    if begins_transaction_implicitly(conn):
        conn.execute(BEGINNING_STATEMENT)
    with conn.transaction():
        return run_steps_sync(conn, build_submission_steps(spec, rows))


def _check_client_encoding(encoding: str) -> None:
    """Raise InvalidInput unless the client encoding is UTF-8: rows are copied as UTF-8 bytes."""
    if encoding != "utf-8":
        raise InvalidInput(f"The client_encoding of the connection is {encoding}, but must be UTF8")


def report_submitted_if_new(job_id: UUID, spec: Submission, *, is_new: bool) -> None:
    if is_new:
        with bind_fields(request_id=spec.request_id, traceparent=spec.traceparent):
            emit("job.submitted", job=job_id, kind=spec.kind)
