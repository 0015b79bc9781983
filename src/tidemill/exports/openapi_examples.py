"""Examples of exports, for the OpenAPI document."""

from typing import Any

from pydantic import BaseModel

from tidemill.exports import schemas as exports
from tidemill.jobs.bulk_operation_schemas import SelectionIn
from tidemill.rest.example_values import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
)

_EXPORT: dict[str, Any] = {
    "job_id": EXAMPLE_JOB_ID,
    "key": "J20261115_000779",
    "idempotency_key": "editors-2026-11-15",
    "resource_type": "users",
    "format": "csv",
    "compression": "gzip",
    "status": "completed",
    "filters": {"role": {"in": ["admin", "editor"]}},
    "fields": ["email", "name"],
    "order": ["-created_at"],
    "record_count": 1000,
    "size": 18234,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "file_id": "019a8b7c1d2e7f008000123456789abc",
    "file_path": "s3://exports/tidemill/019a8b7c1d2e7f008000123456789abc",
    "download_url": f"/v1/exports/{EXAMPLE_JOB_ID}/download",
    "counts": dict.fromkeys(EXAMPLE_COUNTS, 0) | {"total": 1, "done": 1},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "started_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
    "expires_at": "2026-11-22T09:00:41.250000Z",
    "links": {"self": f"/v1/exports/{EXAMPLE_JOB_ID}", "download": f"/v1/exports/{EXAMPLE_JOB_ID}/download"},
}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    exports.ExportIn: {
        "resource": "users",
        "fields": ["email", "name"],
        "filters": {"role": {"in": ["admin", "editor"]}},
        "order": ["-created_at"],
        "compression": "gzip",
    },
    exports.ExportOut: _EXPORT,
    exports.ExportPage: {"exports": [_EXPORT], "next_page": EXAMPLE_NEXT_PAGE},
    SelectionIn: {
        "statuses": ["failed"],
        "error_codes": ["exhausted"],
        "except": [f"{EXAMPLE_JOB_ID}:7"],
    },
}
