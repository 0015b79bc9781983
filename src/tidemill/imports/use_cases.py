"""Importing a file into a table: looking at it, planning, submitting.

A look at a file before it is imported: its first rows, checked by themselves.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict
from uuid import UUID, uuid4

import msgspec

from tidemill.core.errors import IdempotencyKeyReused, InvalidInput
from tidemill.core.file_layout import FileLayout
from tidemill.core.input_source import InputSource, SourceReference, resolve_line_number
from tidemill.core.job import Job
from tidemill.core.json_types import JsonObject
from tidemill.core.kinds import IMPORT_KIND
from tidemill.core.principal import Principal
from tidemill.files.blobs.blob_store import Blob
from tidemill.files.layout import validate_layout
from tidemill.imports.failed_rows import RowWithErrors, list_row_errors
from tidemill.imports.import_plan import ImportPlan, ImportRequest, make_import_plan, map_file_columns
from tidemill.imports.validation.field_reader import Normalizer
from tidemill.imports.validation.row_checker import RowChecker
from tidemill.jobs.file_inspection import FileInspection, check_record_format
from tidemill.jobs.staged_files import make_staged_files
from tidemill.jobs.submission import submit_job
from tidemill.runtime import KindHooks, Runtime
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission, find_by_idempotency_key, find_repeated_submission
from tidemill.store.jsonb import decode_input, encode_json
from tidemill.tables.introspection.table_introspection import list_missing_privileges
from tidemill.tables.resource import Resource
from tidemill.tables.resource_registry import make_resource_registry


class ImportUseCases:
    """Imports from files in the blob store."""

    def __init__(self, runtime: Runtime) -> None:
        self._db = runtime.db
        self._staged_files = runtime.get(make_staged_files)
        self._open_source = runtime.source_opener

    async def plan_import(self, inspection: FileInspection, resource: Resource, request: ImportRequest) -> ImportPlan:
        plan = make_import_plan(request, resource, inspection.columns, named_by_rows=inspection.is_named_by_rows)
        await check_table_privileges(self._db, plan)
        return plan

    async def open_source(self, blob_id: str, layout: FileLayout) -> InputSource:
        """The records of a stored file, from the first one on; the caller closes the source."""
        reference = SourceReference(blob=blob_id, format=layout.format, layout=layout)
        return await asyncio.to_thread(self._open_source, reference, {}, lambda: True)

    async def find_repeated(
        self, spec: Submission, blob: Blob, inspection: FileInspection, request_params: JsonObject
    ) -> UUID | None:
        """The job that the same words and the same file have made before, whatever the table looks like by now."""
        return await self._db.run(find_repeated_submission, _with_fingerprint(spec, blob, inspection, request_params))

    async def submit(
        self,
        spec: Submission,
        blob: Blob,
        inspection: FileInspection,
        plan: ImportPlan,
        request_params: JsonObject,
        name: str,
    ) -> tuple[UUID, bool]:
        """The job, and whether it is new. The file is the job's own from here on, or removed."""
        params = {"asked": request_params, "plan": msgspec.to_builtins(plan)}
        layout = inspection.layout
        source = SourceReference(blob=blob.id, format=layout.format, layout=layout, name=name)
        spec = replace(_with_fingerprint(spec, blob, inspection, request_params), params=params, source=source)
        spec = replace(spec, sparse=True, file_id=blob.id)
        try:
            job_id, is_new = await submit_job(self._db, spec, built_in=True)
        except (InvalidInput, IdempotencyKeyReused):
            await self._staged_files.discard(blob.id)
            raise
        if not is_new:
            await self._staged_files.discard(blob.id)
        return job_id, is_new

    async def submit_remote(
        self, spec: Submission, url: str, resource: Resource, request: ImportRequest, request_params: JsonObject
    ) -> tuple[UUID, bool]:
        """A job whose file is fetched by a worker; what it is planned to do is known when its columns are."""
        options = request_params.get("layout") or {}
        check_record_format(options)
        stored = {"resource": msgspec.to_builtins(resource), "request": msgspec.to_builtins(request)}
        params = {"asked": request_params, **stored}
        blob_id = uuid4().hex
        from tidemill.files.remote.remote_urls import get_url_file_name  # noqa: PLC0415  an HTTP client comes with it

        layout, name = validate_layout(options), get_url_file_name(url)
        source = SourceReference(blob=blob_id, url=url, layout=layout, name=name)
        spec = replace(spec, kind=IMPORT_KIND, params=params, source=source, sparse=True, file_id=blob_id)
        return await submit_job(
            self._db, replace(spec, fingerprint_params=request_params, idem_print=url.encode()), built_in=True
        )

    async def find_existing(self, spec: Submission, request_params: JsonObject) -> UUID | None:
        """The job this owner's key made already, of the same words; KeyReused if it stands for others.

        Before a byte of the file is read: only where the words say where it is are they all that there is to compare.
        """
        found = (
            None if spec.idem_key is None else await self._db.run(find_by_idempotency_key, spec.owner_id, spec.idem_key)
        )
        if found is None:
            return None
        if found["params"].get("asked") != request_params:
            raise IdempotencyKeyReused(f"idempotency key {spec.idem_key!r} was used for another submission")
        return UUID(str(found["id"]))


