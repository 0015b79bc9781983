"""Examples of watches, their files and scans, for the OpenAPI document.

An example of every main request and answer, for the OpenAPI document. A test reads each with its own model.
"""

from typing import Any

from pydantic import BaseModel

from tidemill.dispatch import routes as quarantine
from tidemill.distributions import schemas as distributions
from tidemill.enrichment import routes as services
from tidemill.exports import schemas as exports
from tidemill.http import identity_routes, system_routes
from tidemill.imports import schemas as imports
from tidemill.jobs import bulk_operation_schemas, cross_job_routes, resource_routes, schemas
from tidemill.jobs import schemas as items
from tidemill.jobs import schemas as jobs
from tidemill.limits import routes as limiter_routes
from tidemill.watches import routes as watch_routes

_WATCH_JOB_ID = "019a8b7c-1d2e-7f00-8000-123456789abc"
_WATCH_FILE_SEEN_AT, _WATCH_FILE_UPDATED_AT = "2026-11-15T09:00:00.000000Z", "2026-11-15T09:00:41.250000Z"
_WATCH_NEXT_PAGE_CURSOR = "WyJ3YXRjaF9maWxlcyIsIjEyMzQ1Njc4Il0"

_WATCH_FILE: dict[str, Any] = {
    "id": 42,
    "path": "users-2026-11-15.csv",
    "size": 18234,
    "version": "1763197200000000000",
    "state": "processed",
    "status": None,
    "job_id": _WATCH_JOB_ID,
    "job_key": "J20261115_000778",
    "moved_to": "processed/users-2026-11-15.csv",
    "tries": 0,
    "seen_at": _WATCH_FILE_SEEN_AT,
    "updated_at": _WATCH_FILE_UPDATED_AT,
}
_WATCH: dict[str, Any] = {
    "name": "nightly",
    "source": "sftp://mill@files.example.com/outgoing",
    "scheme": "sftp",
    "pattern": ["users-*.csv"],
    "task": {"kind": "tidemill.import", "resource_type": "users", "mode": "upsert"},
    "owner": "ada",
    "every_s": 60.0,
    "marker": None,
    "moves": True,
    "scanning": False,
    "last_scan_at": _WATCH_FILE_UPDATED_AT,
    "next_scan_at": _WATCH_FILE_UPDATED_AT,
    "found": 1,
    "submitted": 1,
    "problem": None,
    "files": {"seen": 1, "processed": 41, "failed": 2},
    "links": {"files": "/v1/sources/nightly/files", "scan": "/v1/ingestion/scan"},
}
_WATCH_SCAN: dict[str, Any] = {"name": "nightly", "found": 1, "submitted": 1, "problem": None, "files": [_WATCH_FILE]}

WATCH_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    watch_routes.WatchList: {"sources": [_WATCH]},
    watch_routes.WatchFilePage: {"files": [_WATCH_FILE], "next_page": _WATCH_NEXT_PAGE_CURSOR},
    watch_routes.ScanIn: {"name": "nightly"},
    watch_routes.ScanList: {"scans": [_WATCH_SCAN]},
}


EXAMPLE_JOB_ID = "019a8b7c-1d2e-7f00-8000-123456789abc"
EXAMPLE_WORKER_ID = "mill-1-4021-9f3c1a"
EXAMPLE_CREATED_AT, EXAMPLE_UPDATED_AT = "2026-11-15T09:00:00.000000Z", "2026-11-15T09:00:41.250000Z"

