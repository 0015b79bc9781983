"""Problem documents of invalid requests: enough to fix the request, and no internals."""

from typing import Any

import httpx2
import pytest

from support import rows
from support.api import Api

CSV = b"sku\n1\n"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("path", ["/v1/keys", "/v1/jobs", "/v1/jobs?kind=echo", "/v1/dead-letters/redrive"])
async def test_unsupported_content_type_error_names_accepted_and_received_type(
    ada: httpx2.AsyncClient, path: str
) -> None:
    answer = await ada.post(path, content=b'{"kind": "echo"}', headers=FORM)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["detail"]
    assert "application/x-www-form-urlencoded" in answer.json()["detail"]


async def test_missing_body_is_reported_as_missing(ada: httpx2.AsyncClient) -> None:
    answer = await ada.post("/v1/keys")
    assert (answer.status_code, answer.json()["detail"]) == (422, "The request body is required")


MISTAKES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"json": {}}, {"pointer": "#/kind", "detail": "is required"}),
    ({"json": {"kind": "echo", "prio": 1}}, {"pointer": "#/prio", "detail": "unknown field"}),
    (
        {"content": CSV, "headers": {"content-type": "text/csv"}},
        {"parameter": "kind", "detail": "kind: is required"},
    ),
    ({"files": {"file": ("a.csv", CSV)}}, {"pointer": "#/kind", "detail": "is required"}),
    (
        {"json": {"kind": "echo", "inputs": ["x" * 70_000], "prio": 1}},
        {"pointer": "#/prio", "detail": "unknown field"},
    ),
    (
        {"content": CSV, "headers": {"content-type": "text/csv"}, "params": {"kind": "echo", "prio": 1}},
        {"parameter": "prio", "detail": "prio: unknown field"},
    ),
    (
        {"files": {"file": ("a.csv", CSV)}, "data": {"kind": "echo", "params": "[1]"}},
        {"pointer": "#/params", "detail": "must be a JSON object: Input should be an object"},
    ),
    (
        {"content": CSV, "headers": {"content-type": "text/csv"}, "params": {"kind": "unregistered"}},
        {
            "parameter": "kind",
            "detail": 'kind: No worker has registered a handler for kind "unregistered". Known kinds: echo.',
        },
    ),
]


@pytest.mark.parametrize(("sent", "fault"), MISTAKES)
async def test_invalid_submission_reports_pointer_or_parameter_of_error(
    ada: httpx2.AsyncClient, sent: dict[str, Any], fault: dict[str, str]
) -> None:
    answer = await ada.post("/v1/jobs", **sent)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [fault]
    assert next(iter(fault.values())) in answer.json()["detail"]


async def test_reused_idempotency_key_error_does_not_expose_internal_key(ada: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": "order-17"}
    await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]}, headers=headers)
    for inputs in ([2], [1, 1]):
        answer = await ada.post("/v1/jobs", json={"kind": "echo", "inputs": inputs}, headers=headers)
        assert answer.json()["detail"] == "The Idempotency-Key was already used for a different request"


async def test_idempotency_key_with_other_format_is_rejected(ada: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k", "content-type": "text/csv"}
    statuses = [
        (await ada.post(f"/v1/jobs?kind=echo&format={format_}", content=CSV, headers=headers)).status_code
        for format_ in ("csv", "tsv", "csv")
    ]
    assert statuses == [202, 422, 200]


@pytest.mark.parametrize("query", ["kind=&jobType=&q=&after=", "status=SUBMITTED", "statuses=queued,canceled"])
async def test_job_list_ignores_empty_filters_and_accepts_status_aliases(ada: httpx2.AsyncClient, query: str) -> None:
    made = (await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]})).json()
    found = (await ada.get(f"/v1/jobs?{query}")).json()["jobs"]
    assert [job["id"] for job in found] == [made["id"]]


async def test_redrive_filter_without_time_zone_is_rejected(ada: httpx2.AsyncClient) -> None:
    asked = {"all_matching": True, "filter": {"from": "2026-01-01T00:00:00"}}
    answer = await ada.post("/v1/dead-letters/redrive", json=asked)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "The timestamp has no time zone. Add one, as in 2026-01-31T12:00:00Z."


async def test_invalid_submission_creates_no_job(api: Api, ada: httpx2.AsyncClient) -> None:
    for sent, _ in MISTAKES:
        await ada.post("/v1/jobs", **sent)
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]
