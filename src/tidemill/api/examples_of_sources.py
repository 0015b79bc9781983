"""Examples of watches, their files and scans, for the OpenAPI document."""

from typing import Any

from pydantic import BaseModel

from tidemill.api.schemas import sources

_JOB = "019a8b7c-1d2e-7f00-8000-123456789abc"
_SUBMITTED, _CHANGED = "2026-11-15T09:00:00.000000Z", "2026-11-15T09:00:41.250000Z"
_NEXT = "WyJ3YXRjaF9maWxlcyIsIjEyMzQ1Njc4Il0"

_FILE: dict[str, Any] = {
    "id": 42,
    "path": "users-2026-11-15.csv",
    "size": 18234,
    "version": "1763197200000000000",
    "state": "processed",
    "status": None,
    "job_id": _JOB,
    "job_key": "J20261115_000778",
    "moved_to": "processed/users-2026-11-15.csv",
    "tries": 0,
    "seen_at": _SUBMITTED,
    "updated_at": _CHANGED,
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
    "last_scan_at": _CHANGED,
    "next_scan_at": _CHANGED,
    "found": 1,
    "submitted": 1,
    "problem": None,
    "files": {"seen": 1, "processed": 41, "failed": 2},
    "links": {"files": "/v1/sources/nightly/files", "scan": "/v1/ingestion/scan"},
}
_SCAN: dict[str, Any] = {"name": "nightly", "found": 1, "submitted": 1, "problem": None, "files": [_FILE]}

SOURCE_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    sources.SourceList: {"sources": [_WATCH]},
    sources.FilePage: {"files": [_FILE], "next_page": _NEXT},
    sources.ScanIn: {"name": "nightly"},
    sources.ScanList: {"scans": [_SCAN]},
}
