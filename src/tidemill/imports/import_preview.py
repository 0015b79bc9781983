"""Previews of imports: the layout, the column mapping and the first rows of a file, with all problems."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

from tidemill.core.errors import AmbiguousFormats, InvalidInput
from tidemill.core.file_format import list_layout_doubts
from tidemill.core.input_source import resolve_line_number
from tidemill.core.json_input import JsonObject
from tidemill.imports.failed_rows import (
    RejectedValue,
    RowWithErrors,
    build_row_error_views,
    count_rejected_values,
)
from tidemill.imports.format_detection import (
    KNOWN_FORMATS,
    FormatFinding,
    describe_given_formats,
    resolve_formats,
)
from tidemill.imports.import_plan import (
    ImportPlan,
    add_rules_to_plan,
    choose_given_formats,
    detect_formats_of_plan,
    is_spreadsheet_safe,
    list_fields_closed_to_columns,
    map_file_columns,
    normalize_translations,
)
from tidemill.imports.import_submission import (
    ImportFile,
    ImportSource,
    ImportSubmission,
    get_file_content,
    inspect_and_complete_submission,
    make_plan_and_check_privileges,
)
from tidemill.imports.lookups import LookupChoices, count_found_values, make_lookup_planner, propose_lookups
from tidemill.imports.validation.row_checker import CheckedRows, RowChecker, convert_constants
from tidemill.jobs.file_inspection import FileInspection
from tidemill.jobs.staged_files import FileReference, StagedFiles, download_file, stage_referenced_file
from tidemill.runtime import Runtime
from tidemill.store.jsonb import decode_input_or_text, encode_json
from tidemill.tables.resource import Resource

PREVIEW_ROWS_MAX = 1_000


class PreviewField(TypedDict):
    name: str
    type: str
    required: bool
    allowed: list[str]
    closed: bool  # the import sets the field itself


class ImportPreview(TypedDict):
    """The layout, the column mapping and the first rows of a file, with all problems and errors."""

    resource_type: str
    layout: dict[str, str | int | bool]
    findings: list[dict[str, str | int | bool | float]]
    columns: list[str]
    mapping: dict[str, str]
    unknown: list[str]
    missing: list[str]
    undo: bool
    problems: list[str]
    fields: list[PreviewField]
    lookups: list[JsonObject]
    lookup_proposals: list[JsonObject]
    formats: list[dict[str, Any]]
    known_formats: list[dict[str, Any]]
    rejected_values: dict[str, list[RejectedValue]]
    rows: list["PreviewRow"]
    remembered: JsonObject | None
    constants: dict[str, str]
    computed: dict[str, str]
    skip: list[str]
    forced_fields: list[str]
    forced_skip: list[str]


class PreviewRow(RowWithErrors):
    """A row, with the values that the import computes and the reason why it skips the row."""

    computed: dict[str, str | None]
    skipped: str | None


async def preview_import_and_delete_file(
    runtime: Runtime, staged_files: StagedFiles, submission: ImportSubmission, source: ImportSource, *, rows: int
) -> ImportPreview:
    """Check the first rows of a file, and delete the file."""
    owner_id = submission.spec.owner_id
    file = await _stage_for_preview(runtime, source, owner_id) if isinstance(source, FileReference) else source
    try:
        submission, inspection, remembered = await inspect_and_complete_submission(
            runtime, submission, file, PREVIEW_ROWS_MAX, allow_doubts=True
        )
        preview = await _build_preview(runtime, inspection, submission, rows)
        return {**preview, "remembered": None if remembered is None else remembered.to_json()}
    finally:
        await staged_files.discard(file.blob.id)


@contextmanager
def open_runtime_for_local_preview(runtime: Runtime) -> Iterator[tuple[Runtime, StagedFiles]]:
    """Yield a runtime that stores files in a temporary folder, and its staged files, without records in the database.

    The database may lack the schema of Tidemill, and the user may lack all privileges except to read the table.
    """
    with TemporaryDirectory(prefix="tidemill-preview-") as folder:
        local = runtime.copy_with_settings(blobs=folder)
        yield local, StagedFiles(None, local.blobs)


async def _stage_for_preview(runtime: Runtime, reference: FileReference, owner_id: int) -> ImportFile:
    if reference.url is not None:
        return await download_file(runtime, reference.url, owner_id)
    return await stage_referenced_file(runtime, reference, owner_id)


async def _build_preview(
    runtime: Runtime, inspection: FileInspection, submission: ImportSubmission, shown_rows: int
) -> ImportPreview:
    """Return the layout, the column mapping, all problems of the request, and the errors of the first rows."""
    resource, request = submission.resource, submission.request
    translations = normalize_translations(request.translations, resource)
    mapped = await asyncio.to_thread(
        map_file_columns, request, resource, inspection.columns, named_by_rows=inspection.is_named_by_rows
    )
    problems = list(mapped.problems)
    doubts = list_layout_doubts(inspection.findings)
    if not problems:
        try:
            await make_plan_and_check_privileges(runtime, inspection, resource, request)
        except AmbiguousFormats as error:
            problems += error.problems
        except InvalidInput as error:
            problems.append(str(error))
    fields, columns = resource.input_fields, set(inspection.columns)
    closed = list_fields_closed_to_columns(request, resource)
    mapping = {column: name for column, name in mapped.mapping.items() if name in fields}
    plan = ImportPlan(
        resource=resource,
        mode=request.mode,
        mapping=mapping,
        columns=inspection.columns,
        translations=translations,
        spreadsheet_safe=is_spreadsheet_safe(request, inspection.columns, named_by_rows=inspection.is_named_by_rows),
        keep_empty=request.keep_empty,
        documents=request.keep_empty and inspection.is_named_by_rows,
        rejects_ambiguous_numbers=not request.keep_empty,
    )
    with suppress(InvalidInput):  # it is one of the problems
        with_rules = add_rules_to_plan(plan, request)
        convert_constants(resource, with_rules.constants, runtime.declarations.normalizers)
        plan = with_rules
    formats: list[FormatFinding] = []
    with suppress(InvalidInput):  # it is one of the problems
        given = choose_given_formats(request, resource, mapping)
        formats = await asyncio.to_thread(detect_formats_of_plan, plan, get_file_content(inspection), given)
        chosen, _ = resolve_formats(formats, given, assume=True)
        plan = replace(plan, formats=chosen)
        formats += describe_given_formats(plan.get_fields_by_column(), inspection.sample, given)
    checker = RowChecker(plan, runtime.declarations.normalizers)
    checked = await asyncio.to_thread(_check_preview_rows, inspection, checker, set(mapped.unknown))
    found = await count_found_values(runtime.db, plan, checked)
    rows = await asyncio.to_thread(_build_preview_rows, inspection, checker, checked)
    choices = await make_lookup_planner(runtime, submission.role).list_choices(resource)
    composite = {one.field for one in resource.lookups if len(one.by) > 1}  # their errors show several texts
    return {
        "resource_type": resource.name,
        "layout": inspection.layout.to_json(),
        "findings": [each.to_json() for each in inspection.findings],
        "columns": list(inspection.columns),
        "mapping": {column: name for column, name in mapping.items() if column in columns},
        "unknown": mapped.unknown,
        "missing": mapped.missing,
        "undo": resource.undo if request.undo is None else request.undo,
        "problems": doubts + problems,
        "fields": [
            {
                "name": one.name,
                "type": one.type,
                "required": one.is_required_for_insert,
                "allowed": list(one.enum),
                "closed": one.name in closed,
            }
            for one in fields.values()
        ],
        "lookups": [_build_lookup_view(one, resource, mapping, found.get(one.field)) for one in choices],
        "lookup_proposals": [one.to_json() for one in propose_lookups(choices, resource, mapped)],
        "formats": [each.to_json() for each in formats],
        "known_formats": KNOWN_FORMATS,
        "rejected_values": {
            name: values for name, values in count_rejected_values(checked.errors).items() if name not in composite
        },
        "rows": rows[:shown_rows],
        "remembered": None,
        "constants": {**request.constants, **resource.constants},
        "computed": {**request.computed, **resource.computed},
        "skip": list(dict.fromkeys([*resource.skip, *request.skip])),
        "forced_fields": sorted(resource.forced_fields),
        "forced_skip": list(resource.skip),
    }


def _build_lookup_view(
    choices: LookupChoices, resource: Resource, mapping: Mapping[str, str], found: Mapping[str, int] | None
) -> JsonObject:
    planned = next((one for one in resource.lookups if one.field == choices.field), None)
    return {
        **choices.to_json(),
        "column": next((column for column, name in mapping.items() if name == choices.field), None),
        "by": [] if planned is None else list(planned.columns),
        "create": planned is not None and planned.create,
        "values": found,
    }


def _check_preview_rows(inspection: FileInspection, checker: RowChecker, unknown: set[str]) -> CheckedRows:
    """Check the first rows. Unknown columns are problems of the preview, not of every row."""
    known = [
        {column: value for column, value in record.items() if column not in unknown}
        if isinstance(record, dict)
        else record
        for record in inspection.records
    ]
    return checker.check_rows(known)


def _build_preview_rows(inspection: FileInspection, checker: RowChecker, checked: CheckedRows) -> list[PreviewRow]:
    invalid_rows = checked.errors.build_details_by_row()
    rows: list[PreviewRow] = []
    for index, record in enumerate(inspection.records):
        row = index + 1
        file_line = None if inspection.lines is None else inspection.lines[index]
        line = resolve_line_number(row, file_line, inspection.first_line)
        error = inspection.defects.get(index) or invalid_rows.get(index)
        errors = build_row_error_views(error, row, line) if error else []
        rows.append(
            {
                "row": row,
                "line": line,
                "errors": errors,
                "input": _to_displayed_input(record),
                "computed": {name: checked.columns[name][index] for name in checker.computed_fields},
                "skipped": checked.skipped.get(index),
            }
        )
    return rows


def _to_displayed_input(record: Any) -> Any:
    """Return the record as the API shows inputs. Only the check needs all digits of a fraction."""
    return decode_input_or_text(encode_json(record, exact=True).decode())
