"""Errors as RFC 9457 problem documents, each with the id of its request."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from tidemill.api.methods import allowed
from tidemill.domain import errors

JSON = "application/json"
MEDIA_TYPE = "application/problem+json"
VALUE_MAX = 200
ERRORS_MAX = 100
DETAIL_MAX = 4_000
WORDS = {"missing": "it is missing", "extra_forbidden": "there is no such field"}  # instead of pydantic's

STATUS: dict[type[errors.TidemillError], int] = {
    errors.InvalidInput: 422,
    errors.UnknownKind: 422,
    errors.KeyReused: 422,
    errors.TooLarge: 413,
    errors.Unknown: 404,
    errors.Conflict: 409,
    errors.Busy: 503,
    errors.Unavailable: 503,
    errors.Unreachable: 502,
}


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    pointer: str | None = Field(None, description="Where in the body, as a JSON pointer", examples=["#/inputs"])
    parameter: str | None = Field(None, description="Or which parameter of the path, query or headers")
    detail: str


class Problem(BaseModel):
    """Why a request was not carried out."""

    type: str = Field("about:blank", examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no job J20261115_000777"])
    request_id: str = Field(examples=["3f1c6a0e9b2d4c58"])
    errors: list[Fault] | None = None


EXAMPLES = {
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


class Refusal(Exception):
    """A refusal that belongs to HTTP and not to the domain."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: dict[str, str] | None = None,
        faults: Sequence[Fault] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail[:DETAIL_MAX]
        self.headers = headers or {}
        self.faults = faults


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may answer with these."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": _example(status)}},
        }
        for status in sorted(statuses)
    }


def _example(status: int) -> dict[str, Any]:
    faults = [Fault(pointer="#/kind", detail=WORDS["missing"])] if status == HTTPStatus.UNPROCESSABLE_ENTITY else None
    return _problem("3f1c6a0e9b2d4c58", status, EXAMPLES[status], faults)


def answer(
    request_id: str,
    status: int,
    detail: str,
    headers: dict[str, str] | None = None,
    faults: Sequence[Fault] | None = None,
) -> JSONResponse:
    return JSONResponse(_problem(request_id, status, detail, faults), status, headers, media_type=MEDIA_TYPE)


def _problem(request_id: str, status: int, detail: str, faults: Sequence[Fault] | None) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    problem = Problem(title=title, status=status, detail=detail, request_id=request_id, errors=faults)
    return problem.model_dump(exclude_none=True)


def install(app: FastAPI) -> None:
    app.add_exception_handler(errors.TidemillError, _of_ours)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Refusal, _of_refusal)


def status_of(error: errors.TidemillError) -> int:
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def _id(request: Request) -> str:
    return str(request.state.request_id)


async def _of_ours(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, errors.TidemillError):
        raise error
    status = status_of(error)
    headers = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    told = [_fault(request, error, at) for at in range(len(getattr(error, "problems", ())))[:ERRORS_MAX]]
    told += [Fault(pointer=pointer(*path), detail=reason) for path, reason in getattr(error, "faults", ())[:ERRORS_MAX]]
    faults = told or None
    return answer(_id(request), status, str(error)[:DETAIL_MAX], headers, faults)


def _fault(request: Request, error: Any, at: int) -> Fault:
    """In a body it is at a pointer; a query has parameters."""
    place, detail = error.places[at] if getattr(error, "places", ()) else (), error.problems[at]
    if not place or request.method != "GET":
        return Fault(pointer=pointer(*place), detail=detail)
    name = place[0] if len(place) == 1 else f"{place[0].removesuffix('s')}[{_said(place[1])}]"
    return Fault(parameter=name, detail=detail)


async def _of_refusal(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, Refusal):
        raise error
    return answer(_id(request), error.status, error.detail, error.headers, error.faults)


async def _of_http(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and (known := allowed(request.app, request.scope["path"])):
        headers["Allow"] = known
    return answer(_id(request), error.status_code, error.detail, headers)


async def _of_validation(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    if _is_unread(request, error):
        sent = request.headers.get("content-type", "").partition(";")[0] or "a body without a type"
        return answer(_id(request), HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"{sent} is not taken here: send {JSON}")
    faults = [fault_of(detail) for detail in error.errors()[:ERRORS_MAX]]
    status = HTTPStatus.BAD_REQUEST if _is_malformed(error) else HTTPStatus.UNPROCESSABLE_ENTITY
    place = f"{faults[0].pointer}: " if (faults[0].pointer or "#") != "#" else ""
    return answer(_id(request), status, place + faults[0].detail, None, faults)


def _is_unread(request: Request, error: RequestValidationError) -> bool:
    """A body of another type is not parsed, and then found to be no object."""
    is_whole = any(detail["loc"] == ("body",) for detail in error.errors())
    sent = request.headers.get("content-type", JSON) if request.headers.get("content-length") != "0" else JSON
    return is_whole and "json" not in sent


def _is_malformed(error: RequestValidationError) -> bool:
    return any(detail["type"] == "json_invalid" for detail in error.errors())


def pointer(*path: int | str) -> str:
    """A place in a body, as a JSON pointer."""
    return "/".join(["#", *(_said(str(step).replace("~", "~0").replace("/", "~1")) for step in path)])


def _said(name: str) -> str:
    """A name out of the request, which may be long, or half a pair of surrogates that no answer can carry."""
    return name[:VALUE_MAX].encode(errors="replace").decode()


def fault_of(detail: dict[str, Any]) -> Fault:
    """A pydantic error: a pointer into the body, or the name of a parameter."""
    place, *path = detail["loc"] or ("body",)
    message = WORDS.get(detail["type"]) or str(detail["msg"]).removeprefix("Value error, ")[: 4 * VALUE_MAX]
    if detail["type"] == "json_invalid":
        reason = detail.get("ctx", {}).get("error", "")
        return Fault(pointer="#", detail=f"the body is not JSON: {reason}")
    if place == "body":
        if detail["type"] == "missing" and not path:
            message = "the body is missing"
        return Fault(pointer=pointer(*path), detail=message)
    name = _said(".".join(str(step) for step in path))
    return Fault(parameter=name, detail=f"{name}: {message}")
