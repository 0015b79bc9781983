"""Errors as RFC 9457 problem documents with the request id, and the Allow header."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from tidemill.core import errors
from tidemill.store.database import describe_error

JSON_MEDIA_TYPE = "application/json"
PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_NAME_MAX_CHARS = 200
PROBLEM_ERRORS_MAX = 100
PROBLEM_DETAIL_MAX_CHARS = 4_000
# These replace the messages of pydantic.
MESSAGE_BY_ERROR_TYPE = {"missing": "is required", "extra_forbidden": "unknown field"}

STATUS_BY_ERROR: dict[type[errors.TidemillError], int] = {
    errors.InvalidInput: 422,
    errors.UnknownKind: 422,
    errors.IdempotencyKeyReused: 422,
    errors.TooLarge: 413,
    errors.Forbidden: 403,
    errors.UnknownEntity: 404,
    errors.Conflict: 409,
    errors.TooManyRequests: 429,
    errors.InputExceedsQuota: 413,
    errors.StorageQuotaExceeded: 403,
    errors.QuotaExceeded: 429,
    errors.Busy: 503,
    errors.Unavailable: 503,
    errors.RemoteUnreachable: 502,
}


RETRY_AFTER_BY_STATUS = {429: "10", 503: "1"}
ProblemText = Annotated[str, BeforeValidator(errors.escape_unprintable)]  # messages quote values of the request


class FieldProblem(BaseModel):
    """A problem with one field or parameter of a request."""

    pointer: str | None = Field(None, description="JSON pointer to the field in the body", examples=["#/inputs"])
    parameter: str | None = Field(None, description="Name of the parameter in the path, query or headers")
    detail: ProblemText


class QuotaProblem(BaseModel):
    """The quota that a request would exceed."""

    name: str = Field(examples=["open_jobs"])
    used: int = Field(description="The use including this request", examples=[1001])
    limit: int = Field(examples=[1000])


class FormatExample(BaseModel):
    """A value of the file, and the same value in plain notation."""

    before: ProblemText
    after: ProblemText | None = Field(None, description="null if the value is missing")


class FormatChoiceOut(BaseModel):
    """A format that fits the values of a column."""

    format: str = Field(examples=["decimal-comma"])
    confidence: float = Field(ge=0, le=1)
    examples: list[FormatExample] = []


class FormatFindingOut(BaseModel):
    """The detected format of a column. If it is ambiguous, an import requires the format, or the option `assume`."""

    field: str = Field(examples=["credit_limit"])
    column: ProblemText = Field(description="Column of the file")
    format: str = Field(description="The likeliest format", examples=["decimal-comma"])
    confidence: float = Field(ge=0, le=1)
    reason: ProblemText
    examples: list[FormatExample] = []
    ambiguous: bool = Field(False, description="True if `alternatives` give other values")
    alternatives: list[FormatChoiceOut] = []


class ProblemDetails(BaseModel):
    """The reason why a request failed."""

    type: str = Field("about:blank", examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: ProblemText = Field(examples=['Unknown job "J20261115_000777"'])
    request_id: str = Field(examples=["3f1c6a0e9b2d4c58"])
    errors: list[FieldProblem] | None = None
    quota: QuotaProblem | None = Field(None, description="Only if the request would exceed a quota")
    formats: list[FormatFindingOut] | None = Field(
        None, description="Only if columns of a file can be read in two ways: the formats to choose from"
    )


PROBLEM_EXAMPLES = {
    400: "The request body is not valid JSON: EOF while parsing a value at line 1 column 9",
    401: "Authentication required. Send an API key or sign in.",
    403: "This operation requires the admin role",
    404: 'Unknown job "J20261115_000777"',
    408: "Timeout while reading the request body",
    409: "Job J20261115_000777 is completed and cannot be resumed",
    413: "The request body has more than 16777216 bytes",
    415: 'Unsupported content type "text/plain". Send application/json.',
    416: "The requested range is outside of the file, which has 1048576 bytes",
    422: "#/kind: is required",
    429: "Too many requests. Retry after the time in the Retry-After header.",
    502: "https://files.example.com/users.csv: the server does not respond",
    500: "Internal error. See the log entries with this request id.",
    503: "All worker processes are busy. Retry later.",
}


class HttpError(Exception):
    """An error of the HTTP layer, with its status and headers."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: dict[str, str] | None = None,
        field_problems: Sequence[FieldProblem] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail[:PROBLEM_DETAIL_MAX_CHARS]
        self.headers = headers or {}
        self.field_problems = field_problems


