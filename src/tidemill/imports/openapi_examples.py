"""Examples of imports, for the OpenAPI document."""

from typing import Any

from pydantic import BaseModel

from tidemill.imports import schemas as imports
from tidemill.rest.example_values import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
)

_IMPORT: dict[str, Any] = {
    "job_id": EXAMPLE_JOB_ID,
    "key": "J20261115_000778",
    "idempotency_key": "users-2026-11-15",
    "resource_type": "users",
    "mode": "upsert",
    "validate_only": False,
    "status": "completed_with_errors",
    "total_records": 1000,
    "processed_records": 1000,
    "successful_records": 993,
    "error_records": 7,
    "counts": dict.fromkeys(EXAMPLE_COUNTS, 0) | {"total": 1000, "done": 993, "failed": 7},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "started_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
    "links": {"self": f"/v1/imports/{EXAMPLE_JOB_ID}", "errors": f"/v1/imports/{EXAMPLE_JOB_ID}/errors"},
}
_FILE_LAYOUT = {"format": "csv", "encoding": "utf-8", "delimiter": ",", "quote": '"', "header": True}
_FILE_LAYOUT |= {"compression": "none", "line_end": "\n"}
_COLUMN_MAPPING = {"E-Mail": "email", "name": "name"}
_IMPORT_DETAIL: dict[str, Any] = {
    "rates": {"now_per_s": 0, "average_per_s": 24100.5},
    "effects": {"inserted": 900, "updated": 90, "unchanged": 3},
    "errors": {"email.pattern": 6, "role.enum": 1},
    "layout": _FILE_LAYOUT,
    "columns": ["E-Mail", "name"],
    "mapping": _COLUMN_MAPPING,
    "duplicates": "error",
    "resource_key": ["email"],
    "policy": {"mode": "continue"},
    "file_id": "3f1c6a0e9b2d4c583f1c6a0e9b2d4c58",
}
_ROW_ERROR = {"row": 7, "line": 8, "field": "email", "value": "ada", "code": "email.pattern"}
_ROW_ERROR |= {"reason": "not an e-mail address", "retryable": False}
_FAILED_ROW = {"row": 7, "line": 8, "errors": [_ROW_ERROR], "input": {"E-Mail": "ada", "name": "Ada"}}
_IMPORT_SOURCE = {"url": "https://files.example.com/users.csv.gz"}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    imports.ImportIn: {"resource": "users", "source": _IMPORT_SOURCE, "mode": "upsert", "mapping": {"E-Mail": "email"}},
    imports.PreviewIn: {"resource": "users", "source": _IMPORT_SOURCE, "rows": 50},
    imports.PreviewOut: {
        "resource_type": "users",
        "layout": _FILE_LAYOUT,
        "columns": ["E-Mail", "name"],
        "mapping": _COLUMN_MAPPING,
        "unknown": [],
        "missing": [],
        "problems": [],
        "rows": [_FAILED_ROW],
    },
    imports.ImportOut: _IMPORT,
    imports.ImportDetail: _IMPORT | _IMPORT_DETAIL,
    imports.ImportPage: {"imports": [_IMPORT], "next_page": EXAMPLE_NEXT_PAGE},
    imports.RowPage: {"rows": [_FAILED_ROW], "next_page": EXAMPLE_NEXT_PAGE},
}
