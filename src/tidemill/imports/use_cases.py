"""Submits imports, and treats their jobs in code that all kinds share."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

import msgspec

from tidemill.core.errors import IdempotencyKeyReused, InvalidColumns, InvalidInput, QuotaExceeded, UnknownJob
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import InputSource, SourceReference
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.core.kinds import IMPORT_KIND
from tidemill.core.principal import Principal, Role
from tidemill.files.layout import parse_layout_options
from tidemill.imports import import_records
from tidemill.imports.failed_rows import (
    list_rows_with_errors,
)
from tidemill.imports.import_plan import ImportParams, ImportRequest, map_file_columns
from tidemill.imports.import_submission import (
    ImportFile,
    ImportOptions,
    ImportSource,
    ImportSubmission,
    SubmittedImport,
    check_requested_rules,
    inspect_and_complete_submission,
    inspect_import_file,
    make_plan_and_check_privileges,
    resolve_constants,
    uses_owner_name,
)
from tidemill.imports.lookups import LookupProposal, make_lookup_planner, propose_lookups
from tidemill.imports.table_checks import check_constants_in_database
from tidemill.imports.validation.row_checker import convert_constants
from tidemill.jobs import queries
from tidemill.jobs.file_inspection import FileInspection, check_record_format
from tidemill.jobs.staged_files import (
    FileReference,
    check_and_redact_url,
    make_staged_files,
    make_url_source,
    stage_referenced_file,
)
from tidemill.jobs.submission import check_submission, submit_job
from tidemill.runtime import KindHooks, Runtime
from tidemill.store.job_events import compute_rate, compute_ratio
from tidemill.store.job_submission import (
    ExistingJob,
    Submission,
    check_same_submission_and_get_id,
    find_job_by_idempotency_key,
    make_key_reused_error,
)
from tidemill.store.users import get_user
from tidemill.tables.resource import Resource
from tidemill.tables.resource_registry import make_resource_registry
from tidemill.tables.values.value_formats import get_value_format
from tidemill.telemetry.events import emit

LOCAL_IMPORT = Submission(IMPORT_KIND)  # by the local user, without an idempotency key


class ImportUseCases:
    """Submits imports. Callers call ``check_and_prepare_submission`` before they read the file."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._db = runtime.db
        self._staged_files = runtime.get(make_staged_files)

    async def check_and_prepare_submission(
        self,
        options: ImportOptions,
        *,
        role: Role | None,
        spec: Submission = LOCAL_IMPORT,
        is_application: bool | None = None,
    ) -> ImportSubmission:
        """Check the options and the permission, and look up the idempotency key.

        Args:
            options: The target, the layout and the rules of the import.
            role: The caller's role. None means a local caller, who may import into every table.
            spec: The owner, the idempotency key and the origin of the request.
            is_application: Whether the caller may set the constants that the resource takes from the application. By
                default, only a local caller may.

        Raises:
            InvalidInput: An option is invalid.
            Forbidden, UnknownResource: The role has no write access to the resource.
            Forbidden: Only the application can set a constant of the resource.
            IdempotencyKeyReused: The key was used for a submission with other options.
        """
        check_record_format(options.layout)
        for name in options.request.formats.values():
            get_value_format(name)
        layout = parse_layout_options(options.layout_options)
        if "url" in options.source:
            url = check_and_redact_url(self._runtime.settings, str(options.source["url"]))
            options = replace(options, source={**options.source, "url": url})
        stored = options.to_stored_request(layout)
        spec = replace(
            spec,
            kind=IMPORT_KIND,
            policy=dict(options.policy),
            priority=options.priority,
            fingerprint_params=stored,
        )
        check_submission(spec, built_in=True)
        resources = self._runtime.get(make_resource_registry)
        if role is None:
            resource = await resources.get_resource(self._db, options.resource, any_table=True)
        else:
            resource = await resources.get_writable_resource(self._db, role, options.resource)
        is_application = role is None if is_application is None else is_application
        resource = await self._resolve_rules(options.request, resource, spec.owner_id, is_application=is_application)
        return ImportSubmission(
            spec=spec,
            resource=await make_lookup_planner(self._runtime, role).plan(resource, options.request),
            role=role,
            request=options.request,
            layout=layout,
            stored_request=stored,
            existing_job=await self._find_existing_job(spec),
        )

    async def _resolve_rules(
        self, request: ImportRequest, resource: Resource, owner_id: int, *, is_application: bool
    ) -> Resource:
        """Check the rules of a request, and return the resource with the values of its constants."""
        check_requested_rules(request, resource)
        owner_name = ""
        if uses_owner_name(request, resource):
            owner_name = (await self._db.run(get_user, str(owner_id))).name
        resolved = resolve_constants(
            request, resource, owner_id=owner_id, owner_name=owner_name, is_application=is_application
        )
        constants = {**request.constants, **resolved.constants}
        converted = convert_constants(resolved, constants, self._runtime.declarations.normalizers)
        for name, source in resource.constants_from.items():
            if source == "owner" and converted[name] != owner_name:  # the names of two users could become one
                raise InvalidInput(
                    f'The field "{name}" of {resource.name} changes the name of the owner. Remove its normalizers.'
                )
        return resolved

    async def was_exported_spreadsheet_safe(self, reference: FileReference) -> bool:
        """Return whether an export wrote the referenced file with spreadsheet-safe cells."""
        if reference.file_id is None:
            return False
        return await self._db.read(import_records.is_spreadsheet_safe_file, reference.file_id)

    async def submit(self, submission: ImportSubmission, source: ImportSource) -> SubmittedImport:
        """Create the job of an import, or return the job that the same submission created before."""
        if isinstance(source, ImportFile):
            return await self.submit_file(submission, source)
        if source.url is not None:
            return await self.submit_url(submission, source.url)
        existing = submission.existing_job
        if existing is not None and await self._does_job_still_exist(existing.id):  # the options contain the reference
            return SubmittedImport(existing.id, is_new=False)
        staged = await stage_referenced_file(self._runtime, source, submission.spec.owner_id)
        return await self.submit_file(submission, staged)

    async def submit_file(self, submission: ImportSubmission, file: ImportFile) -> SubmittedImport:
        """Create the job of an import, which then owns the file. If no job is created, delete the file.

        Raises:
            InvalidInput, InvalidColumns: The file cannot be read, or its columns do not match the resource.
            IdempotencyKeyReused: The key was used for a submission with another file.
            Unavailable: The database cannot confirm the job. A file without a job is deleted later.
        """
        blob_id = file.blob.id
        async with self._discard_staged_file_on_error(blob_id):
            submission, inspection, remembered = await inspect_and_complete_submission(self._runtime, submission, file)
            spec = _add_file_fingerprint(submission, file, inspection)
            # A repeated submission returns the first job even if the table has changed and the plan would fail.
            if submission.existing_job is not None:
                job_id = check_same_submission_and_get_id(spec, submission.existing_job)
                if await self._does_job_still_exist(job_id):
                    await self._staged_files.discard(blob_id)
                    return SubmittedImport(job_id, is_new=False, layout=inspection.layout)
            try:
                plan = await make_plan_and_check_privileges(
                    self._runtime, inspection, submission.resource, submission.request
                )
            except InvalidColumns as error:
                proposals = await self._propose_lookups(submission, inspection)
                raise InvalidColumns([*error.problems, *(one.describe() for one in proposals)]) from error
        layout = inspection.layout
        source = SourceReference(blob=blob_id, format=layout.format, layout=layout, name=file.name)
        params = {"asked": submission.stored_request, "plan": msgspec.to_builtins(plan)}
        spec = replace(
            spec,
            params=params,
            source=source,
            sparse=True,
            file_id=blob_id,
            file_bytes=file.blob.size,
            requires=submission.resource.requirements,
        )
        try:
            job_id, is_new = await submit_job(self._db, spec, built_in=True)
        except (
            InvalidInput,
            IdempotencyKeyReused,
            QuotaExceeded,
        ):  # after other errors, the job may exist and own the file
            await self._staged_files.discard(blob_id)
            raise
        if not is_new:
            await self._staged_files.discard(blob_id)
        return SubmittedImport(job_id, is_new, layout, remembered)

    async def _propose_lookups(self, submission: ImportSubmission, inspection: FileInspection) -> list[LookupProposal]:
        """Return lookups for unknown columns of the file that are named like a reference."""
        mapped = map_file_columns(
            submission.request,
            submission.resource,
            inspection.columns,
            named_by_rows=inspection.is_named_by_rows,
        )
        if not mapped.unknown:
            return []
        choices = await make_lookup_planner(self._runtime, submission.role).list_choices(submission.resource)
        return propose_lookups(choices, submission.resource, mapped)

    async def read_columns(self, submission: ImportSubmission, file: ImportFile) -> Sequence[str] | None:
        """Return the columns of a file; None if each row names its own fields, so that later rows may have others."""
        inspection = await inspect_import_file(self._runtime, submission, file)
        return None if inspection.is_named_by_rows else inspection.columns

    async def _does_job_still_exist(self, job_id: UUID) -> bool:
        """Return whether a job was not deleted since its idempotency key was looked up; an upload can take minutes."""
        try:
            await queries.get_job(self._db, job_id)
        except UnknownJob:
            return False
        return True

    async def submit_url(self, submission: ImportSubmission, url: str) -> SubmittedImport:
        """Create the job of an import whose file a worker downloads. The worker makes the plan from the columns."""
        constants = {**submission.request.constants, **submission.resource.constants}
        constants = convert_constants(submission.resource, constants, self._runtime.declarations.normalizers)
        await self._db.run(check_constants_in_database, submission.resource, constants)
        source = make_url_source(url, layout=submission.layout)
        params = {
            "asked": submission.stored_request,
            "resource": msgspec.to_builtins(submission.resource),
            "request": msgspec.to_builtins(submission.request),
        }
        spec = replace(
            submission.spec,
            params=params,
            source=source,
            sparse=True,
            file_id=source.blob,
            file_bytes=0,
            idem_print=url.encode(),
            requires=submission.resource.requirements,
        )
        return SubmittedImport(*await submit_job(self._db, spec, built_in=True))

    async def open_source(self, blob_id: str, layout: FileLayout) -> InputSource:
        """Open a stored file at its first record. The caller closes the source."""
        reference = SourceReference(blob=blob_id, format=layout.format, layout=layout)
        return await asyncio.to_thread(self._runtime.file_reader.open_source, reference, {})

    async def read_report(self, job: Job) -> "ImportReport":
        """Return the effects of an import on the table, and one example for each of its most frequent errors."""
        effects = await self._db.read(import_records.sum_import_effects, job.id)
        counts = await self._db.read(import_records.count_rows_by_error, job.id) if job.counts.failed else {}
        codes = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:REPORTED_ERROR_CODES_MAX]
        created = await self._db.read(import_records.count_created_references, job.id)
        return ImportReport(
            effects, [(count, await self._read_sample_error(job, code)) for code, count in codes], created
        )

    async def _read_sample_error(self, job: Job, code: str) -> JsonObject:
        page = await list_rows_with_errors(self._db, job, limit=1, codes=[code])
        found = [error for row in page.items for error in row["errors"] if error["code"] == code]
        return {name: value for name, value in found[0].items() if value is not None} if found else {"code": code}

    async def _find_existing_job(self, spec: Submission) -> ExistingJob | None:
        """Return the job that this idempotency key created with the same options. The file is not compared."""
        if spec.idem_key is None:
            return None
        existing = await self._db.run(find_job_by_idempotency_key, spec.owner_id, spec.idem_key)
        if existing is None:
            return None
        if existing.params.get("asked") != spec.fingerprint_params:
            raise make_key_reused_error(spec)
        return existing

    @asynccontextmanager
    async def _discard_staged_file_on_error(self, blob_id: str) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self._staged_files.discard(blob_id)
            raise


