"""The ``params`` of match and enrich jobs, validated when a job is submitted and when a worker loads it."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, ValidationError, ValidationInfo, field_validator

from tidemill.config_sections import ConfigTable, Names, NonEmpty, Text, Unique, list_validation_problems
from tidemill.core.errors import InvalidRequest
from tidemill.core.json_input import JsonObject
from tidemill.core.result_grid import COLUMN_NAME_MAX_CHARS
from tidemill.enrichment import job_requests
from tidemill.enrichment.config import HEADER_NAME_PATTERN, RESERVED_HEADERS
from tidemill.enrichment.job_requests import (
    MATCH_LIMIT_MAX,
    MATCH_PROPERTIES_MAX,
    NOT_FOUND_DELAY_MAX_S,
    STRATEGIES_MAX,
    JsonPath,
    find_strategy_problem,
)

ENRICH_FIELDS_MAX, ENRICH_HEADERS_MAX, ENRICH_PATH_MAX_CHARS = 100, 20, 4_000
_SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization", "x-api-key", "api-key", "x-auth-token")
_RESERVED_REQUEST_HEADERS = (*RESERVED_HEADERS, "expect", "upgrade", "te")


def _check_strategies(names: tuple[str, ...]) -> tuple[str, ...]:
    problems = [problem for problem in map(find_strategy_problem, names) if problem]
    if problems:
        raise ValueError("; ".join(problems))
    return names


def _check_path_template(path: str) -> str:
    problem = job_requests.find_template_problem(path)
    if problem:
        raise ValueError(problem)
    if not path.isprintable() or " " in path or "#" in path or "\\" in path:
        raise ValueError('Input should not contain spaces, "#" or backslashes')
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError("Input should be a path relative to the URL of the service, such as /items/{sku}")
    if job_requests.has_path_traversal(path):
        raise ValueError('Input should not contain "." or ".." segments')
    return path


def _check_field_paths(fields: dict[str, str]) -> dict[str, str]:
    problems = []
    for name, path in fields.items():
        if not 0 < len(name) <= COLUMN_NAME_MAX_CHARS or "\x00" in name:
            problems.append(f"Field names must have 1 to {COLUMN_NAME_MAX_CHARS} characters")
        try:
            JsonPath.parse(path)
        except ValueError as error:
            problems.append(f"{name[:50]}: {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return fields


def _check_request_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, text in headers.items():
        if not HEADER_NAME_PATTERN.fullmatch(name) or name.lower() in _RESERVED_REQUEST_HEADERS:
            raise ValueError(f"Header {name[:50]!r} cannot be set")
        if name.lower() in _SECRET_HEADERS:
            raise ValueError(f"{name} is a secret, and jobs store their headers. Set it in the service declaration")
        if not text.isascii() or not text.isprintable():
            raise ValueError(f"Header {name} should contain only printable ASCII characters")
    return headers


def _check_body_template(body: Any) -> Any:
    problems = list(dict.fromkeys(job_requests.list_template_problems(body)))
    if problems:
        raise ValueError("; ".join(problems))
    return body


class MatchParams(ConfigTable):
    service: Text
    query: Text
    type: Text | None = None
    properties: Annotated[dict[Text, Text], Field(max_length=MATCH_PROPERTIES_MAX)] = Field({})
    limit: Annotated[int, Field(strict=True, ge=1, le=MATCH_LIMIT_MAX)] = 5
    threshold: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None
    accept_match: StrictBool = True
    strategies: Annotated[Names, Field(max_length=STRATEGIES_MAX), AfterValidator(_check_strategies)] = ()
    not_found_delay: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=NOT_FOUND_DELAY_MAX_S)] = 2.0

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if given.get("threshold") is None and given.get("accept_match") is False:
            yield "threshold", "Field required when accept_match is false; otherwise no candidate can match"


class EnrichParams(ConfigTable):
    service: Text
    path: Annotated[Text, Field(max_length=ENRICH_PATH_MAX_CHARS), AfterValidator(_check_path_template)]
    method: Literal["GET", "POST"] = "GET"
    body: Annotated[Any, AfterValidator(_check_body_template)] = None
    headers: Annotated[dict[str, str], Field(max_length=ENRICH_HEADERS_MAX), AfterValidator(_check_request_headers)] = (
        Field({})
    )
    fields: Annotated[
        dict[str, Text], NonEmpty, Field(max_length=ENRICH_FIELDS_MAX), AfterValidator(_check_field_paths)
    ]
    required: Annotated[tuple[Text, ...], Unique] = ()

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if given.get("body") is not None and given.get("method", "GET") == "GET":
            yield "body", "A GET request has no body. Set method to POST"

    @field_validator("required")
    @classmethod
    def _check_required_names(cls, required: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        unknown = [name for name in required if name not in info.data.get("fields", required)]
        if unknown:
            quoted = ", ".join(f'"{name}"' for name in unknown)
            raise ValueError(f"Unknown fields: {quoted}")
        return required


def validate_params(model: type[ConfigTable], params: Mapping[str, Any]) -> JsonObject:
    """Return the parameters that are set. Raise InvalidRequest with all problems."""
    try:
        return model.model_validate(params).get_explicit_values()
    except ValidationError as error:
        raise InvalidRequest(list_validation_problems(error, "params")) from None
