"""Errors as RFC 9457 problem documents, each with the id of its request; the methods that a path allows."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from tidemill.core import errors

JSON_MEDIA_TYPE = "application/json"
PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_NAME_MAX_CHARS = 200
PROBLEM_ERRORS_MAX = 100
PROBLEM_DETAIL_MAX_CHARS = 4_000
MESSAGE_BY_ERROR_TYPE = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field",
}  # instead of pydantic's

STATUS_BY_ERROR: dict[type[errors.TidemillError], int] = {
    errors.InvalidInput: 422,
    errors.UnknownKind: 422,
    errors.IdempotencyKeyReused: 422,
    errors.TooLarge: 413,
    errors.Forbidden: 403,
    errors.UnknownEntity: 404,
    errors.Conflict: 409,
    errors.Busy: 503,
    errors.Unavailable: 503,
    errors.RemoteUnreachable: 502,
}


class FieldProblem(BaseModel):
    """One thing that is wrong with a request."""

    pointer: str | None = Field(None, description="Where in the body, as a JSON pointer", examples=["#/inputs"])
    parameter: str | None = Field(None, description="Or which parameter of the path, query or headers")
    detail: str


class ProblemDetails(BaseModel):
    """Why a request was not carried out."""

    type: str = Field("about:blank", examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no job J20261115_000777"])
    request_id: str = Field(examples=["3f1c6a0e9b2d4c58"])
    errors: list[FieldProblem] | None = None


PROBLEM_EXAMPLES = {
    400: "the body is not JSON: EOF while parsing a value at line 1 column 9",
    401: "say who you are: an API key, or sign in",
    403: "only an admin may do this",
    404: "there is no job 'J20261115_000777'",
    408: "the rest of the body did not come in time",
    409: "job J20261115_000777 is completed: it cannot be resumed",
    413: "the body has more than 16777216 bytes",
    415: "text/plain is not taken here: send application/json",
    416: "the file has 1048576 bytes",
    422: "#/kind: it is missing",
    429: "too many requests; wait a moment",
    502: "https://files.example.com/users.csv: the server does not answer",
    500: "something went wrong here; the log has more, under the id of this request",
    503: "everybody is busy: try again in a moment",
}


class HttpError(Exception):
    """A refusal that belongs to HTTP and not to the domain."""

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


def build_problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may answer with these."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {
                PROBLEM_MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/ProblemDetails"},
                    "example": _build_example(status),
                }
            },
        }
        for status in sorted(statuses)
    }


def _build_example(status: int) -> dict[str, Any]:
    faults = (
        [FieldProblem(pointer="#/kind", detail=MESSAGE_BY_ERROR_TYPE["missing"])]
        if status == HTTPStatus.UNPROCESSABLE_ENTITY
        else None
    )
    return _build_problem("3f1c6a0e9b2d4c58", status, PROBLEM_EXAMPLES[status], faults)


def build_problem_response(
    request_id: str,
    status: int,
    detail: str,
    headers: dict[str, str] | None = None,
    field_problems: Sequence[FieldProblem] | None = None,
) -> JSONResponse:
    return JSONResponse(
        _build_problem(request_id, status, detail, field_problems), status, headers, media_type=PROBLEM_MEDIA_TYPE
    )


def _build_problem(
    request_id: str, status: int, detail: str, field_problems: Sequence[FieldProblem] | None
) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    problem = ProblemDetails(title=title, status=status, detail=detail, request_id=request_id, errors=field_problems)
    return problem.model_dump(exclude_none=True)


def install_problem_handlers(app: FastAPI) -> None:
    app.add_exception_handler(errors.TidemillError, _handle_tidemill_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(HttpError, _handle_http_error)


def get_error_status(error: errors.TidemillError) -> int:
    return next((status for kind, status in STATUS_BY_ERROR.items() if isinstance(error, kind)), 500)


def _get_request_id(request: Request) -> str:
    return str(request.state.request_id)


async def _handle_tidemill_error(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, errors.TidemillError):
        raise error
    status = get_error_status(error)
    headers = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    told = [
        _build_located_problem(request, error, at)
        for at in range(len(getattr(error, "problems", ())))[:PROBLEM_ERRORS_MAX]
    ]
    told += [
        FieldProblem(pointer=make_json_pointer(*path), detail=reason)
        for path, reason in getattr(error, "faults", ())[:PROBLEM_ERRORS_MAX]
    ]
    faults = told or None
    return build_problem_response(
        _get_request_id(request), status, str(error)[:PROBLEM_DETAIL_MAX_CHARS], headers, faults
    )


def _build_located_problem(request: Request, error: Any, index: int) -> FieldProblem:
    """In a body it is at a pointer; a query has parameters."""
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


async def _handle_http_exception(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and (
        known := format_allow_header(request.app, request.scope["path"])
    ):
        headers["Allow"] = known
    return build_problem_response(_get_request_id(request), error.status_code, error.detail, headers)


async def _handle_validation_error(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    if _is_unsupported_media_type(request, error):
        sent = request.headers.get("content-type", "").partition(";")[0] or "a body without a type"
        return build_problem_response(
            _get_request_id(request),
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"{sent} is not taken here: send {JSON_MEDIA_TYPE}",
        )
    faults = [build_field_problem(detail) for detail in error.errors()[:PROBLEM_ERRORS_MAX]]
    status = HTTPStatus.BAD_REQUEST if _is_malformed_json(error) else HTTPStatus.UNPROCESSABLE_ENTITY
    place = f"{faults[0].pointer}: " if (faults[0].pointer or "#") != "#" else ""
    return build_problem_response(_get_request_id(request), status, place + faults[0].detail, None, faults)


def _is_unsupported_media_type(request: Request, error: RequestValidationError) -> bool:
    """A body of another type is not parsed, and then found to be no object."""
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
    """A place in a body, as a JSON pointer."""
    return "/".join(["#", *(_sanitize_name(str(step).replace("~", "~0").replace("/", "~1")) for step in path)])


def _sanitize_name(name: str) -> str:
    """A name out of the request, which may be long, or half a pair of surrogates that no answer can carry."""
    return name[:PROBLEM_NAME_MAX_CHARS].encode(errors="replace").decode()


def build_field_problem(detail: dict[str, Any]) -> FieldProblem:
    """A pydantic error: a pointer into the body, or the name of a parameter."""
    place, *path = detail["loc"] or ("body",)
    message = (
        MESSAGE_BY_ERROR_TYPE.get(detail["type"])
        or str(detail["msg"]).removeprefix("Value error, ")[: 4 * PROBLEM_NAME_MAX_CHARS]
    )
    if detail["type"] == "json_invalid":
        reason = detail.get("ctx", {}).get("error", "")
        return FieldProblem(pointer="#", detail=f"the body is not JSON: {reason}")
    if place == "body":
        if detail["type"] == "missing" and not path:
            message = "the body is missing"
        return FieldProblem(pointer=make_json_pointer(*path), detail=message)
    name = _sanitize_name(".".join(str(step) for step in path))
    return FieldProblem(parameter=name, detail=f"{name}: {message}")


def format_allow_header(app: FastAPI, path: str) -> str | None:
    """The value of an Allow header; None for a path that is in no document."""
    paths = app.openapi()["paths"]
    matching = [path] if path in paths else [each for each in paths if compile_path(each)[0].match(path)]
    found = {method.upper() for each in matching for method in paths[each]}
    return ", ".join(sorted(found)) or None