async def check_table_privileges(db: Database, plan: ImportPlan) -> None:
    """InvalidInput if the table cannot be written, or if keys and references cannot be looked up."""
    resource, given, lacking = plan.resource, set(plan.mapped_fields), []
    if not plan.validate_only:
        lacking += await db.run(list_missing_privileges, resource.table, _list_target_columns(plan), plan.mode)
    keys = [resource.get_field(name).column for fields in plan.unique_field_sets for name in fields]
    if keys and (plan.validate_only or plan.mode == "insert"):
        lacking += await db.run(list_missing_privileges, resource.table, list(dict.fromkeys(keys)), "read")
    for one in resource.references:
        if given.issuperset(one.fields):
            lacking += await db.run(list_missing_privileges, one.table, one.columns, "read")
    if lacking:
        what = "read" if plan.validate_only else "written"
        raise InvalidInput(f"{resource.table} cannot be {what}: {'; '.join(dict.fromkeys(lacking))}")


def _with_fingerprint(spec: Submission, blob: Blob, look: FileInspection, asked: dict[str, Any]) -> Submission:
    """A key that comes again stands for what was said and sent, and not for what the catalog made of it."""
    refers = not {"name", "file_id"}.isdisjoint(asked.get("source", ()))  # and its file may be another one by now
    same = b"" if refers else blob.sha256 + msgspec.json.encode(look.layout.to_json(), order="deterministic")
    return replace(spec, kind=IMPORT_KIND, fingerprint_params=asked, idem_print=same)


def _list_target_columns(plan: ImportPlan) -> list[str]:
    return [plan.resource.get_field(name).column for name in plan.mapped_fields]


PREVIEW_ROWS_MAX = 1_000  # rows


class PreviewField(TypedDict):
    name: str
    type: str
    required: bool


class ImportPreview(TypedDict):
    """What an import of a file would do, without doing it."""

    resource_type: str
    layout: dict[str, str | int | bool]
    columns: list[str]
    mapping: dict[str, str]
    unknown: list[str]
    missing: list[str]
    problems: list[str]
    fields: list[PreviewField]
    rows: list[RowWithErrors]


async def preview_import(
    imports: ImportUseCases,
    inspection: FileInspection,
    resource: Resource,
    request: ImportRequest,
    normalizers: Mapping[str, Normalizer] | None = None,
) -> ImportPreview:
    """The layout, the columns and their fields, all problems of the request, and the errors of the first rows."""
    found = map_file_columns(request, resource, inspection.columns, named_by_rows=inspection.is_named_by_rows)
    problems = list(found.problems)
    if not problems:
        try:
            await imports.plan_import(inspection, resource, request)
        except InvalidInput as error:
            problems.append(str(error))
    mapping = {column: name for column, name in found.mapping.items() if name in resource.field_names}
    plan = ImportPlan(
        resource=resource,
        mode=request.mode,
        mapping=mapping,
        columns=inspection.columns,
        spreadsheet_safe=request.spreadsheet_safe,
        keep_empty=request.keep_empty,
        documents=request.keep_empty and inspection.is_named_by_rows,
    )
    checker = RowChecker(plan, normalizers)
    return {
        "resource_type": resource.name,
        "layout": inspection.layout.to_json(),
        "columns": list(inspection.columns),
        "mapping": {column: name for column, name in mapping.items() if column in inspection.columns},
        "unknown": found.unknown,
        "missing": found.missing,
        "problems": problems,
        "fields": [
            {"name": one.name, "type": one.type, "required": one.is_required_for_insert} for one in resource.fields
        ],
        "rows": _check_sample_rows(inspection, checker, found.unknown),
    }


def _check_sample_rows(look: FileInspection, checker: RowChecker, unknown: list[str]) -> list[RowWithErrors]:
    """Columns that are no field were told once, and not again with every row."""
    known = [
        {k: v for k, v in row.items() if k not in unknown} if isinstance(row, dict) else row for row in look.records
    ]
    flaws = checker.check(known).errors.build_details()
    rows: list[RowWithErrors] = []
    for index, record in enumerate(look.records):
        row = index + 1
        line = resolve_line_number(row, None if look.lines is None else look.lines[index], look.first_line)
        error = look.defects.get(index) or flaws.get(index)
        errors = list_row_errors(error, row, line) if error else []
        rows.append({"row": row, "line": line, "errors": errors, "input": _to_displayed_input(record)})
    return rows


def _to_displayed_input(record: Any) -> Any:
    """As inputs are shown everywhere: the check has needed all digits of a fraction."""
    return decode_input(encode_json(record, exact=True).decode())


def make_import_use_cases(runtime: Runtime) -> ImportUseCases:
    return ImportUseCases(runtime)


def _get_target(job: Job) -> str | None:
    plan = job.params.get("plan")
    return plan["resource"]["name"] if plan else None


async def _authorize(runtime: Runtime, user: Principal, resource: str) -> None:
    await runtime.get(make_resource_registry).find_writable(runtime.db, user.role, resource)


IMPORT_HOOKS = KindHooks(get_target=_get_target, authorize=_authorize)
