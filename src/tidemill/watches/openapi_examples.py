"""Examples of watches, their files and scans, for the OpenAPI document."""

from typing import Any

from pydantic import BaseModel

from tidemill.rest.example_values import EXAMPLE_CREATED_AT, EXAMPLE_JOB_ID, EXAMPLE_NEXT_PAGE, EXAMPLE_UPDATED_AT
from tidemill.watches import routes as watch_routes

_WATCH_FILE: dict[str, Any] = {
    "id": 42,
    "path": "users-2026-11-15.csv",
    "size": 18234,
    "version": "1763197200000000000",
    "state": "processed",
    "status": None,
    "job_id": EXAMPLE_JOB_ID,
    "job_key": "J20261115_000778",
    "moved_to": "processed/users-2026-11-15.csv",
    "tries": 0,
    "seen_at": EXAMPLE_CREATED_AT,
    "updated_at": EXAMPLE_UPDATED_AT,
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
    "last_scan_at": EXAMPLE_UPDATED_AT,
    "next_scan_at": EXAMPLE_UPDATED_AT,
    "found": 1,
    "submitted": 1,
    "problem": None,
    "files": {"seen": 1, "processed": 41, "failed": 2},
    "links": {"files": "/v1/sources/nightly/files", "scan": "/v1/ingestion/scan"},
}
_WATCH_SCAN: dict[str, Any] = {"name": "nightly", "found": 1, "submitted": 1, "problem": None, "files": [_WATCH_FILE]}

OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    watch_routes.WatchList: {"sources": [_WATCH]},
    watch_routes.WatchFilePage: {"files": [_WATCH_FILE], "next_page": EXAMPLE_NEXT_PAGE},
    watch_routes.ScanIn: {"name": "nightly"},
    watch_routes.ScanList: {"scans": [_WATCH_SCAN]},
}
