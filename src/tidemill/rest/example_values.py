"""Shared values of the examples in the OpenAPI document."""

EXAMPLE_JOB_ID = "019a8b7c-1d2e-7f00-8000-123456789abc"
EXAMPLE_WORKER_ID = "mill-1-4021-9f3c1a"
EXAMPLE_CREATED_AT, EXAMPLE_UPDATED_AT = "2026-11-15T09:00:00.000000Z", "2026-11-15T09:00:41.250000Z"
EXAMPLE_NEXT_PAGE = "WyJzZXEiLCIxZDBmNjM0ZSIsN10"
EXAMPLE_COUNTS = {
    "total": 1000,
    "pending": 0,
    "processing": 240,
    "retry_wait": 8,
    "done": 740,
    "not_found": 5,
    "skipped": 0,
    "failed": 7,
    "cancelled": 0,
}
