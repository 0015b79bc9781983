"""Options, files and results of import submissions, and the inspection of their files."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import NamedTuple
from uuid import UUID

import msgspec

from tidemill.core.errors import InvalidInput, UnknownEntity, UnknownFile
from tidemill.core.file_format import DetectedLayout, FileLayout
from tidemill.core.json_input import JsonObject
from tidemill.core.principal import Role
from tidemill.files.blobs.blob_store import Blob
from tidemill.files.layout import parse_layout_options
from tidemill.imports import import_records
from tidemill.imports.import_plan import (
    FileContent,
    ImportPlan,
    ImportRequest,
    check_table_privileges,
    make_import_plan,
)
from tidemill.imports.remembered_mappings import MappingProposal, propose_mapping
from tidemill.jobs.file_inspection import SAMPLE_ROWS, FileInspection, inspect_file
from tidemill.jobs.staged_files import make_staged_files
from tidemill.runtime import Runtime
from tidemill.store.job_submission import ExistingJob, Submission
from tidemill.tables.resource import Resource

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
    uses_memory: bool = False  # complete the request from a remembered mapping
    existing_job: ExistingJob | None = None
    """The job of an earlier request that had the same idempotency key and the same options."""

    def copy_with_request(self, request: ImportRequest, layout: FileLayout) -> "ImportSubmission":
        """Return the submission with other options of the file."""
        options = msgspec.to_builtins(request) | {"key": list(request.key), "layout": layout.to_json()}
        stored = self.stored_request | options
        spec = replace(self.spec, fingerprint_params=stored)
        return replace(self, spec=spec, request=request, layout=layout, stored_request=stored)

    def copy_for_source(self, source: Mapping[str, object], idempotency_key: str) -> "ImportSubmission":
        """Return the submission of one of several files with the same options. ``submit`` looks up the key."""
        stored = {**self.stored_request, "source": dict(source)}
        spec = replace(self.spec, idem_key=idempotency_key, fingerprint_params=stored)
        return replace(self, spec=spec, stored_request=stored)


@dataclass(frozen=True, slots=True)
class ImportFile:
    """A staged file, which is stored and not owned by a job yet."""

    blob: Blob
    name: str
    content_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference:
    """A file that is not part of the request: a URL, a stored file, or a file in a configured folder."""

    url: str | None = None
    file_id: str | None = None
    name: str | None = None  # name of a folder in TIDEMILL_SOURCES
    path: str | None = None  # path in that folder
    role: Role = Role.USER  # the role of the user who refers to the folder
    owner_id: int | None = None  # the owner of file_id; None allows the files of all users


ImportSource = ImportFile | FileReference


class SubmittedImport(NamedTuple):
    """The job of an import, and whether this submission created it."""

    job_id: UUID
    is_new: bool
    layout: FileLayout | None = None  # the layout, if this submission inspected the file
    remembered: MappingProposal | None = None  # the mapping that completed the request


async def stage_referenced_file(runtime: Runtime, reference: FileReference) -> ImportFile:
    """Stage a copy of the file, or a link to it, which stays when the original is deleted.

    Raises:
        UnknownEntity: The stored file does not exist, or belongs to another user.
        InvalidInput: The folder or the file does not exist.
        TooLarge: The file exceeds the size limit.
    """
    if reference.file_id is not None:
        return await _stage_file_of_owner(runtime, reference.file_id, reference.owner_id)
    name, path = reference.name or "", reference.path or ""
    blob = await runtime.get(make_staged_files).stage_source_file(runtime.settings, reference.role, name, path)
    return ImportFile(blob, PurePath(path).name)


async def _stage_file_of_owner(runtime: Runtime, file_id: str, owner_id: int | None) -> ImportFile:
    unknown = UnknownEntity(f'File "{file_id}" does not exist')
    if not await runtime.db.run(import_records.is_file_of_owner, file_id, owner_id):
        raise unknown
    try:
        return ImportFile(await runtime.get(make_staged_files).copy_stored_file(file_id), "")
    except UnknownFile:
        raise unknown from None


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
        submission = submission.copy_with_request(proposal.request, submission.layout)
        proposal = replace(proposal, layout=submission.layout.to_json())
    if not allow_doubts:
        DetectedLayout(inspection.layout, inspection.findings).require_certain()
    return submission, inspection, proposal


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
    # In a thread: comparing the names of a thousand columns and fields takes a second.
    plan = await asyncio.to_thread(make_import_plan, request, resource, get_file_content(inspection))
    await check_table_privileges(runtime.db, plan)
    return plan


def get_file_content(inspection: FileInspection) -> FileContent:
    return FileContent(
        columns=inspection.columns,
        named_by_rows=inspection.is_named_by_rows,
        sample=inspection.sample,
        delimiter=inspection.layout.delimiter,
    )
