"""POST /jobs: creates jobs from JSON inputs, a file, images, or a file in a configured folder.

The body is read as a stream and has no model, so this module describes it for the OpenAPI document.
"""

import re
from dataclasses import replace
from typing import Any

import pydantic
from fastapi import APIRouter, Request, Response

from tidemill.core.errors import IdempotencyKeyReused, InvalidInput, InvalidRequest, UnknownKind
from tidemill.core.job import Job
from tidemill.core.principal import Role
from tidemill.jobs import submission, upload
from tidemill.jobs.job_views import build_job_out
from tidemill.jobs.route_dependencies import make_submission_from_request
from tidemill.jobs.schemas import JobIn, JobOut
from tidemill.jobs.submission import Submission
from tidemill.rest import request_body
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import IdempotencyKey, RuntimeDep, parse_idempotency_key
from tidemill.rest.problems import PROBLEM_ERRORS_MAX, HttpError, build_field_problem
from tidemill.rest.request_body import BodyLimit, has_json_content_type
from tidemill.rest.schema_types import BINARY_CONTENT, BINARY_SCHEMA
from tidemill.runtime import Runtime

_JOB_PROPERTIES: dict[str, dict[str, Any]] = {
    "kind": {"type": "string", "maxLength": 200},
    "params": {"type": "string", "description": "A JSON object"},
    "policy": {"type": "string", "description": "A JSON object; see PolicyIn"},
    "priority": {"type": "integer", "minimum": -100, "maximum": 100},
    "format": {"$ref": "#/components/schemas/SourceFormat"},
    "filename": {
        "type": "string",
        "description": "Name of the file. Its suffix sets the format unless the request sets `format`",
    },
}
_JOB_FORM_SCHEMA = {
    "type": "object",
    "properties": _JOB_PROPERTIES
    | {"file": {"anyOf": [BINARY_SCHEMA, {"type": "array", "items": BINARY_SCHEMA, "description": "Images"}]}},
    "required": ["kind", "file"],
}
_INPUTS_EXAMPLE = {"kind": "price.lookup", "inputs": [{"sku": "A-1"}, {"sku": "A-2"}]}
_SOURCE_EXAMPLE = {"kind": "price.lookup", "source": {"name": "inbox", "path": "2026/11/prices.csv"}}

JOB_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"$ref": "#/components/schemas/JobIn"},
            "examples": {
                "inputs": {"summary": "Inputs, each of which becomes an item", "value": _INPUTS_EXAMPLE},
                "source": {"summary": "A file in a configured folder", "value": _SOURCE_EXAMPLE},
            },
        },
        "multipart/form-data": {
            "schema": _JOB_FORM_SCHEMA,
            "example": {"kind": "price.lookup", "file": "sku\nA-1\nA-2\n"},
        },
        "text/csv": {"schema": BINARY_SCHEMA, "example": "sku\nA-1\nA-2\n"},
        "text/tab-separated-values": BINARY_CONTENT,
        "application/x-ndjson": {"schema": BINARY_SCHEMA, "example": '{"sku": "A-1"}\n{"sku": "A-2"}\n'},
        "application/zip": BINARY_CONTENT,
        "image/*": BINARY_CONTENT,
    },
}

# Only for a body that is a file: JSON bodies and forms contain these parameters.
JOB_QUERY_PARAMETERS = [
    {"name": name, "in": "query", "required": False, "schema": schema, "description": "Only if the body is a file"}
    for name, schema in _JOB_PROPERTIES.items()
]


router = APIRouter(tags=["jobs"], route_class=AuthenticatedRoute)
JOB_KEY_PREFIX = "jobs"
UPLOAD_JOB_FIELDS = {"kind", "params", "policy", "priority"}
UPLOAD_FILE_FIELDS = {"format", "filename"}
_PARAM_PROBLEM_REGEX = re.compile(r"(?P<path>params(?:\.\w+|\[\d+\])*): (?P<reason>.*)", re.DOTALL)

_REPEATED_JOB_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The job of an earlier request with the same Idempotency-Key", "model": JobOut}
}
_SUBMIT_JOB_OPTIONS = build_route_options(
    Permission.USER,
    *(400, 409, 413, 415),
    extra_responses=_REPEATED_JOB_RESPONSE,
    body=BodyLimit.UPLOAD,
    json_body=BodyLimit.INLINE_INPUTS,
)
_SUBMIT_JOB_OPTIONS["openapi_extra"] |= {"requestBody": JOB_BODY, "parameters": JOB_QUERY_PARAMETERS}