def build_openapi_problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route with these error statuses."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {
                PROBLEM_MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/ProblemDetails"},
                    "example": _build_example_problem(status),
                }
            },
        }
        for status in sorted(statuses)
    }


def _build_example_problem(status: int) -> dict[str, Any]:
    field_problems = (
        [FieldProblem(pointer="#/kind", detail=MESSAGE_BY_ERROR_TYPE["missing"])]
        if status == HTTPStatus.UNPROCESSABLE_ENTITY
        else None
    )
    return _build_problem("3f1c6a0e9b2d4c58", status, PROBLEM_EXAMPLES[status], field_problems)


def build_problem_response(
    request_id: str,
    status: int,
    detail: str,
    headers: dict[str, str] | None = None,
    field_problems: Sequence[FieldProblem] | None = None,
    quota: QuotaProblem | None = None,
    formats: Sequence[FormatFindingOut] | None = None,
) -> JSONResponse:
    problem = _build_problem(request_id, status, detail, field_problems, quota, formats)
    return JSONResponse(problem, status, headers, media_type=PROBLEM_MEDIA_TYPE)


def _build_problem(
    request_id: str,
    status: int,
    detail: str,
    field_problems: Sequence[FieldProblem] | None,
    quota: QuotaProblem | None = None,
    formats: Sequence[FormatFindingOut] | None = None,
) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    problem = ProblemDetails(
        title=title,
        status=status,
        detail=detail,
        request_id=request_id,
        errors=field_problems,
        quota=quota,
        formats=formats,
    )
    return problem.model_dump(exclude_none=True)


def install_problem_handlers(app: FastAPI) -> None:
    app.add_exception_handler(errors.TidemillError, _handle_tidemill_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_starlette_exception)
    app.add_exception_handler(HttpError, _handle_http_error)


def describe_internal_error(error: Exception) -> str:
    """Describe an unexpected error for the log, without values of users' rows."""
    return describe_error(error)


def get_error_status(error: errors.TidemillError) -> int:
    return next((status for kind, status in STATUS_BY_ERROR.items() if isinstance(error, kind)), 500)


def _get_request_id(request: Request) -> str:
    return str(request.state.request_id)


async def _handle_tidemill_error(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, errors.TidemillError):
        raise error
    status = get_error_status(error)
    headers = {"Retry-After": RETRY_AFTER_BY_STATUS[status]} if status in RETRY_AFTER_BY_STATUS else None
    field_problems = [
        _build_located_problem(request, error, at)
        for at in range(len(getattr(error, "problems", ())))[:PROBLEM_ERRORS_MAX]
    ]
    field_problems += [
        FieldProblem(pointer=make_json_pointer(*path), detail=reason)
        for path, reason in getattr(error, "faults", ())[:PROBLEM_ERRORS_MAX]
    ]
    detail = str(error)[:PROBLEM_DETAIL_MAX_CHARS]
    quota = (
        QuotaProblem(name=error.name, used=error.used, limit=error.limit)
        if isinstance(error, errors.QuotaExceeded)
        else None
    )
    formats = [FormatFindingOut.model_validate(one) for one in getattr(error, "choices", ())[:PROBLEM_ERRORS_MAX]]
    return build_problem_response(
        _get_request_id(request), status, detail, headers, field_problems or None, quota, formats or None
    )


