"""The OpenAPI document: adds tags, examples, errors and headers that the routes do not declare."""

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tidemill.features import Feature, import_object
from tidemill.http.openapi_examples import OPENAPI_EXAMPLES
from tidemill.jobs.schemas import JobIn
from tidemill.rest import auth, problems

OpenApiNode = dict[str, Any]
API_DESCRIPTION = """
Tidemill stores every row in PostgreSQL before workers process it.

Authenticate with `Authorization: Bearer tm_…`. Lists are paginated: pass `next_page` as `after` to get the next page.
Names are snake_case; requests also accept camelCase. Errors are problem documents (RFC 9457) with the request id.
"""
CORE_TAGS = [
    {"name": "jobs", "description": "Submit, follow and control jobs"},
    {"name": "items", "description": "Items of a job"},
    {"name": "across jobs", "description": "Pending items and dead letters of all jobs"},
    {"name": "operations", "description": "Bulk operations on items"},
    {"name": "resources", "description": "Tables for imports and exports"},
    {"name": "limiters", "description": "Rate and concurrency limits for external services"},
    {"name": "events", "description": "Streams of changes to jobs"},
    {"name": "identity", "description": "Users, API keys and sessions"},
    {"name": "service", "description": "Health, limits, workers and metrics of the service"},
]
RESPONSE_HEADERS = {
    "X-Request-ID": "The request id: the value of the request header, or a new one. It is in every error and log line.",
    "RateLimit": "Remaining requests, and seconds until the limit resets",
    "RateLimit-Policy": "Requests allowed per time window, in seconds",
    "Retry-After": "Seconds to wait before the next request",
    "Location": "Path of the new job, export or operation",
}
PUBLIC_ROUTE_HEADERS = ("X-Request-ID",)
AUTHENTICATED_ROUTE_HEADERS = ("X-Request-ID", "RateLimit", "RateLimit-Policy")
HEADERS_BY_STATUS = {"202": ("Location", "Retry-After"), "429": ("Retry-After",), "503": ("Retry-After",)}


def list_tags(features: Sequence[Feature]) -> list[dict[str, str]]:
    """Return the tags of the shared routes and one tag for each feature with routes."""
    tags = [feature.openapi_tag for feature in features if feature.openapi_tag is not None]
    return CORE_TAGS + [{"name": name, "description": text} for name, text in tags]


def load_examples(features: Sequence[Feature]) -> dict[type[BaseModel], dict[str, Any]]:
    """Return model -> example, for the shared routes and all features."""
    examples = dict(OPENAPI_EXAMPLES)
    for feature in features:
        if feature.openapi_examples is not None:
            examples |= import_object(feature.openapi_examples)
    return examples


def install_openapi(app: FastAPI, features: Sequence[Feature]) -> None:
    """Build the document on the first request for it, because that takes half a second."""
    make = app.openapi

    def build_openapi() -> OpenApiNode:
        if app.openapi_schema is None:
            _complete_document(make(), load_examples(features))
        return make()

    app.openapi = build_openapi  # type: ignore[method-assign]


def _complete_document(document: OpenApiNode, examples: dict[type[BaseModel], dict[str, Any]]) -> None:
    """Add the schemas of errors and streamed bodies, security schemes, and examples."""
    parts = document["components"]
    added_models: list[type[BaseModel]] = [problems.ProblemDetails, JobIn]
    added_models += [model for model in examples if model.__name__ not in parts["schemas"]]
    for added in added_models:
        schema = added.model_json_schema(ref_template="#/components/schemas/{model}")
        parts["schemas"] |= schema.pop("$defs", {}) | {added.__name__: schema}
    for name in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(name, None)
    for model, example in examples.items():
        parts["schemas"][model.__name__]["examples"] = [example]
    parts["headers"] = {
        name: {"description": text, "schema": {"type": "string"}} for name, text in RESPONSE_HEADERS.items()
    }
    parts["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key, `tm_…`"},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": auth.SESSION_COOKIE,
            "description": f"A browser session; writes also need the {auth.CSRF_HEADER} header",
        },
    }
    document["security"] = [{"key": []}, {"session": []}]
    for operation in iter_operations(document):
        _complete_operation(operation)


def iter_operations(document: OpenApiNode) -> Iterator[OpenApiNode]:
    for methods in document["paths"].values():
        yield from methods.values()


def _complete_operation(operation: OpenApiNode) -> None:
    del operation[auth.BODY_LIMITS_KEY]
    operation["summary"] = operation["operationId"].replace("_", " ").capitalize()
    for parameter in operation.get("parameters", ()):
        _remove_null_option(parameter["schema"])
    answers = operation["responses"]
    if "requestBody" in operation:
        answers |= {
            str(status): answer
            for status, answer in problems.build_openapi_problem_responses(400, 408, 413, 415).items()
        }
    operation["responses"] = dict(sorted(answers.items()))
    usual = PUBLIC_ROUTE_HEADERS if operation["x-permission"] == auth.Permission.PUBLIC else AUTHENTICATED_ROUTE_HEADERS
    for status, answer in answers.items():
        names = (*usual, *HEADERS_BY_STATUS.get(status, ()))
        for body in answer.get("content", {}).values():
            body.pop("itemSchema", None)  # a key of OpenAPI 3.2, but the document declares 3.1
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _remove_null_option(schema: OpenApiNode) -> None:
    """Remove null from a schema, because a query parameter is omitted and never null."""
    kept = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(kept) == 1:
        del schema["anyOf"]
        schema |= kept[0]