@router.post("/jobs", status_code=202, **_SUBMIT_JOB_OPTIONS)
async def submit_job(
    request: Request,
    response: Response,
    me: CurrentUser,
    runtime: RuntimeDep,
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """Create a job. Send its inputs as JSON, or send a file.

    Send a file as multipart, or as the body with `kind` in the query. Send images as several parts or as one zip. Each
    image becomes an item. When the response arrives, the job is durable.
    """
    base = make_submission_from_request(
        request, me, idem_key=_build_idempotency_key(idempotency_key), batch_size=runtime.settings.claim_max
    )
    try:
        job, is_new = await _submit_with_located_errors(request, runtime, base, me.role)
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused("The Idempotency-Key was already used for a different request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    response.headers["Retry-After"] = "1"
    return build_job_out(runtime, job)


async def _submit_with_located_errors(
    request: Request, runtime: Runtime, base: Submission, role: Role
) -> tuple[Job, bool]:
    """Submit the job; report an invalid parameter with its location in the request."""
    make = _submit_json if has_json_content_type(request.headers) else _submit_upload
    try:
        return await make(request, runtime, base, role)
    except UnknownKind as error:
        raise request_body.make_validation_error([((*_get_parameter_location(request), "kind"), str(error))]) from None
    except InvalidRequest as error:
        matches = [_PARAM_PROBLEM_REGEX.fullmatch(problem) for problem in error.problems]
        if not all(matches):
            raise
        problems = [
            ((*_get_parameter_location(request), *re.findall(r"\w+", match["path"])), match["reason"])
            for match in matches
            if match
        ]
        details = request_body.make_validation_error(problems).errors()[:PROBLEM_ERRORS_MAX]
        raise HttpError(422, str(error), field_problems=[build_field_problem(detail) for detail in details]) from None


def _get_parameter_location(request: Request) -> tuple[str]:
    """Return where the parameters of a request are: in its body or in its query."""
    media_type = request.headers.get("content-type", "").lower()
    return ("body",) if has_json_content_type(request.headers) or media_type.startswith("multipart/") else ("query",)


async def _submit_json(request: Request, runtime: Runtime, base: Submission, role: Role) -> tuple[Job, bool]:
    if request.query_params:
        raise InvalidInput("Query parameters are not allowed with a JSON body. Send them in the body.")
    body = await request_body.read_json_body(request, JobIn, max_inputs=runtime.settings.max_inline_inputs)
    if (body.inputs is None) == (body.source is None):
        raise InvalidInput('Send either "inputs" or "source"')
    spec = await submission.prepare_submission(runtime, replace(base, **_build_submission_fields(body)), role)
    if body.source is not None:
        source = body.source
        return await submission.submit_source_folder_file(runtime, spec, role, source.name, source.path, source.format)
    return await submission.submit_inputs(runtime, spec, body.inputs or [])


async def _submit_upload(request: Request, runtime: Runtime, base: Submission, role: Role) -> tuple[Job, bool]:
    (location,) = _get_parameter_location(request)

    checked_fields: dict[str, str] | None = None
    spec = base

    async def check_fields(fields: dict[str, str]) -> None:
        """Prepare the submission before the file is read, and again only if more form fields follow the file."""
        nonlocal checked_fields, spec
        if fields != checked_fields:
            body = _parse_upload_fields(fields, location)
            spec = await submission.prepare_submission(runtime, replace(base, **_build_submission_fields(body)), role)
            checked_fields = dict(fields)
            if spec.existing is None:
                await submission.check_quota_before_upload(runtime.db, spec)

    file = await upload.receive_upload(request, runtime, check=check_fields)
    async with upload.discard_upload_on_error(runtime, file):
        await check_fields(file.fields)
    return await submission.submit_upload(runtime, spec, file.blob, file.name, file.format)


def _parse_upload_fields(fields: dict[str, str], location: str) -> JobIn:
    """Parse the form fields or query parameters of an upload; ``params`` and ``policy`` are JSON."""
    unknown = sorted(set(fields) - UPLOAD_JOB_FIELDS - UPLOAD_FILE_FIELDS)
    if unknown:
        raise request_body.make_validation_error([((location, name), "unknown field") for name in unknown])
    values: dict[str, Any] = {name: value for name, value in fields.items() if name in UPLOAD_JOB_FIELDS}
    for name in ("params", "policy"):
        if name in values:
            values[name] = _parse_json_field((location, name), values[name])
    try:
        return JobIn.model_validate(values)
    except pydantic.ValidationError as error:
        raise request_body.to_request_validation_error(error, location) from error


def _parse_json_field(location: tuple[str, str], text: str) -> Any:
    try:
        return pydantic.TypeAdapter(dict[str, Any]).validate_json(text)
    except pydantic.ValidationError as error:
        raise request_body.make_validation_error(
            [(location, f"must be a JSON object: {error.errors()[0]['msg']}")]
        ) from error


def _build_submission_fields(body: JobIn) -> dict[str, Any]:
    policy = body.policy.model_dump(exclude_none=True)
    return {"kind": body.kind, "params": body.params, "policy": policy, "priority": body.priority}


def _build_idempotency_key(header: str | None) -> str | None:
    key = parse_idempotency_key(header)
    return None if key is None else f"{JOB_KEY_PREFIX} {key}"
