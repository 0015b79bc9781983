"""An example of every main request and answer, for the OpenAPI document. A test reads each with its own model."""

from typing import Any

from pydantic import BaseModel

from tidemill.api.examples_of_sources import SOURCE_EXAMPLES
from tidemill.api.schemas import (
    across,
    batches,
    distributions,
    exports,
    identity,
    imports,
    items,
    jobs,
    limiters,
    operations,
    quarantine,
    resources,
    service,
    services,
)

JOB = "019a8b7c-1d2e-7f00-8000-123456789abc"
WORKER = "mill-1-4021-9f3c1a"
SUBMITTED, CHANGED = "2026-11-15T09:00:00.000000Z", "2026-11-15T09:00:41.250000Z"

_COUNTS = {"total": 1000, "pending": 0, "processing": 240, "retry_wait": 8}
_COUNTS |= {"done": 740, "not_found": 5, "skipped": 0, "failed": 7, "cancelled": 0}
_JOB: dict[str, Any] = {
    "id": JOB,
    "key": "J20261115_000777",
    "kind": "price.lookup",
    "user_id": 3,
    "status": "running",
    "counts": _COUNTS,
    "ingest_complete": True,
    "priority": 0,
    "created_at": SUBMITTED,
    "updated_at": CHANGED,
    "links": {"self": f"/v1/jobs/{JOB}", "items": f"/v1/jobs/{JOB}/items"},
}
_DETAIL: dict[str, Any] = {
    "params": {},
    "policy": {"mode": "continue"},
    "errors": {"exhausted": 6, "invalid": 1},
    "columns": ["sku", "cents"],
    "columns_of": "result",
    "rates": {"now_per_s": 24.5, "average_per_s": 18.1, "eta_s": 10.1},
    "adaptive": [{"worker": WORKER, "child": 0, "concurrency": 50}],
    "retried": 21,
    "request_id": "3f1c6a0e9b2d4c58",
    "ip_address": "192.0.2.7",
}
_ERROR = {"row": 8, "code": "exhausted", "reason": "the shop did not answer", "attempt": 3, "retryable": True}
_DONE = {"id": f"{JOB}:6", "seq": 6, "status": "done", "attempts": 1, "updated_at": CHANGED, "duration_ms": 41}
_DONE |= {"input_summary": {"sku": "A-6"}, "result": {"sku": "A-6", "cents": 995}}
_FAILED: dict[str, Any] = {"id": f"{JOB}:7", "seq": 7, "status": "failed", "attempts": 3, "updated_at": CHANGED}
_FAILED |= {"input_summary": {"sku": "A-7"}, "error": _ERROR, "duration_ms": 30000}
_OF = {"job_id": JOB, "job_key": "J20261115_000777", "kind": "price.lookup", "user_id": 3}
_WAITING = {"id": f"{JOB}:9", "seq": 9, "status": "pending", "attempts": 0, "updated_at": SUBMITTED}
_WAITING |= {"input_summary": {"sku": "A-9"}, "job_status": "running", "why": "waits for its turn"}
_BATCH: dict[str, Any] = {"id": 31, "shape": "range", "state": "done", "lo": 0, "hi": 250, "size": 250, "open": 0}
_BATCH |= {"tallies": {"done": 240, "not_found": 2, "skipped": 0, "failed": 1, "cancelled": 0, "retried": 7}}
_BATCH |= {"codes": {"invalid": 1}, "since": SUBMITTED, "closed_at": CHANGED, "duration_ms": 41250}
_BATCH |= {"not_before": SUBMITTED, "worker": WORKER, "isolated": False, "crashes": 0, "losses": 0}
_KEY = {"prefix": "tm_1a2b3c4d", "name": "nightly import", "user_id": 3, "created_at": SUBMITTED}
_USER = {"id": 3, "name": "ada", "role": "user", "created_at": SUBMITTED, "keys": 1}
_OPERATION = {"id": "019a8b7d-0000-7000-8000-0000000000aa", "verb": "reprocess", "state": "done", "items": 12}
_OPERATION |= {"user_id": 3, "job_id": JOB, "created_at": CHANGED, "updated_at": CHANGED}
_OPERATION |= {"predicate": {"statuses": ["failed", "not_found"], "reset_attempts": True}}
_IMPORT: dict[str, Any] = {
    "job_id": JOB,
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
    "counts": dict.fromkeys(_COUNTS, 0) | {"total": 1000, "done": 993, "failed": 7},
    "user_id": 3,
    "created_at": SUBMITTED,
    "started_at": SUBMITTED,
    "completed_at": CHANGED,
    "links": {"self": f"/v1/imports/{JOB}", "errors": f"/v1/imports/{JOB}/errors"},
}
_LAYOUT = {"format": "csv", "encoding": "utf-8", "delimiter": ",", "quote": '"', "header": True}
_LAYOUT |= {"compression": "none", "line_end": "\n"}
_MAPPING = {"E-Mail": "email", "name": "name"}
_IMPORT_DETAIL: dict[str, Any] = {
    "rates": {"now_per_s": 0, "average_per_s": 24100.5},
    "effects": {"inserted": 900, "updated": 90, "unchanged": 3},
    "errors": {"email.pattern": 6, "role.enum": 1},
    "layout": _LAYOUT,
    "columns": ["E-Mail", "name"],
    "mapping": _MAPPING,
    "duplicates": "error",
    "resource_key": ["email"],
    "policy": {"mode": "continue"},
    "file_id": "3f1c6a0e9b2d4c583f1c6a0e9b2d4c58",
}
_ROW_ERROR = {"row": 7, "line": 8, "field": "email", "value": "ada", "code": "email.pattern"}
_ROW_ERROR |= {"reason": "not an e-mail address", "retryable": False}
_ROW = {"row": 7, "line": 8, "errors": [_ROW_ERROR], "input": {"E-Mail": "ada", "name": "Ada"}}
_SOURCE = {"url": "https://files.example.com/users.csv.gz"}
_EXPORT: dict[str, Any] = {
    "job_id": JOB,
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
    "download_url": f"/v1/exports/{JOB}/download",
    "counts": dict.fromkeys(_COUNTS, 0) | {"total": 1, "done": 1},
    "user_id": 3,
    "created_at": SUBMITTED,
    "started_at": SUBMITTED,
    "completed_at": CHANGED,
    "expires_at": "2026-11-22T09:00:41.250000Z",
    "links": {"self": f"/v1/exports/{JOB}", "download": f"/v1/exports/{JOB}/download"},
}
_INPUT = {"index_key": "ABC", "effective_date": 20240202, "asofindicator": "CLS"}
_DISTRIBUTION: dict[str, Any] = {"job_id": JOB, "key": "J20261115_000779", "dataset": "prices", "status": "completed"}
_DISTRIBUTION |= dict.fromkeys(_COUNTS, 0) | {"total": 2, "done": 2, "files_generated": 1, "files_reused": 1}
_DISTRIBUTION |= {"reuse": {"enabled": True, "days": 7}, "format": "csv", "compression": "none"}
_DISTRIBUTION |= {"policy": {"mode": "fail_fast"}, "user_id": 3, "created_at": SUBMITTED, "completed_at": CHANGED}
_DISTRIBUTION |= {
    "started_at": SUBMITTED,
    "links": {"self": f"/v1/distributions/{JOB}", "redrive": f"/v1/distributions/{JOB}/redrive"},
}
_FILES = "s3://bucket/exports/2026/11/15/J20261115_000779"
_CONTENT = _INPUT | {"status": "done", "attempts": 1, "path": f"{_FILES}/ABC_20240202_CLS.csv", "rows": 500}
_CONTENT |= {"download_url": f"/v1/distributions/{JOB}/files/0"}
_CONTENT |= {
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
_NEXT = "WyJzZXEiLCIxZDBmNjM0ZSIsN10"

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    **SOURCE_EXAMPLES,
    service.Front: {"service": "tidemill", "version": "0.1.0", "openapi": "/v1/openapi.json", "health": "/health"},
    service.Health: {
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
    service.Limits: {
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
                "at": CHANGED,
                "source": "received",
                "reason": "header.version is 2.0, not 1.0",
                "message": '{"header": {"version": "2.0"}}',
                "size": 412,
                "job_id": None,
                "worker": WORKER,
            }
        ],
        "next_page": _NEXT,
    },
    quarantine.Cleared: {"removed": 7},
    service.WorkerOut: {
        "id": WORKER,
        "host": "mill-1",
        "pid": 4021,
        "started_at": SUBMITTED,
        "seen_at": CHANGED,
        "silent_s": 1.2,
        "in_hand": 50,
        "info": {"processes": 4, "kinds": ["price.lookup"], "on_demand": False},
    },
    identity.MeOut: {"user_id": 3, "name": "ada", "role": "user", "by": "key tm_1a2b3c4d"},
    identity.SignIn: {"key": "tm_1a2b3c4d_0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978"},
    identity.UserIn: {"name": "ada", "role": "user"},
    identity.LinkOut: {"path": "/sign-in/9n0Xq3", "expires_in_s": 900},
    identity.SessionOut: {"created_at": SUBMITTED, "seen_at": CHANGED, "is_this": True},
    identity.RoleIn: {"role": "admin"},
    identity.UserOut: _USER,
    identity.KeyIn: {"name": "nightly import", "expires_in_s": 7776000},
    identity.KeyOut: _KEY | {"user_name": "ada", "last_used_at": CHANGED},
    identity.NewKey: _KEY | {"key": "tm_1a2b3c4d_0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978"},
    jobs.JobIn: {"kind": "price.lookup", "inputs": [{"sku": "A-1"}, {"sku": "A-2"}]},
    jobs.PolicyIn: {"mode": "tolerate", "max_percent": 5},
    jobs.SourceIn: {"name": "inbox", "path": "2026/11/prices.csv"},
    jobs.JobOut: _JOB,
    jobs.JobDetail: _JOB | _DETAIL,
    jobs.JobPage: {"jobs": [_JOB], "next_page": _NEXT},
    jobs.ActivityPage: {
        "activity": [{"id": 9, "at": CHANGED, "user_id": 3, "verb": "pause", "details": {}}],
    },
    jobs.Point: {"at": CHANGED, "settled": 752, "failed": 7},
    jobs.SliceOut: {"settled": 118, "failed": 1, "retried": 2, "seconds": 5.02, "is_drained": False, "due_in": 0.0},
    imports.ImportIn: {"resource": "users", "source": _SOURCE, "mode": "upsert", "mapping": {"E-Mail": "email"}},
    imports.PreviewIn: {"resource": "users", "source": _SOURCE, "rows": 50},
    resources.ResourceList: {"resources": [_RESOURCE]},
    imports.PreviewOut: {
        "resource_type": "users",
        "layout": _LAYOUT,
        "columns": ["E-Mail", "name"],
        "mapping": _MAPPING,
        "unknown": [],
        "missing": [],
        "problems": [],
        "rows": [_ROW],
    },
    imports.ImportOut: _IMPORT,
    imports.ImportDetail: _IMPORT | _IMPORT_DETAIL,
    imports.ImportPage: {"imports": [_IMPORT], "next_page": _NEXT},
    imports.RowPage: {"rows": [_ROW], "next_page": _NEXT},
    exports.ExportIn: {
        "resource": "users",
        "fields": ["email", "name"],
        "filters": {"role": {"in": ["admin", "editor"]}},
        "order": ["-created_at"],
        "compression": "gzip",
    },
    exports.ExportOut: _EXPORT,
    exports.ExportPage: {"exports": [_EXPORT], "next_page": _NEXT},
    services.ServiceList: {
        "services": [{"name": "wikidata", "url": "https://wikidata.reconci.link/en/api", "limit": "wikidata"}]
    },
    distributions.DatasetList: {"datasets": [_DATASET]},
    distributions.DistributionIn: {"dataset": "prices", "inputs": [_INPUT], "reuse": {"enabled": True, "days": 7}},
    distributions.DistributionOut: _DISTRIBUTION,
    distributions.DistributionDetail: _DISTRIBUTION | {"data_content": [_CONTENT]},
    distributions.DistributionPage: {"distributions": [_DISTRIBUTION], "next_page": _NEXT},
    jobs.JobCounts: {"counts": {"running": 4, "paused": 1, "completed": 212, "failed": 3}, "is_complete": True},
    batches.BatchPage: {"batches": [_BATCH]},
    items.ItemError: _ERROR,
    items.ItemPage: {"columns": ["sku", "cents"], "items": [_DONE, _FAILED], "next_page": _NEXT},
    items.ItemDetail: {
        "id": f"{JOB}:7",
        "job_id": JOB,
        "seq": 7,
        "status": "failed",
        "attempts": 3,
        "updated_at": CHANGED,
        "input": {"sku": "A-7"},
        "original": {"sku": "A7"},
        "fixes": [{"rev": 1, "by": 3, "at": CHANGED}],
        "error": _ERROR,
        "duration_ms": 30000,
    },
    items.FixIn: {"input": {"sku": "A-7"}},
    items.Fixed: {"rev": 1},
    across.PendingPage: {"items": [_OF | _WAITING], "pending_count": 248, "next_page": _NEXT},
    across.DeadLetterPage: {"items": [_OF | _FAILED | {"rev": None}]},
    across.Cause: {"code": "exhausted", "count": 6, "jobs": 2, "newest": CHANGED},
    across.RunNowIn: {"item_ids": [f"{JOB}:7"]},
    across.RunNowOut: {"due": 1, "in_hand": 0, "others": 0},
    across.Flow: {
        "open": {"pending": 240, "processing": 50, "retry_wait": 8},
        "step_s": 30,
        "points": [{"at": CHANGED, "settled": 1200, "failed": 7}],
    },
    operations.ReprocessIn: {"statuses": ["failed"], "error_codes": ["exhausted"]},
    operations.CancelItemsIn: {"statuses": ["pending"], "except": [f"{JOB}:7"]},
    operations.SelectionIn: {"statuses": ["failed"], "error_codes": ["exhausted"], "except": [f"{JOB}:7"]},
    operations.CountIn: {"to": "reprocess", "statuses": ["failed"], "key": "AB-1*"},
    operations.CountOut: {"items": 3204, "is_complete": True},
    operations.RedriveIn: {"all_matching": True, "filter": {"kind": "price.lookup"}, "except": [f"{JOB}:7"]},
    limiters.LimiterOut: {
        "name": "shop",
        "rate": 5.0,
        "current_rate": 2.5,
        "burst": 10,
        "concurrency": 4,
        "adaptive": True,
        "in_use": 3,
        "waiting": 17,
        "blocked_until": CHANGED,
        "members": 0,
        "blocked_members": 0,
        "taken": 48211,
        "refused": 3,
        "changed": False,
        "used_at": CHANGED,
    },
    limiters.LimiterIn: {"rate": "2/s"},
    limiters.UnblockIn: {"key": "shop.example.com"},
    operations.OperationOut: _OPERATION,
    operations.OperationPage: {"operations": [_OPERATION]},
}
