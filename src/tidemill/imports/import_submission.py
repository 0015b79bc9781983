"""Options, files and results of import submissions, and the inspection of their files."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, time
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

import msgspec

from tidemill.core.errors import Forbidden, InvalidInput, format_suggestion
from tidemill.core.file_format import DetectedLayout, FileLayout
from tidemill.core.json_input import JsonObject
from tidemill.core.principal import Role
from tidemill.files.layout import parse_layout_options
from tidemill.imports.import_plan import (
    FileContent,
    ImportPlan,
    ImportRequest,
    check_table_privileges,
    make_import_plan,
)
from tidemill.imports.lookups import make_lookup_planner
from tidemill.imports.remembered_mappings import MappingProposal, propose_mapping
from tidemill.imports.table_checks import check_constants_in_database
from tidemill.imports.undo_log import check_undo_is_possible
from tidemill.imports.validation.row_checker import convert_constants
from tidemill.jobs.file_inspection import SAMPLE_ROWS, FileInspection, inspect_file
from tidemill.jobs.staged_files import FileReference, StagedFile
from tidemill.runtime import Runtime
from tidemill.store.job_submission import ExistingJob, Submission
from tidemill.store.users import get_user
from tidemill.tables.resource import Resource
from tidemill.tables.row_rules import (
    COMPUTED_MAX,
    CONSTANTS_MAX,
    CONSTANTS_MAX_CHARS,
    SKIP_RULES_MAX,
    check_constant_text,
    parse_computed_rule,
    parse_skip_rule,
)

REMOTE_URL_PREFIXES = ("http://", "https://")


def is_remote_url(text: str) -> bool:
    """Whether the text is a URL that a worker downloads, and not a path."""
    return text.startswith(REMOTE_URL_PREFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The options of an import, without the file."""

    resource: str
    request: ImportRequest = field(default_factory=ImportRequest)
    layout: Mapping[str, object] = field(default_factory=dict)  # options that override detection
    policy: Mapping[str, object] = field(default_factory=dict)
    priority: int = 0
    source: Mapping[str, object] = field(default_factory=dict)  # where the file comes from, without secrets

    @property
    def layout_options(self) -> Mapping[str, object]:
        return {**self.layout, "keep_empty": True} if self.request.keep_empty else self.layout

    def to_stored_request(self, layout: FileLayout) -> JsonObject:
        """Return the options as the job stores them. They are compared when an idempotency key is repeated."""
        source = {"source": dict(self.source)} if self.source else {}
        return {
            "resource": self.resource,
            "layout": layout.to_json(),
            "policy": dict(self.policy),
            "priority": self.priority,
            **msgspec.to_builtins(self.request),
            "key": list(self.request.key),  # as JSON returns it
            "skip": list(self.request.skip),
            **source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSubmission:
    """An import with checked options, without its file."""

    spec: Submission
    resource: Resource
    request: ImportRequest = field(default_factory=ImportRequest)
    layout: FileLayout = field(default_factory=FileLayout)
    stored_request: JsonObject = field(default_factory=dict)
    role: Role | None = None  # of the caller; None is a local caller
    uses_memory: bool = False  # complete the request from a remembered mapping
    existing_job: ExistingJob | None = None
    """The job of an earlier request that had the same idempotency key and the same options."""

    def copy_with_request(self, request: ImportRequest, layout: FileLayout) -> "ImportSubmission":
        """Return the submission with other options of the file."""
        options = msgspec.to_builtins(request)
        options |= {"key": list(request.key), "skip": list(request.skip), "layout": layout.to_json()}
        stored = self.stored_request | options
        spec = replace(self.spec, fingerprint_params=stored)
        return replace(self, spec=spec, request=request, layout=layout, stored_request=stored)

    def copy_for_source(self, source: Mapping[str, object], idempotency_key: str) -> "ImportSubmission":
        """Return the submission of one of several files with the same options. ``submit`` looks up the key."""
        stored = {**self.stored_request, "source": dict(source)}
        spec = replace(self.spec, idem_key=idempotency_key, fingerprint_params=stored)
        return replace(self, spec=spec, stored_request=stored)


ImportFile = StagedFile
ImportSource = ImportFile | FileReference


def to_constant_text(value: str | float | Decimal | date | time) -> str:
    """Return the value of a constant as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date | time) else str(value)


def check_requested_rules(request: ImportRequest, resource: Resource) -> None:
    """Check the syntax and the fields of the rules of a request, before ``resolve_constants``.

    Raises:
        InvalidInput: A rule is invalid, its field does not exist, or the resource sets the field itself.
    """
    for option, rules, most in (
        ("constants", request.constants, CONSTANTS_MAX),
        ("computed", request.computed, COMPUTED_MAX),
        ("skip", request.skip, SKIP_RULES_MAX),
    ):
        if len(rules) > most:
            raise InvalidInput(f'"{option}" has {len(rules):,} entries; at most {most} are allowed')
    given = {name for name, source in resource.constants_from.items() if source == "application"}
    _check_fields_of_rules("constants", request.constants, resource, resource.forced_fields - given)
    _check_fields_of_rules("computed", request.computed, resource, resource.forced_fields)
    both = sorted(request.constants.keys() & request.computed.keys())
    if both:
        raise InvalidInput(f'Field "{both[0]}" is in "constants" and in "computed". Remove one of them.')
    for name, text in request.constants.items():
        try:
            check_constant_text(text)
        except InvalidInput as error:
            raise InvalidInput(f'Invalid constant "{name}": {error}') from error
    _check_length_of_constants(request)
    for text in request.computed.values():
        parse_computed_rule(text)
    for text in request.skip:
        parse_skip_rule(text)


def _check_length_of_constants(request: ImportRequest) -> None:
    length = sum(map(len, request.constants.values()))
    if length > CONSTANTS_MAX_CHARS:  # each row of a batch has them
        raise InvalidInput(
            f"The constants have {length:,} characters together; at most {CONSTANTS_MAX_CHARS:,} are allowed"
        )


def _check_fields_of_rules(option: str, names: Iterable[str], resource: Resource, forced: Collection[str]) -> None:
    for name in names:
        if name not in resource.field_names:
            hint = format_suggestion(name, resource.field_names)
            raise InvalidInput(f'Invalid "{option}": "{name}" is not a field of {resource.name}{hint}')
        if name in forced:
            raise InvalidInput(
                f'Invalid "{option}": resource "{resource.name}" sets the field "{name}" of every row itself'
            )


def uses_owner_name(request: ImportRequest, resource: Resource) -> bool:
    """Return whether a constant or a rule of the import is the name of its owner."""
    rules = [parse_computed_rule(text) for text in (*request.computed.values(), *resource.computed.values())]
    rules += [parse_skip_rule(text) for text in (*request.skip, *resource.skip)]
    return "owner" in resource.constants_from.values() or any(rule.uses_owner for rule in rules)


def resolve_constants(
    request: ImportRequest, resource: Resource, *, owner_id: int, owner_name: str, is_application: bool
) -> Resource:
    """Return the resource with the values of all its constants.

    Raises:
        InvalidInput: The application does not set a constant of the resource.
        Forbidden: The caller is not the application, and only the application can set a constant of the resource.
    """
    constants = dict(resource.constants)
    for name, source in resource.constants_from.items():
        if source != "application":
            constants[name] = owner_name if source == "owner" else str(owner_id)
        elif not is_application:
            raise Forbidden(
                f'Only the application can import into resource "{resource.name}": it sets the field "{name}" of every '
                "row in Python or on the command line"
            )
        elif name not in request.constants:
            raise InvalidInput(
                f'Resource "{resource.name}" requires the constant "{name}". Set it in "constants", or with --set.'
            )
        else:
            constants[name] = request.constants[name]
    return replace(resource, constants=constants, constants_from={}, owner_name=owner_name)


class SubmittedImport(NamedTuple):
    """The job of an import, and whether this submission created it."""

    job_id: UUID
    is_new: bool
    layout: FileLayout | None = None  # the layout, if this submission inspected the file
    remembered: MappingProposal | None = None  # the mapping that completed the request


async def inspect_and_complete_submission(
    runtime: Runtime,
    submission: ImportSubmission,
    file: ImportFile,
    rows: int = SAMPLE_ROWS,
    *,
    allow_doubts: bool = False,
) -> tuple[ImportSubmission, FileInspection, MappingProposal | None]:
    """Inspect a file, and complete the request from a remembered mapping if the submission uses the memory."""
    if not submission.uses_memory:
        submission = await _plan_lookups(runtime, submission)
        return submission, await inspect_import_file(runtime, submission, file, rows, allow_doubts=allow_doubts), None
    inspection = await inspect_import_file(runtime, submission, file, rows, allow_doubts=True)
    owner_id, resource = submission.spec.owner_id, submission.resource
    proposal = await propose_mapping(runtime.db, owner_id, resource, submission.request, inspection.columns)
    if proposal is not None:
        with suppress(InvalidInput):  # the options do not fit this file, such as a delimiter and a workbook
            layout = parse_layout_options(proposal.layout | submission.layout.to_json())
            if proposal.is_exact and layout != submission.layout:
                again = replace(submission, layout=layout)
                other = await inspect_import_file(runtime, again, file, rows, allow_doubts=True)
                if other.columns == inspection.columns:
                    submission, inspection = again, other
        completed = submission.copy_with_request(proposal.request, submission.layout)
        try:
            submission = await _plan_lookups(runtime, completed)
        except (InvalidInput, Forbidden):  # the lookups of an earlier import, or of another user
            proposal = proposal.copy_without_lookups(submission.request, submission.resource)
            submission = submission.copy_with_request(proposal.request, submission.layout)
        submission = await _add_owner_name_if_used(runtime, submission)
        proposal = replace(proposal, layout=submission.layout.to_json())
    submission = await _plan_lookups(runtime, submission)
    if not allow_doubts:
        DetectedLayout(inspection.layout, inspection.findings).require_certain()
    return submission, inspection, proposal


async def _add_owner_name_if_used(runtime: Runtime, submission: ImportSubmission) -> ImportSubmission:
    """Resolve the name of the owner again: only a remembered rule may use it."""
    resource = submission.resource
    if resource.owner_name or not uses_owner_name(submission.request, resource):
        return submission
    owner = await runtime.db.run(get_user, str(submission.spec.owner_id))
    return replace(submission, resource=replace(resource, owner_name=owner.name))


async def _plan_lookups(runtime: Runtime, submission: ImportSubmission) -> ImportSubmission:
    planner = make_lookup_planner(runtime, submission.role)
    return replace(submission, resource=await planner.plan(submission.resource, submission.request))


async def inspect_import_file(
    runtime: Runtime,
    submission: ImportSubmission,
    file: ImportFile,
    rows: int = SAMPLE_ROWS,
    *,
    allow_doubts: bool = False,
) -> FileInspection:
    if not file.blob.size:
        raise InvalidInput("The file is empty")
    return await inspect_file(
        runtime,
        file.blob.id,
        name=file.name,
        content_type=file.content_type,
        layout_options=submission.layout.to_json(),
        rows=rows,
        owner_id=submission.spec.owner_id,
        allow_doubts=allow_doubts,
        with_sample=True,
    )


async def make_plan_and_check_privileges(
    runtime: Runtime, inspection: FileInspection, resource: Resource, request: ImportRequest
) -> ImportPlan:
    _check_length_of_constants(request)  # again: a remembered mapping adds some
    # In a thread: comparing the names of a thousand columns and fields takes a second.
    plan = await asyncio.to_thread(make_import_plan, request, resource, get_file_content(inspection))
    await check_table_privileges(runtime.db, plan)
    if plan.is_undoable:
        await check_undo_is_possible(runtime.db, plan)
    constants = convert_constants(plan.resource, plan.constants, runtime.declarations.normalizers)
    await runtime.db.run(check_constants_in_database, plan.resource, constants)
    return plan


def get_file_content(inspection: FileInspection) -> FileContent:
    return FileContent(
        columns=inspection.columns,
        named_by_rows=inspection.is_named_by_rows,
        sample=inspection.sample,
        delimiter=inspection.layout.delimiter,
    )