_ITEM_COUNTS = {"total": 1000, "pending": 0, "processing": 240, "retry_wait": 8}
_ITEM_COUNTS |= {"done": 740, "not_found": 5, "skipped": 0, "failed": 7, "cancelled": 0}
_JOB: dict[str, Any] = {
    "id": EXAMPLE_JOB_ID,
    "key": "J20261115_000777",
    "kind": "price.lookup",
    "user_id": 3,
    "status": "running",
    "counts": _ITEM_COUNTS,
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
_ITEM_ERROR = {"row": 8, "code": "exhausted", "reason": "the shop did not answer", "attempt": 3, "retryable": True}
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
_PENDING_ITEM |= {"input_summary": {"sku": "A-9"}, "job_status": "running", "why": "waits for its turn"}
_BATCH: dict[str, Any] = {"id": 31, "shape": "range", "state": "done", "lo": 0, "hi": 250, "size": 250, "open": 0}
_BATCH |= {"tallies": {"done": 240, "not_found": 2, "skipped": 0, "failed": 1, "cancelled": 0, "retried": 7}}
_BATCH |= {"codes": {"invalid": 1}, "since": EXAMPLE_CREATED_AT, "closed_at": EXAMPLE_UPDATED_AT, "duration_ms": 41250}
_BATCH |= {"not_before": EXAMPLE_CREATED_AT, "worker": EXAMPLE_WORKER_ID, "isolated": False, "crashes": 0, "losses": 0}
_API_KEY = {"prefix": "tm_1a2b3c4d", "name": "nightly import", "user_id": 3, "created_at": EXAMPLE_CREATED_AT}
_USER = {"id": 3, "name": "ada", "role": "user", "created_at": EXAMPLE_CREATED_AT, "keys": 1}
_OPERATION = {"id": "019a8b7d-0000-7000-8000-0000000000aa", "verb": "reprocess", "state": "done", "items": 12}
_OPERATION |= {
    "user_id": 3,
    "job_id": EXAMPLE_JOB_ID,
    "created_at": EXAMPLE_UPDATED_AT,
    "updated_at": EXAMPLE_UPDATED_AT,
}
_OPERATION |= {"predicate": {"statuses": ["failed", "not_found"], "reset_attempts": True}}
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
    "counts": dict.fromkeys(_ITEM_COUNTS, 0) | {"total": 1000, "done": 993, "failed": 7},
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
    "counts": dict.fromkeys(_ITEM_COUNTS, 0) | {"total": 1, "done": 1},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "started_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
    "expires_at": "2026-11-22T09:00:41.250000Z",
    "links": {"self": f"/v1/exports/{EXAMPLE_JOB_ID}", "download": f"/v1/exports/{EXAMPLE_JOB_ID}/download"},
}
_DISTRIBUTION_INPUT = {"index_key": "ABC", "effective_date": 20240202, "asofindicator": "CLS"}
_DISTRIBUTION: dict[str, Any] = {
    "job_id": EXAMPLE_JOB_ID,
    "key": "J20261115_000779",
    "dataset": "prices",
    "status": "completed",
}
_DISTRIBUTION |= dict.fromkeys(_ITEM_COUNTS, 0) | {"total": 2, "done": 2, "files_generated": 1, "files_reused": 1}
_DISTRIBUTION |= {"reuse": {"enabled": True, "days": 7}, "format": "csv", "compression": "none"}
_DISTRIBUTION |= {
    "policy": {"mode": "fail_fast"},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
}
_DISTRIBUTION |= {
    "started_at": EXAMPLE_CREATED_AT,
    "links": {"self": f"/v1/distributions/{EXAMPLE_JOB_ID}", "redrive": f"/v1/distributions/{EXAMPLE_JOB_ID}/redrive"},
}
_DISTRIBUTION_FOLDER_URL = "s3://bucket/exports/2026/11/15/J20261115_000779"
_DISTRIBUTION_CONTENT = _DISTRIBUTION_INPUT | {
    "status": "done",
    "attempts": 1,
    "path": f"{_DISTRIBUTION_FOLDER_URL}/ABC_20240202_CLS.csv",
    "rows": 500,
}
_DISTRIBUTION_CONTENT |= {"download_url": f"/v1/distributions/{EXAMPLE_JOB_ID}/files/0"}
_DISTRIBUTION_CONTENT |= {
    "size": 20110,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "reused": False,
}
_DATASET = {
    "name": "prices",
    "fields": [
        {"name": "index_key", "type": "text", "required": True},
        {"name": "effective_date", "type": "yyyymmdd", "required": True},
        {"name": "asofindicator", "type": "text", "required": True},
    ],
    "date_field": "effective_date",
    "format": "csv",
    "compression": "none",
}
_RESOURCE = {
    "name": "users",
    "key": ["email"],
    "may_read": True,
    "may_write": True,
    "fields": [{"name": "email", "type": "text", "required": True, "writable": True, "readable": True}],
}
_NEXT_PAGE_CURSOR = "WyJzZXEiLCIxZDBmNjM0ZSIsN10"

OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    **WATCH_EXAMPLES,
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
    },
    quarantine.QuarantinePage: {
        "items": [
            {
                "id": 7,
                "at": EXAMPLE_UPDATED_AT,
                "source": "received",
                "reason": "header.version is 2.0, not 1.0",
                "message": '{"header": {"version": "2.0"}}',
                "size": 412,
                "job_id": None,
                "worker": EXAMPLE_WORKER_ID,
            }
        ],
        "next_page": _NEXT_PAGE_CURSOR,
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
    identity_routes.MeOut: {"user_id": 3, "name": "ada", "role": "user", "by": "key tm_1a2b3c4d"},
    identity_routes.SignIn: {"key": "tm_1a2b3c4d_0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978"},
    identity_routes.UserIn: {"name": "ada", "role": "user"},
    identity_routes.LinkOut: {"path": "/sign-in/9n0Xq3", "expires_in_s": 900},
    identity_routes.SessionOut: {"created_at": EXAMPLE_CREATED_AT, "seen_at": EXAMPLE_UPDATED_AT, "is_this": True},
    identity_routes.RoleIn: {"role": "admin"},
    identity_routes.UserOut: _USER,
    identity_routes.KeyIn: {"name": "nightly import", "expires_in_s": 7776000},
    identity_routes.KeyOut: _API_KEY | {"user_name": "ada", "last_used_at": EXAMPLE_UPDATED_AT},
    identity_routes.NewKeyOut: _API_KEY | {"key": "tm_1a2b3c4d_0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978"},
    jobs.JobIn: {"kind": "price.lookup", "inputs": [{"sku": "A-1"}, {"sku": "A-2"}]},
    jobs.PolicyIn: {"mode": "tolerate", "max_percent": 5},
    jobs.JobSourceIn: {"name": "inbox", "path": "2026/11/prices.csv"},
    jobs.JobOut: _JOB,
    jobs.JobDetail: _JOB | _JOB_DETAIL,
    jobs.JobPage: {"jobs": [_JOB], "next_page": _NEXT_PAGE_CURSOR},
    jobs.ActivityPage: {
        "activity": [{"id": 9, "at": EXAMPLE_UPDATED_AT, "user_id": 3, "verb": "pause", "details": {}}],
    },
    jobs.ProgressPointOut: {"at": EXAMPLE_UPDATED_AT, "settled": 752, "failed": 7},
    jobs.KickoffOut: {"settled": 118, "failed": 1, "retried": 2, "seconds": 5.02, "is_drained": False, "due_in": 0.0},
    imports.ImportIn: {"resource": "users", "source": _IMPORT_SOURCE, "mode": "upsert", "mapping": {"E-Mail": "email"}},
    imports.PreviewIn: {"resource": "users", "source": _IMPORT_SOURCE, "rows": 50},
    resource_routes.ResourceList: {"resources": [_RESOURCE]},
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
    imports.ImportPage: {"imports": [_IMPORT], "next_page": _NEXT_PAGE_CURSOR},
    imports.RowPage: {"rows": [_FAILED_ROW], "next_page": _NEXT_PAGE_CURSOR},
    exports.ExportIn: {
        "resource": "users",
        "fields": ["email", "name"],
        "filters": {"role": {"in": ["admin", "editor"]}},
        "order": ["-created_at"],
        "compression": "gzip",
    },
    exports.ExportOut: _EXPORT,
    exports.ExportPage: {"exports": [_EXPORT], "next_page": _NEXT_PAGE_CURSOR},
    services.ServiceList: {
        "services": [{"name": "wikidata", "url": "https://wikidata.reconci.link/en/api", "limit": "wikidata"}]
    },
    distributions.DatasetList: {"datasets": [_DATASET]},
    distributions.DistributionIn: {
        "dataset": "prices",
        "inputs": [_DISTRIBUTION_INPUT],
        "reuse": {"enabled": True, "days": 7},
    },
    distributions.DistributionOut: _DISTRIBUTION,
    distributions.DistributionDetail: _DISTRIBUTION | {"data_content": [_DISTRIBUTION_CONTENT]},
    distributions.DistributionPage: {"distributions": [_DISTRIBUTION], "next_page": _NEXT_PAGE_CURSOR},
    jobs.JobCountsOut: {"counts": {"running": 4, "paused": 1, "completed": 212, "failed": 3}, "is_complete": True},
    schemas.BatchPage: {"batches": [_BATCH]},
    items.ItemError: _ITEM_ERROR,
    items.ItemPage: {"columns": ["sku", "cents"], "items": [_DONE_ITEM, _FAILED_ITEM], "next_page": _NEXT_PAGE_CURSOR},
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
        "error": _ITEM_ERROR,
        "duration_ms": 30000,
    },
    items.FixIn: {"input": {"sku": "A-7"}},
    items.FixCreatedOut: {"rev": 1},
    cross_job_routes.PendingPage: {
        "items": [_JOB_REFERENCE | _PENDING_ITEM],
        "pending_count": 248,
        "next_page": _NEXT_PAGE_CURSOR,
    },
    cross_job_routes.DeadLetterPage: {"items": [_JOB_REFERENCE | _FAILED_ITEM | {"rev": None}]},
    cross_job_routes.DeadLetterCauseOut: {"code": "exhausted", "count": 6, "jobs": 2, "newest": EXAMPLE_UPDATED_AT},
    cross_job_routes.RunNowIn: {"item_ids": [f"{EXAMPLE_JOB_ID}:7"]},
    cross_job_routes.RunNowOut: {"due": 1, "in_hand": 0, "others": 0},
    cross_job_routes.FlowOut: {
        "open": {"pending": 240, "processing": 50, "retry_wait": 8},
        "step_s": 30,
        "points": [{"at": EXAMPLE_UPDATED_AT, "settled": 1200, "failed": 7}],
    },
    bulk_operation_schemas.ReprocessIn: {"statuses": ["failed"], "error_codes": ["exhausted"]},
    bulk_operation_schemas.CancelItemsIn: {"statuses": ["pending"], "except": [f"{EXAMPLE_JOB_ID}:7"]},
    bulk_operation_schemas.SelectionIn: {
        "statuses": ["failed"],
        "error_codes": ["exhausted"],
        "except": [f"{EXAMPLE_JOB_ID}:7"],
    },
    bulk_operation_schemas.CountIn: {"to": "reprocess", "statuses": ["failed"], "key": "AB-1*"},
    bulk_operation_schemas.CountOut: {"items": 3204, "is_complete": True},
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