def _build_located_problem(request: Request, error: Any, index: int) -> FieldProblem:
    """Return a problem with a JSON pointer for a body, or with the name of a query parameter for a GET request."""
    path, detail = error.paths[index] if getattr(error, "paths", ()) else (), error.problems[index]
    if not path or request.method != "GET":
        return FieldProblem(pointer=make_json_pointer(*path), detail=detail)
    name = path[0] if len(path) == 1 else f"{path[0].removesuffix('s')}[{_sanitize_name(path[1])}]"
    return FieldProblem(parameter=name, detail=detail)


async def _handle_http_error(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HttpError):
        raise error
    return build_problem_response(
        _get_request_id(request), error.status, error.detail, error.headers, error.field_problems
    )


async def _handle_starlette_exception(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and (
        known := find_allowed_methods(request.app, request.scope["path"])
    ):
        headers["Allow"] = known
    return build_problem_response(_get_request_id(request), error.status_code, error.detail, headers)


async def _handle_validation_error(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    if _is_unsupported_media_type(request, error):
        sent = request.headers.get("content-type", "").partition(";")[0]
        return build_problem_response(
            _get_request_id(request),
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f'Unsupported content type "{sent}". Send {JSON_MEDIA_TYPE}.',
        )
    field_problems = [build_field_problem(detail) for detail in error.errors()[:PROBLEM_ERRORS_MAX]]
    status = HTTPStatus.BAD_REQUEST if _is_malformed_json(error) else HTTPStatus.UNPROCESSABLE_ENTITY
    first = field_problems[0]
    prefix = f"{first.pointer}: " if (first.pointer or "#") != "#" else ""
    return build_problem_response(_get_request_id(request), status, prefix + first.detail, None, field_problems)


def _is_unsupported_media_type(request: Request, error: RequestValidationError) -> bool:
    """Return whether validation failed because the body is not JSON: then it is not parsed and is not an object."""
    is_whole = any(detail["loc"] == ("body",) for detail in error.errors())
    sent = (
        request.headers.get("content-type", JSON_MEDIA_TYPE)
        if request.headers.get("content-length") != "0"
        else JSON_MEDIA_TYPE
    )
    return is_whole and "json" not in sent


def _is_malformed_json(error: RequestValidationError) -> bool:
    return any(detail["type"] == "json_invalid" for detail in error.errors())


def make_json_pointer(*path: int | str) -> str:
    """Return the JSON pointer to a path in the body."""
    return "/".join(["#", *(_sanitize_name(str(step).replace("~", "~0").replace("/", "~1")) for step in path)])


def _sanitize_name(name: str) -> str:
    """Shorten a name from the request, and escape what is not printable."""
    return errors.escape_unprintable(name[:PROBLEM_NAME_MAX_CHARS])


def build_field_problem(detail: dict[str, Any]) -> FieldProblem:
    """Convert a pydantic error to a problem with a JSON pointer or the name of a parameter."""
    location, *path = detail["loc"] or ("body",)
    message = (
        MESSAGE_BY_ERROR_TYPE.get(detail["type"])
        or str(detail["msg"]).removeprefix("Value error, ")[: 4 * PROBLEM_NAME_MAX_CHARS]
    )
    if detail["type"] == "json_invalid":
        reason = detail.get("ctx", {}).get("error", "")
        return FieldProblem(pointer="#", detail=f"The request body is not valid JSON: {reason}")
    if location == "body":
        if detail["type"] == "missing" and not path:
            message = "The request body is required"
        return FieldProblem(pointer=make_json_pointer(*path), detail=message)
    name = _sanitize_name(".".join(str(step) for step in path))
    return FieldProblem(parameter=name, detail=f"{name}: {message}")


def find_allowed_methods(app: FastAPI, path: str) -> str | None:
    """Return the value of the Allow header; None if the path is not in the OpenAPI document."""
    paths = app.openapi()["paths"]
    matching = [path] if path in paths else [each for each in paths if compile_path(each)[0].match(path)]
    methods = {method.upper() for each in matching for method in paths[each]}
    return ", ".join(sorted(methods)) or None
