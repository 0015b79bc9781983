"""The OpenAPI document: adds tags, examples, errors and headers that the routes do not declare."""

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tidemill.accounts import routes as account_routes
from tidemill.dispatch import routes as quarantine
from tidemill.features import Feature, import_object
from tidemill.http import resource_routes, system_routes
from tidemill.jobs import bulk_operation_schemas, cross_job_routes, schemas
from tidemill.jobs import schemas as items
from tidemill.jobs import schemas as jobs
from tidemill.jobs.schemas import JobIn
from tidemill.limits import routes as limiter_routes
from tidemill.rest import auth, problems
from tidemill.rest.schema_types import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    EXAMPLE_WORKER_ID,
)

_JOB: dict[str, Any] = {
    "id": EXAMPLE_JOB_ID,
    "key": "J20261115_000777",
    "kind": "price.lookup",
    "user_id": 3,
    "status": "running",
    "counts": EXAMPLE_COUNTS,
    "ingest_complete": True,
    "priority": 0,
    "created_at": EXAMPLE_CREATED_AT,
    "updated_at": EXAMPLE_UPDATED_AT,
    "links": {"self": f"/v1/jobs/{EXAMPLE_JOB_ID}", "items": f"/v1/jobs/{EXAMPLE_JOB_ID}/items"},
}
_JOB_DETAIL: dict[str, Any] = {
    "params": {},
    "policy": {"mode": "continue"},
    "errors": {"exhausted": 6, "invalid": 1},
    "columns": ["sku", "cents"],
    "columns_of": "result",
    "rates": {"now_per_s": 24.5, "average_per_s": 18.1, "eta_s": 10.1},
    "adaptive": [{"worker": EXAMPLE_WORKER_ID, "child": 0, "concurrency": 50}],
    "retried": 21,
    "request_id": "3f1c6a0e9b2d4c58",
    "ip_address": "192.0.2.7",
}
_DEAD_LETTER = {"rev": None, "category": "handler", "dismissed_at": None, "dismissed_by": None}
_ITEM_ERROR = {"row": 8, "code": "exhausted", "reason": "The shop did not respond", "attempt": 3, "retryable": True}
_EXCEPTION = {
    "type": "TimeoutError",
    "traceback": 'Traceback (most recent call last):\n  File "prices.py", line 12, in lookup\nTimeoutError',
}
_ATTEMPT = {
    "attempt": 3,
    "at": EXAMPLE_UPDATED_AT,
    "worker": "host-1-4711-a1b2c3",
    "duration_ms": 30000,
    "status": "failed",
    "code": "exhausted",
}
_DONE_ITEM = {
    "id": f"{EXAMPLE_JOB_ID}:6",
    "seq": 6,
    "status": "done",
    "attempts": 1,
    "updated_at": EXAMPLE_UPDATED_AT,
    "duration_ms": 41,
}
_DONE_ITEM |= {"input_summary": {"sku": "A-6"}, "result": {"sku": "A-6", "cents": 995}}
_FAILED_ITEM: dict[str, Any] = {
    "id": f"{EXAMPLE_JOB_ID}:7",
    "seq": 7,
    "status": "failed",
    "attempts": 3,
    "updated_at": EXAMPLE_UPDATED_AT,
}
_FAILED_ITEM |= {"input_summary": {"sku": "A-7"}, "error": _ITEM_ERROR, "duration_ms": 30000}
_JOB_REFERENCE = {"job_id": EXAMPLE_JOB_ID, "job_key": "J20261115_000777", "kind": "price.lookup", "user_id": 3}
_PENDING_ITEM = {
    "id": f"{EXAMPLE_JOB_ID}:9",
    "seq": 9,
    "status": "pending",
    "attempts": 0,
    "updated_at": EXAMPLE_CREATED_AT,
}
_PENDING_ITEM |= {"input_summary": {"sku": "A-9"}, "job_status": "running", "why": "Queued"}
_BATCH: dict[str, Any] = {"id": 31, "shape": "range", "state": "done", "lo": 0, "hi": 250, "size": 250, "open": 0}
_BATCH |= {"tallies": {"done": 240, "not_found": 2, "skipped": 0, "failed": 1, "cancelled": 0, "retried": 7}}
_BATCH |= {"codes": {"invalid": 1}, "since": EXAMPLE_CREATED_AT, "closed_at": EXAMPLE_UPDATED_AT, "duration_ms": 41250}
_BATCH |= {"not_before": EXAMPLE_CREATED_AT, "worker": EXAMPLE_WORKER_ID, "isolated": False, "crashes": 0, "losses": 0}
_API_KEY = {"prefix": "tm_1a2b3c4d", "name": "nightly import", "user_id": 3, "created_at": EXAMPLE_CREATED_AT}
_QUOTA = {
    "open_jobs": {"used": 3, "limit": 50},
    "open_rows": {"used": 12_000, "limit": None},
    "stored_bytes": {"used": 48_210_944, "limit": 10 << 30},
}
_USER = {"id": 3, "name": "ada", "role": "user", "created_at": EXAMPLE_CREATED_AT, "keys": 1}
_OPERATION = {"id": "019a8b7d-0000-7000-8000-0000000000aa", "verb": "reprocess", "state": "done", "items": 12}
_OPERATION |= {
    "user_id": 3,
    "job_id": EXAMPLE_JOB_ID,
    "created_at": EXAMPLE_UPDATED_AT,
    "updated_at": EXAMPLE_UPDATED_AT,
}
_OPERATION |= {"predicate": {"statuses": ["failed", "not_found"], "reset_attempts": True}}
_RESOURCE = {
    "name": "users",
    "key": ["email"],
    "may_read": True,
    "may_write": True,
    "fields": [{"name": "email", "type": "text", "required": True, "writable": True, "readable": True}],
}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    system_routes.ApiIndexOut: {
        "service": "tidemill",
        "version": "0.1.0",
        "openapi": "/v1/openapi.json",
        "health": "/health",
    },
    system_routes.HealthOut: {
        "status": "ok",
        "database": "ok",
        "migrations": "ok",
        "workers": 2,
        "open_jobs": 1,
        "queue_age_s": 0.4,
        "reasons": [],
        "broker": "ok",
        "outbox": 0,
        "outbox_age_s": 0.0,
        "quarantined": 0,
    },
    system_routes.RequestLimitsOut: {
        "max_file_size_mb": 500,
        "max_json_bytes": 16777216,
        "max_inline_inputs": 100_000,
        "max_row_bytes": 4194304,
        "rate_limit_per_s": 100,
        "rate_limit_burst": 200,
        "max_concurrent_jobs": 5,
        "max_distribution_inputs": 100_000,
        "sources": ["inbox"],
        "pending_dashboard": True,
        "features": ["exports", "imports"],
        "quota": _QUOTA,
    },
    quarantine.QuarantinePage: {
        "items": [
            {
                "id": 7,
                "at": EXAMPLE_UPDATED_AT,
                "source": "received",
                "reason": "header.version: must be 1.0, not 2.0",
                "message": '{"header": {"version": "2.0"}}',
                "size": 412,
                "job_id": None,
                "worker": EXAMPLE_WORKER_ID,
            }
        ],
        "next_page": EXAMPLE_NEXT_PAGE,
    },
    quarantine.QuarantineClearedOut: {"removed": 7},
    system_routes.WorkerOut: {
        "id": EXAMPLE_WORKER_ID,
        "host": "mill-1",
        "pid": 4021,
        "started_at": EXAMPLE_CREATED_AT,
        "seen_at": EXAMPLE_UPDATED_AT,
        "silent_s": 1.2,
        "in_hand": 50,
        "info": {"processes": 4, "kinds": ["price.lookup"], "on_demand": False},
    },
    account_routes.MeOut: {"user_id": 3, "name": "ada", "role": "user", "by": "key tm_1a2b3c4d"},
    account_routes.SignIn: {"key": "tm_1a2b3c4d_0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978"},
    account_routes.UserIn: {"name": "ada", "role": "user"},
    account_routes.LinkOut: {"path": "/sign-in/9n0Xq3", "expires_in_s": 900},
    account_routes.SessionOut: {"created_at": EXAMPLE_CREATED_AT, "seen_at": EXAMPLE_UPDATED_AT, "is_this": True},
    account_routes.RoleIn: {"role": "admin"},
    account_routes.QuotaIn: {"open_jobs": 50, "open_rows": "unlimited"},
    account_routes.QuotaOut: _QUOTA,
    account_routes.UserOut: _USER,
    account_routes.KeyIn: {"name": "nightly import", "expires_in_s": 7776000},
    account_routes.KeyOut: _API_KEY | {"user_name": "ada", "last_used_at": EXAMPLE_UPDATED_AT},
    account_routes.NewKeyOut: _API_KEY | {"key": "tm_1a2b3c4d_0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978"},
    jobs.JobIn: {"kind": "price.lookup", "inputs": [{"sku": "A-1"}, {"sku": "A-2"}]},
    jobs.PolicyIn: {"mode": "tolerate", "max_percent": 5},
    jobs.JobSourceIn: {"name": "inbox", "path": "2026/11/prices.csv"},
    jobs.JobOut: _JOB,
    jobs.JobDetail: _JOB | _JOB_DETAIL,
    jobs.JobPage: {"jobs": [_JOB], "next_page": EXAMPLE_NEXT_PAGE},
    jobs.ActivityPage: {
        "activity": [{"id": 9, "at": EXAMPLE_UPDATED_AT, "user_id": 3, "verb": "pause", "details": {}}],
    },
    jobs.ProgressPointOut: {"at": EXAMPLE_UPDATED_AT, "settled": 752, "failed": 7},
    jobs.KickoffOut: {"settled": 118, "failed": 1, "retried": 2, "seconds": 5.02, "is_drained": False, "due_in": 0.0},
    resource_routes.ResourceList: {"resources": [_RESOURCE]},
    jobs.JobCountsOut: {"counts": {"running": 4, "paused": 1, "completed": 212, "failed": 3}, "is_complete": True},
    schemas.BatchPage: {"batches": [_BATCH]},
    items.ItemError: _ITEM_ERROR,
    items.ItemPage: {"columns": ["sku", "cents"], "items": [_DONE_ITEM, _FAILED_ITEM], "next_page": EXAMPLE_NEXT_PAGE},
    items.ItemDetail: {
        "id": f"{EXAMPLE_JOB_ID}:7",
        "job_id": EXAMPLE_JOB_ID,
        "seq": 7,
        "status": "failed",
        "attempts": 3,
        "updated_at": EXAMPLE_UPDATED_AT,
        "input": {"sku": "A-7"},
        "original": {"sku": "A7"},
        "fixes": [{"rev": 1, "by": 3, "at": EXAMPLE_UPDATED_AT}],
        "error": _ITEM_ERROR | _EXCEPTION,
        "attempt_history": [_ATTEMPT],
        "duration_ms": 30000,
    },
    items.AttemptOut: _ATTEMPT,
    items.FixIn: {"input": {"sku": "A-7"}},
    items.FixCreatedOut: {"rev": 1},
    cross_job_routes.PendingPage: {
        "items": [_JOB_REFERENCE | _PENDING_ITEM],
        "pending_count": 248,
        "next_page": EXAMPLE_NEXT_PAGE,
    },
    cross_job_routes.DeadLetterPage: {"items": [_JOB_REFERENCE | _FAILED_ITEM | _DEAD_LETTER]},
    cross_job_routes.DeadLetterGroupsOut: {
        "category": "handler",
        "counts": {"handler": 6, "invalid_row": 12, "dry_run": 0, "dismissed": 2, "is_exact": True},
        "groups": [
            {
                "id": "5caeb90337d5155c20d01b33adec5f94",
                "kind": "price.lookup",
                "type": "exhausted",
                "message": "The shop did not respond",
                "count": 6,
                "first_at": EXAMPLE_UPDATED_AT,
                "last_at": EXAMPLE_UPDATED_AT,
                "example": _JOB_REFERENCE | _FAILED_ITEM | _DEAD_LETTER,
            }
        ],
        "grouped": 6,
        "is_complete": True,
    },
    cross_job_routes.DeadLetterCauseOut: {"code": "exhausted", "count": 6, "jobs": 2, "newest": EXAMPLE_UPDATED_AT},
    cross_job_routes.RunNowIn: {"item_ids": [f"{EXAMPLE_JOB_ID}:7"]},
    cross_job_routes.RunNowOut: {"due": 1, "in_hand": 0, "others": 0},
    cross_job_routes.FlowOut: {
        "open": {"pending": 240, "processing": 50, "retry_wait": 8},
        "paused": 0,
        "unserved": [{"kind": "price.lookup", "items": 240, "jobs": 1}],
        "step_s": 30,
        "points": [{"at": EXAMPLE_UPDATED_AT, "settled": 1200, "failed": 7}],
    },
    bulk_operation_schemas.ReprocessIn: {"statuses": ["failed"], "error_codes": ["exhausted"]},
    bulk_operation_schemas.CancelItemsIn: {"statuses": ["pending"], "except": [f"{EXAMPLE_JOB_ID}:7"]},
    bulk_operation_schemas.CountIn: {"to": "reprocess", "statuses": ["failed"], "key": "AB-1*"},
    bulk_operation_schemas.CountOut: {"items": 3204, "is_complete": True},
    bulk_operation_schemas.DeadLetterSelectionIn: {"all_matching": True, "filter": {"kind": "price.lookup"}},
    bulk_operation_schemas.RetryForecastOut: {
        "dry_run": 0,
        "invalid_row": 0,
        "no_worker": 0,
        "poison": 1,
        "not_retryable": 2,
        "retryable": 3,
        "is_complete": True,
    },
    bulk_operation_schemas.RedriveIn: {
        "all_matching": True,
        "filter": {"kind": "price.lookup"},
        "except": [f"{EXAMPLE_JOB_ID}:7"],
    },
    limiter_routes.LimiterOut: {
        "name": "shop",
        "rate": 5.0,
        "current_rate": 2.5,
        "burst": 10,
        "concurrency": 4,
        "adaptive": True,
        "in_use": 3,
        "waiting": 17,
        "blocked_until": EXAMPLE_UPDATED_AT,
        "members": 0,
        "blocked_members": 0,
        "taken": 48211,
        "refused": 3,
        "changed": False,
        "used_at": EXAMPLE_UPDATED_AT,
    },
    limiter_routes.LimiterIn: {"rate": "2/s"},
    limiter_routes.UnblockIn: {"key": "shop.example.com"},
    bulk_operation_schemas.OperationOut: _OPERATION,
    bulk_operation_schemas.OperationPage: {"operations": [_OPERATION]},
}


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
        for name in feature.openapi_examples:
            examples |= import_object(name)
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
