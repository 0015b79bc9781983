"""What POST /jobs takes, for the OpenAPI document: its body is read as a stream, so no model says it.

POST /jobs: inputs, a file, images, or a reference to a source.
"""

import asyncio
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any

import pydantic
from fastapi import APIRouter, Header, Request, Response

from tidemill.core.errors import IdempotencyKeyReused, InvalidInput, InvalidRequest, UnknownJob, UnknownKind
from tidemill.core.file_layout import FileLayout
from tidemill.core.job import Job
from tidemill.core.principal import Role
from tidemill.files import source_folders
from tidemill.files.layout import FORMATS_BY_SUFFIX, KNOWN_FORMATS
from tidemill.jobs import submission as operation
from tidemill.jobs import upload
from tidemill.jobs.job_views import build_job_out
from tidemill.jobs.schemas import JobIn, JobOut, JobSourceIn
from tidemill.jobs.staged_files import make_staged_files
from tidemill.rest import json_body
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, declare_route, get_client_ip
from tidemill.rest.idempotency import IDEMPOTENCY_KEY_PATTERN, parse_idempotency_key
from tidemill.rest.problems import PROBLEM_ERRORS_MAX, HttpError, build_field_problem
from tidemill.rest.request_body import has_json_content_type
from tidemill.rest.runtime import RuntimeDep
from tidemill.runtime import Runtime
from tidemill.store import job_records
from tidemill.store.job_submission import Submission, find_repeated_submission

_BINARY_SCHEMA = {"type": "string", "format": "binary"}
_JOB_PROPERTIES: dict[str, dict[str, Any]] = {
    "kind": {"type": "string", "maxLength": 200},
    "params": {"type": "string", "description": "A JSON object"},
    "policy": {"type": "string", "description": "A JSON object, as PolicyIn"},
    "priority": {"type": "integer", "minimum": -100, "maximum": 100},
    "format": {"$ref": "#/components/schemas/SourceFormat"},
    "filename": {"type": "string", "description": "Says the format if nothing else does"},
}
_JOB_FORM_SCHEMA = {
    "type": "object",
    "properties": _JOB_PROPERTIES
    | {"file": {"anyOf": [_BINARY_SCHEMA, {"type": "array", "items": _BINARY_SCHEMA, "description": "Images"}]}},
    "required": ["kind", "file"],
}
_INPUTS_EXAMPLE = {"kind": "price.lookup", "inputs": [{"sku": "A-1"}, {"sku": "A-2"}]}
_SOURCE_EXAMPLE = {"kind": "price.lookup", "source": {"name": "inbox", "path": "2026/11/prices.csv"}}
_BINARY_CONTENT = {"schema": _BINARY_SCHEMA}

JOB_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"$ref": "#/components/schemas/JobIn"},
            "examples": {
                "inputs": {"summary": "Inputs, an item for each", "value": _INPUTS_EXAMPLE},
                "source": {"summary": "A file in a configured folder", "value": _SOURCE_EXAMPLE},
            },
        },
        "multipart/form-data": {
            "schema": _JOB_FORM_SCHEMA,
            "example": {"kind": "price.lookup", "file": "sku\nA-1\nA-2\n"},
        },
        "text/csv": {"schema": _BINARY_SCHEMA, "example": "sku\nA-1\nA-2\n"},
        "text/tab-separated-values": _BINARY_CONTENT,
        "application/x-ndjson": {"schema": _BINARY_SCHEMA, "example": '{"sku": "A-1"}\n{"sku": "A-2"}\n'},
        "application/zip": _BINARY_CONTENT,
        "image/*": _BINARY_CONTENT,
    },
}

# With JSON, and with a form, these words are in the body.
JOB_QUERY_PARAMETERS = [
    {"name": name, "in": "query", "required": False, "schema": schema, "description": "Of a body that is a file"}
    for name, schema in _JOB_PROPERTIES.items()
]


