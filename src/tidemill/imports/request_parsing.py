"""Reads requests for imports: parameters from a JSON body, a form or a query, and the file or a reference to it."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pydantic
from fastapi import Request
from pydantic.alias_generators import to_snake

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.core.json_input import JsonObject
from tidemill.core.principal import Principal
from tidemill.imports.fixed_rows import FixedRowsFile
from tidemill.imports.import_plan import ImportRequest, parse_lookups
from tidemill.imports.import_submission import (
    ImportFile,
    ImportOptions,
    ImportSource,
    ImportSubmission,
    to_constant_text,
)
from tidemill.imports.schemas import ImportIn, LayoutIn
from tidemill.imports.use_cases import make_import_use_cases
from tidemill.jobs import upload
from tidemill.jobs.file_inspection import parse_layout_options
from tidemill.jobs.route_dependencies import make_file_reference
from tidemill.jobs.staged_files import make_staged_files
from tidemill.jobs.submission import Submission, check_quota_before_upload
from tidemill.rest.request_body import carries_json_parameters, make_validation_error, to_request_validation_error
from tidemill.runtime import Runtime

LayoutModel = TypeVar("LayoutModel", bound=LayoutIn)
LAYOUT_FIELDS = tuple(LayoutIn.model_fields)
JSON_ENCODED_FIELDS = ("mapping", "translations", "formats", "constants", "computed", "lookups", "policy")
LIST_FIELDS = ("key", "create_missing")
REFERENCE_ONLY_FIELDS = ("source",)
SHEET_NUMBER_MAX_DIGITS = 9  # a longer text can only be a name


def parse_json_body(model: type[LayoutModel], body: bytes) -> LayoutModel:
    try:
        return model.model_validate_json(body)
    except pydantic.ValidationError as error:
        raise to_request_validation_error(error, "body") from error


def parse_form_fields(model: type[LayoutModel], fields: dict[str, str], location: str) -> LayoutModel:
    """Parse the parameters of an upload. Objects are JSON; lists are comma-separated or JSON."""
    values: dict[str, Any] = {to_snake(name): text for name, text in fields.items() if name != "filename"}
    unknown = sorted(values.keys() - set(model.model_fields) | values.keys() & set(REFERENCE_ONLY_FIELDS))
    if unknown:
        raise make_validation_error([((location, name), "unknown field") for name in unknown])
    for name in JSON_ENCODED_FIELDS:
        if name in values:
            values[name] = _parse_json_object((location, name), values[name])
    sheet = values.get("sheet", "")
    if sheet.isdecimal() and len(sheet) <= SHEET_NUMBER_MAX_DIGITS:
        values["sheet"] = int(sheet)
    for name in LIST_FIELDS:
        if name in values:
            values[name] = _parse_list_field((location, name), values[name])
    if "skip" in values:
        values["skip"] = _parse_rule_list((location, "skip"), values["skip"])
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise to_request_validation_error(error, location) from error


def get_layout_options(body: LayoutIn) -> dict[str, object]:
    """Return the layout options that a request sets."""
    return {name: value for name in LAYOUT_FIELDS if (value := getattr(body, name)) is not None}


def parse_layout_of_request(body: LayoutIn) -> FileLayout:
    """Return the layout options of a request; InvalidInput if one is invalid."""
    return parse_layout_options(get_layout_options(body))


def build_import_options(body: ImportIn) -> ImportOptions:
    source = {} if body.source is None else body.source.model_dump(exclude_none=True)
    return ImportOptions(
        resource=body.resource,
        request=ImportRequest(
            mode=body.mode,
            validate_only=body.validate_only,
            duplicates=body.duplicates,
            mapping=body.mapping,
            translations=body.translations,
            key=tuple(body.key),
            spreadsheet_safe=body.spreadsheet_safe,
            keep_empty=body.keep_empty,
            formats=body.formats,
            assume=body.assume,
            constants={name: to_constant_text(value) for name, value in body.constants.items()},
            computed=body.computed,
            skip=tuple(body.skip),
            undo=body.undo,
            lookups=parse_lookups(body.lookups),
            create_missing=list(body.create_missing),
        ),
        layout=get_layout_options(body),
        policy=body.policy.model_dump(exclude_none=True),
        priority=body.priority,
        source=source,
    )


def _parse_json_object(location: tuple[str, str], text: str) -> Any:
    try:
        return pydantic.TypeAdapter(JsonObject).validate_json(text)
    except pydantic.ValidationError as error:
        raise make_validation_error([(location, f"must be a JSON object: {error.errors()[0]['msg']}")]) from error


def _parse_list_field(location: tuple[str, str], text: str) -> list[Any]:
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    try:
        return pydantic.TypeAdapter(list[Any]).validate_json(text)
    except pydantic.ValidationError as error:
        raise make_validation_error([(location, f"must be a list: {error.errors()[0]['msg']}")]) from error


def _parse_rule_list(location: tuple[str, str], text: str) -> list[Any]:
    """Parse a JSON list of rules, or one rule. A rule can contain commas."""
    return _parse_list_field(location, text) if text.lstrip().startswith("[") else [text]


ImportModel = TypeVar("ImportModel", bound=ImportIn)


@dataclass(frozen=True, slots=True)
class ReceivedImport(Generic[ImportModel]):
    """The checked parameters of a request for an import, and its file or the reference to it."""

    body: ImportModel
    submission: ImportSubmission
    source: ImportSource


async def receive_import(
    request: Request, runtime: Runtime, me: Principal, model: type[ImportModel], spec: Submission
) -> ReceivedImport[ImportModel]:
    """Read a request. Check its parameters and the permission before reading the first byte of a file."""
    imports = runtime.get(make_import_use_cases)
    if carries_json_parameters(request.scope):
        body = parse_json_body(model, await request.body())
        if body.source is None:
            raise InvalidInput('The request has no file. Upload a file or set "source".')
        reference = make_file_reference(body.source, me)
        if "spreadsheet_safe" not in body.model_fields_set and await imports.was_exported_spreadsheet_safe(reference):
            body = body.model_copy(update={"spreadsheet_safe": True})
        submission = await imports.check_and_prepare_submission(build_import_options(body), role=me.role, spec=spec)
        return ReceivedImport(body, submission, reference)
    fields = _UploadFields(runtime, model, get_parameter_location(request), me, spec)
    uploaded = await upload.receive_upload(request, runtime, check=fields.check, accept_any_type=True)
    try:
        body, submission = await fields.check_and_prepare_from_fields(uploaded.fields)
    except BaseException:
        await runtime.get(make_staged_files).discard(uploaded.blob.id)
        raise
    return ReceivedImport(body, submission, ImportFile(uploaded.blob, uploaded.name, uploaded.content_type))


class _UploadFields(Generic[ImportModel]):
    """Prepares an import before its file is read, and again if more form fields follow the file."""

    def __init__(
        self, runtime: Runtime, model: type[ImportModel], location: str, me: Principal, spec: Submission
    ) -> None:
        self._db = runtime.db
        self._imports = runtime.get(make_import_use_cases)
        self._model = model
        self._location = location
        self._role = me.role
        self._spec = spec
        self._fields: dict[str, str] = {}
        self._prepared: tuple[ImportModel, ImportSubmission] | None = None

    async def check(self, fields: dict[str, str]) -> None:
        await self.check_and_prepare_from_fields(fields)

    async def check_and_prepare_from_fields(self, fields: dict[str, str]) -> tuple[ImportModel, ImportSubmission]:
        if self._prepared is None or fields != self._fields:
            body = parse_form_fields(self._model, fields, self._location)
            options = build_import_options(body)
            submission = await self._imports.check_and_prepare_submission(options, role=self._role, spec=self._spec)
            if self._model.creates_job and submission.existing_job is None:
                await check_quota_before_upload(self._db, submission.spec)
            self._prepared, self._fields = (body, submission), dict(fields)
        return self._prepared


async def receive_fixes(request: Request, runtime: Runtime, me: Principal) -> FixedRowsFile:
    """Read a request with fixed rows. Check its layout options before reading the file."""
    location = get_parameter_location(request)

    async def check_layout(fields: dict[str, str]) -> None:
        parse_layout_of_request(parse_form_fields(LayoutIn, fields, location))

    uploaded = await upload.receive_upload(request, runtime, check=check_layout, accept_any_type=True)
    try:
        layout = parse_layout_of_request(parse_form_fields(LayoutIn, uploaded.fields, location))
    except BaseException:
        await runtime.get(make_staged_files).discard(uploaded.blob.id)
        raise
    file = ImportFile(uploaded.blob, uploaded.name, uploaded.content_type)
    return FixedRowsFile(file, by=me.user_id, layout=layout, request_id=request.state.request_id)


def get_parameter_location(request: Request) -> str:
    """Return where an upload has its parameters: "body" for a form, else "query"."""
    is_multipart = request.headers.get("content-type", "").lower().startswith("multipart/")
    return "body" if is_multipart else "query"