def _add_file_fingerprint(submission: ImportSubmission, file: ImportFile, inspection: FileInspection) -> Submission:
    """Add a fingerprint of the file, so that an idempotency key covers the options and the file, not the catalog."""
    source = submission.stored_request.get("source", {})
    is_reference = not {"name", "file_id"}.isdisjoint(source)  # the file at this reference may have changed since
    layout = msgspec.json.encode(inspection.layout.to_json(), order="deterministic")
    return replace(submission.spec, idem_print=b"" if is_reference else file.blob.sha256 + layout)


REPORTED_ERROR_CODES_MAX = 20


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import, for its report on a terminal."""

    effects: Mapping[str, int]
    error_samples: Sequence[tuple[int, JsonObject]]
    """The number of rows with an error code, and an example of such an error."""
    created: Mapping[str, int] = field(default_factory=dict)  # rows in referenced tables, by table


def make_import_use_cases(runtime: Runtime) -> ImportUseCases:
    return ImportUseCases(runtime)


def _get_target_resource_of_import(job: Job) -> str | None:
    source = job.params.get("plan") or job.params
    return source["resource"]["name"] if source.get("resource") else None


async def _check_target_writable(runtime: Runtime, user: Principal, resource: str) -> None:
    await runtime.get(make_resource_registry).get_writable_resource(runtime.db, user.role, resource)


async def _check_lookups_allowed(runtime: Runtime, user: Principal, job: Job) -> None:
    plan = ImportParams.from_json(job.params).plan
    if plan is not None:
        await make_lookup_planner(runtime, user.role).check_allowed(plan.resource)


def _report_import_completed(job: Job, seconds: float) -> None:
    # An import that ends before its file is fetched has the request instead of a plan.
    counts, plan = job.counts, job.params.get("plan") or job.params["request"]
    emit(
        "import.completed",
        job=job.id,
        resource_type=_get_target_resource_of_import(job),
        mode="validate_only" if plan["validate_only"] else plan["mode"],
        status=job.status,
        total_records=counts.total,
        successful_records=counts.done,
        skipped_records=counts.skipped,
        failed_records=counts.failed,
        duration_ms=round(seconds * 1000),
        rows_per_sec=compute_rate(counts.processed, seconds),
        error_rate=compute_ratio(counts.failed, counts.processed),
    )


def _describe_invalid_rows(job: Job) -> str:
    return f"invalid import rows: the same input fails again. Fix them first: tidemill fix {job.key} FILE"


IMPORT_HOOKS = KindHooks(
    get_target=_get_target_resource_of_import,
    authorize=_check_target_writable,
    authorize_job=_check_lookups_allowed,
    describe_invalid_rows=_describe_invalid_rows,
    after_close=_report_import_completed,
)