router = APIRouter(tags=["jobs"], route_class=AuthenticatedRoute)
JOB_KEY_PREFIX = "jobs"
IDEMPOTENCY_KEY_DESCRIPTION = "Makes a repeated request harmless: 1 to 200 printable characters, in quotes or without"
IDEMPOTENCY_KEY_SCHEMA: dict[str, Any] = {"pattern": IDEMPOTENCY_KEY_PATTERN}
UPLOAD_JOB_FIELDS = {"kind", "params", "policy", "priority"}
UPLOAD_FILE_FIELDS = {"format", "filename"}
_PARAM_PROBLEM_REGEX = re.compile(r"(?P<path>params(?:\.\w+|\[\d+\])*): (?P<reason>.*)", re.DOTALL)

_REPEATED_JOB_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "What this key made before", "model": JobOut}
}
_SUBMIT_JOB_OPTIONS = declare_route(Permission.USER, 400, 409, 413, 415, extra_responses=_REPEATED_JOB_RESPONSE)
_SUBMIT_JOB_OPTIONS["openapi_extra"] |= {"requestBody": JOB_BODY, "parameters": JOB_QUERY_PARAMETERS}


@router.post("/jobs", status_code=202, **_SUBMIT_JOB_OPTIONS)
async def submit_job(
    request: Request,
    response: Response,
    me: CurrentUser,
    runtime: RuntimeDep,
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key", description=IDEMPOTENCY_KEY_DESCRIPTION, json_schema_extra=IDEMPOTENCY_KEY_SCHEMA
        ),
    ] = None,
) -> JobOut:
    """Make a job. Inputs come as JSON; a file as the body itself, with `kind` in the query, or as multipart.

    Images come as several parts, or as one zip: an item for each. The answer comes when everything is durable.
    """
    base = Submission(
        kind="",
        owner_id=me.user_id,
        request_id=request.state.request_id,
        traceparent=request.state.traceparent,
        ip_address=get_client_ip(request),
        idem_key=_build_job_key(idempotency_key),
        batch_size=runtime.settings.claim_max,
    )
    try:
        job, is_new = await _submit_with_pointers(request, runtime, base, me.role)
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused("this Idempotency-Key was used for another request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    response.headers["Retry-After"] = "1"
    return build_job_out(runtime, job)


async def _submit_with_pointers(request: Request, runtime: Runtime, base: Submission, role: Role) -> tuple[Job, bool]:
    """With pointers to what is wrong with the words, wherever they stand."""
    make = _submit_json if has_json_content_type(request.headers) else _submit_upload
    try:
        return await make(request, runtime, base, role)
    except UnknownKind as error:
        raise json_body.make_validation_error([((*_locate_parameters(request), "kind"), str(error))]) from None
    except InvalidRequest as error:
        told = [_PARAM_PROBLEM_REGEX.fullmatch(problem) for problem in error.problems]
        if not all(told):
            raise
        found = [
            ((*_locate_parameters(request), *re.findall(r"\w+", one["path"])), one["reason"]) for one in told if one
        ]
        pointed = [
            build_field_problem(fault) for fault in json_body.make_validation_error(found).errors()[:PROBLEM_ERRORS_MAX]
        ]
        raise HttpError(422, str(error), field_problems=pointed) from None


def _locate_parameters(request: Request) -> tuple[str]:
    """Where the words of a request are."""
    media_type = request.headers.get("content-type", "").lower()
    return ("body",) if has_json_content_type(request.headers) or media_type.startswith("multipart/") else ("query",)


async def _submit_json(request: Request, runtime: Runtime, base: Submission, role: Role) -> tuple[Job, bool]:
    if request.query_params:
        raise InvalidInput("with a JSON body, all words are in it: there are no parameters beside it")
    asked = await json_body.read_json_body(request, JobIn, max_inputs=runtime.settings.max_inline_inputs)
    if (asked.inputs is None) == (asked.source is None):
        raise InvalidInput("say either inputs or a source")
    spec = await operation.prepare_submission(runtime, replace(base, **_build_submission_fields(asked)), role)
    if asked.source is not None:
        return await _submit_source(runtime, spec, asked.source)
    inputs = asked.inputs or []
    operation.check_columns(runtime, spec, await asyncio.to_thread(_list_input_columns, inputs))
    rows = partial(operation.encode_inputs, inputs, runtime.settings.max_row_bytes)
    return await operation.submit_and_get_job(runtime.db, spec, rows, built_in=True)


async def _submit_source(runtime: Runtime, spec: Submission, source: JobSourceIn) -> tuple[Job, bool]:
    """A key that comes again stands for where the file was, and not for what is there now."""
    format_ = source.format or FORMATS_BY_SUFFIX.get(PurePath(source.path).suffix.lower())
    if format_ is None:
        raise InvalidInput(f"the format of {source.path!r} is not known: say one of {', '.join(KNOWN_FORMATS)}")
    spec = replace(spec, idem_print=json.dumps([source.name, source.path, format_]).encode())
    found = await runtime.db.run(find_repeated_submission, spec)
    if found is not None:
        with suppress(UnknownJob):  # deleted meanwhile: then it is made anew
            return await runtime.db.read(job_records.get_job, found), False
    path = source_folders.resolve_source_file(runtime.settings.sources, source.name, source.path)
    blob = await runtime.get(make_staged_files).stage_file(path, runtime.settings.max_file_size_mb << 20)
    return await operation.submit_file(runtime, spec, blob, path.name, FileLayout(format=format_))


async def _submit_upload(request: Request, runtime: Runtime, base: Submission, role: Role) -> tuple[Job, bool]:
    (place,) = _locate_parameters(request)

    async def check_fields(fields: dict[str, str]) -> None:
        await operation.prepare_submission(
            runtime, replace(base, **_build_submission_fields(_parse_upload_fields(fields, place))), role
        )

    uploaded = await upload.receive_upload(request, runtime, check=check_fields)
    try:
        asked = _parse_upload_fields(uploaded.fields, place)
        spec = await operation.prepare_submission(runtime, replace(base, **_build_submission_fields(asked)), role)
    except BaseException:
        await runtime.get(make_staged_files).discard(uploaded.blob.id)
        raise
    same = uploaded.blob.sha256 + uploaded.format.encode()  # read in another way, a file is another submission
    return await operation.submit_file(
        runtime, replace(spec, idem_print=same), uploaded.blob, uploaded.name, FileLayout(format=uploaded.format)
    )


def _list_input_columns(inputs: Iterable[Any]) -> list[str]:
    """Every column that some row has."""
    return list({str(name) for row in inputs if isinstance(row, dict) for name in row})


def _parse_upload_fields(fields: dict[str, str], location: str) -> JobIn:
    """The words beside a file, in a form or in the query: params and policy are JSON there."""
    unknown = sorted(set(fields) - UPLOAD_JOB_FIELDS - UPLOAD_FILE_FIELDS)
    if unknown:
        raise json_body.make_validation_error(
            [((location, name), f"there is no field {name!r} beside a file") for name in unknown]
        )
    values: dict[str, Any] = {name: value for name, value in fields.items() if name in UPLOAD_JOB_FIELDS}
    for name in ("params", "policy"):
        if name in values:
            values[name] = _parse_json_field((location, name), values[name])
    try:
        return JobIn.model_validate(values)
    except pydantic.ValidationError as error:
        raise json_body.convert_validation_error(error, location) from error


def _parse_json_field(location: tuple[str, str], text: str) -> Any:
    try:
        return pydantic.TypeAdapter(dict[str, Any]).validate_json(text)
    except pydantic.ValidationError as error:
        raise json_body.make_validation_error(
            [(location, f"it is not a JSON object: {error.errors()[0]['msg']}")]
        ) from error


def _build_submission_fields(body: JobIn) -> dict[str, Any]:
    policy = body.policy.model_dump(exclude_none=True)
    return {"kind": body.kind, "params": body.params, "policy": policy, "priority": body.priority}


def _build_job_key(header: str | None) -> str | None:
    key = parse_idempotency_key(header)
    return None if key is None else f"{JOB_KEY_PREFIX} {key}"
