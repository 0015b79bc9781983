"""Request bodies: authentication, rate limit and size are checked before a body is read."""

import gzip
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.exceptions import HTTPException

from jobs.test_submit_routes import files, inputs
from support import rows
from support.api import Api
from support.import_requests import stocked
from support.openapi_document import DOCUMENT
from support.raw_http import exchanged, is_problem
from tidemill.config import Settings
from tidemill.core.errors import InvalidInput
from tidemill.jobs import upload
from tidemill.limits import limiter_records
from tidemill.limits.limiter import Limiter
from tidemill.rest import request_body as json_body
from tidemill.rest.request_body import BodyLimit, LazyJsonArray, RequestBody, carries_json_parameters, slice_json_array
from tidemill.store import job_records
from tidemill.store.job_submission import ExecuteStep, Submission, build_submission_steps
from tidemill.store.statements import sql

JSON = {"content-type": "application/json"}
TAKES_A_BODY = [
    (method.upper(), path.replace("{seq}", "0").replace("{", "").replace("}", ""), operation["x-permission"])
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if "requestBody" in operation
]
LONG = [{"n": n, "of": {"text": "},{" * (n % 7), "list": [[], {}, "]"]}} for n in range(3_000)]


@pytest.mark.parametrize(
    ("content_type", "query", "json_body", "max_bytes"),
    [
        ("application/json", b"", BodyLimit.SMALL, 1 << 20),
        ("application/json; charset=utf-8", b"", BodyLimit.INLINE_INPUTS, 5 << 20),
        ("application/json", b"resource=users", BodyLimit.SMALL, None),  # the JSON body is the file
        ("application/json", b"", None, None),
        ("text/csv", b"", BodyLimit.SMALL, None),
    ],
)
async def test_json_body_of_upload_route_has_limit_of_parameters_when_query_is_empty(
    content_type: str, query: bytes, json_body: BodyLimit | None, max_bytes: int | None
) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * ((5 << 20) + 1), "more_body": False}

    headers = [(b"content-type", content_type.encode()), (b"transfer-encoding", b"chunked")]
    scope: dict[str, Any] = {"type": "http", "headers": headers, "query_string": query, "state": {}}
    body = scope["state"]["body"] = RequestBody(scope, receive)
    body.set_limit(Settings(max_json_bytes=5 << 20), BodyLimit.UPLOAD, json_body)
    assert carries_json_parameters(scope) == (max_bytes is not None)
    if max_bytes is None:
        assert (await body.receive())["body"]
    else:
        with pytest.raises(HTTPException, match=f"more than {max_bytes} bytes"):
            await body.receive()


async def test_unauthenticated_request_is_rejected_before_its_body_is_parsed(api: Api, ada: httpx2.AsyncClient) -> None:
    assert len(TAKES_A_BODY) > 12
    stranger = api.client(JSON)
    for method, path, permission in TAKES_A_BODY:
        answer = await stranger.request(method, path, content=b'{"a')
        assert (answer.status_code == 401) == (permission != "public"), f"{method} {path}"
        if permission == "admin":
            assert (await ada.request(method, path, content=b'{"a', headers=JSON)).status_code == 403, path


async def test_unauthenticated_request_is_rejected_before_its_body_arrives(api: Api) -> None:
    head = ("Host: tidemill", "Content-Type: application/json", "Content-Length: 9000000")
    answer = await exchanged(api, "POST /v1/distributions HTTP/1.1", *head, body=b"[")
    assert (answer.status_code, is_problem(answer)) == (401, True)
    answer = await exchanged(api, "POST /v1/session HTTP/1.1", *head, body=b"[")
    assert answer.status_code == 413, "the body limit of keys is small"


async def test_rate_limit_counts_request_with_malformed_body(make_api: Callable[..., Any]) -> None:
    api = await make_api(rate_limit_per_s=1, rate_limit_burst=3)
    ada = await api.user("ada")
    for who, path in ((api.client(), "/v1/session"), (ada, "/v1/keys")):
        found = [(await who.post(path, content=b"{", headers=JSON)).status_code for _ in range(12)]
        assert set(found) == {400, 429}, path


async def test_request_body_with_content_encoding_is_rejected_with_415(api: Api, ada: httpx2.AsyncClient) -> None:
    packed = gzip.compress(b"sku\n1\n")
    for encoding in ("gzip", "GZIP", "identity, gzip", "br"):
        headers = {"content-type": "text/csv", "content-encoding": encoding}
        answer = await ada.post("/v1/jobs?kind=echo", content=packed, headers=headers)
        assert (answer.status_code, is_problem(answer)) == (415, True), encoding
        assert answer.headers["accept-encoding"] == "identity"
    plain = JSON | {"content-encoding": "identity"}
    assert (await ada.post("/v1/jobs", content=b'{"kind":"echo","inputs":[1]}', headers=plain)).status_code == 202
    assert (await ada.get("/v1/me", headers={"content-encoding": "gzip"})).status_code == 200, "the request has no body"
    assert files(api.settings) == []


async def test_multipart_field_limit_counts_empty_fields(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "FORM_FIELDS_MAX_BYTES", 10_000)
    fields = b"".join(b'--x\r\nContent-Disposition: form-data; name="a%d"\r\n\r\n\r\n' % n for n in range(2_000))
    file = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\na\n1\n\r\n--x--\r\n'
    form = {"content-type": "multipart/form-data; boundary=x"}
    answer = await ada.post("/v1/jobs", content=fields + file, headers=form)
    assert answer.status_code == 413, answer.text
    assert "fields" in answer.json()["detail"]


async def test_long_json_body_stores_same_inputs_and_fingerprint_as_direct_parse(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_body, "ARRAY_SCAN_WINDOW_BYTES", 4_096)
    body = json.dumps({"kind": "echo", "params": {"inputs": [1]}, "inputs": LONG}, indent=1).encode()
    assert len(body) > json_body.DIRECT_PARSE_MAX_BYTES
    answer = await ada.post("/v1/jobs", content=body, headers=JSON | {"idempotency-key": "k"})
    assert answer.status_code == 202, answer.text
    assert await inputs(api, answer) == LONG
    monkeypatch.setattr(json_body, "DIRECT_PARSE_MAX_BYTES", 1 << 30)
    again = await ada.post("/v1/jobs", content=body, headers=JSON | {"idempotency-key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, answer.json()["id"]), "both have the same fingerprint"


async def test_submit_with_more_than_max_inline_inputs_is_rejected(make_api: Callable[..., Any]) -> None:
    api = await make_api(max_inline_inputs=1_000)
    ada = await api.user("ada")
    assert (await ada.get("/v1/limits")).json()["max_inline_inputs"] == 1_000
    for n in (1_001, 50_000):  # a short and a long body
        answer = await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [{}] * n})
        assert answer.status_code == 422
        assert "at most 1000" in answer.json()["detail"]
    assert (await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [{}] * 1_000})).status_code == 202
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(1,)]


LONG_BODIES = [
    (b'{"kind": "echo", "inputs": [%s, {"a": "\\ud800"}]}', 400, "not valid JSON"),
    (b'{"kind": "echo", "inputs": [%s, 1e999]}', 422, "Input 40001"),
    (b'{"kind": "echo", "inputs": [%s, NaN]}', 400, "not valid JSON"),
    (b'{"kind": "echo", "inputs": [%s,]}', 400, "not valid JSON"),
    (b'{"kind": "echo", "inputs": [%s]', 400, "not valid JSON"),
    (b"[%s]", 422, "object"),
    (b'{"kind": "echo", "inputs": [%s], "more": 1}', 422, "more"),
    (b'{"kind": "echo", "inputs": {"a": [%s]}}', 422, "inputs"),
    (b'{"inputs": [%s]}', 422, "kind"),
    (
        b'{"kind": "echo", "inputs": [], "params": {"a": "' + b"a" * (1 << 20) + b'", "b": [%s]}}',
        413,
        "other than inputs",
    ),
]


async def test_invalid_long_json_body_is_rejected_with_specific_error(api: Api, ada: httpx2.AsyncClient) -> None:
    for body, status, word in LONG_BODIES:
        answer = await ada.post("/v1/jobs", content=body % b",".join([b"1"] * 40_000), headers=JSON)
        assert (answer.status_code, is_problem(answer)) == (status, True), answer.text[:500]
        assert word in answer.text
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]


async def test_distribution_with_long_json_body_enforces_limit_and_reports_pointer(
    make_api: Callable[..., Awaitable[Api]], tmp_path: Path
) -> None:
    api = await stocked(make_api, tmp_path, max_distribution_inputs=2_000)
    ada = await api.user("ada")
    given = [{"first_name": f"Ada {n} {'x' * 30}", "sent_on": 20240202} for n in range(2_001)]
    answer = await ada.post("/v1/distributions", json={"dataset": "letters", "inputs": given})
    assert (answer.status_code, "at most 2000" in answer.text) == (422, True)
    wrong = await ada.post("/v1/distributions", json={"dataset": "letters", "inputs": [*given[:1_999], 7]})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "#/inputs/1999")
    answer = await ada.post("/v1/distributions", json={"dataset": "letters", "inputs": given[:2_000]})
    assert (answer.status_code, answer.json()["total"]) == (202, 2_000)
    other = await ada.post("/v1/distributions", content=b"a", headers={"content-type": "text/plain"})
    assert other.status_code == 415


@pytest.mark.parametrize("window", [1, 7, 64, 1 << 20])
def test_lazy_json_array_yields_same_elements_as_json_parser(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_body, "ARRAY_SCAN_WINDOW_BYTES", window)
    tricky = [
        '{"a": "},{"}',
        '"],["',
        '"\\\\"',
        '"\\","',
        "[[],[{}],[]]",
        "-1.5e3",
        "null",
        '{"b": {"c": [1, 2]}}',
        "{}",
    ]
    for separator in (",", " , ", "\n,\n\t"):
        for elements in ([], tricky[:1], tricky, tricky * 20):
            text = f"[ {separator.join(elements)} ]"
            assert list(LazyJsonArray(slice_json_array(text.encode(), 1_000))) == json.loads(text)
    with pytest.raises(InvalidInput, match="at most 3"):
        slice_json_array(b"[1,2,3,4]", 3)


async def test_idempotency_key_creates_new_job_when_its_job_is_deleted_meanwhile(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = job_records.get_job
    deleted: list[str] = []

    async def late(conn: Any, job_id: Any) -> Any:
        if not deleted:
            deleted.append(str(job_id))
            assert (await ada.delete(f"/v1/jobs/{job_id}")).status_code == 204
        return await look(conn, job_id)

    asked: tuple[dict[str, Any], ...] = (
        {"json": {"kind": "echo", "inputs": [1]}},
        {"params": {"kind": "echo"}, "content": b"a\n1\n", "headers": {"content-type": "text/csv"}},
    )
    for options in asked:
        deleted.clear()
        sent = options | {"headers": options.get("headers", {}) | {"idempotency-key": f"k{len(options)}"}}
        first = await ada.post("/v1/jobs", **sent)
        with monkeypatch.context() as patched:
            patched.setattr(job_records, "get_job", late)
            second = await ada.post("/v1/jobs", **sent)
        assert deleted == [first.json()["id"]]
        assert (first.status_code, second.status_code) == (202, 202), second.text
        assert (await ada.get(f"/v1/jobs/{second.json()['id']}")).status_code == 200
    deleted.clear()
    with monkeypatch.context() as patched:
        patched.setattr(job_records, "get_job", late)
        assert (await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]})).status_code == 409


def test_submission_retries_insert_when_idempotency_key_becomes_free() -> None:
    steps = build_submission_steps(Submission("echo", idem_key="k"), iter([b"1"]))
    asked = [next(steps), *(steps.send(None) for _ in range(3))]
    names = ["partition/ensure", "job/add", "job/by_idem_key", "job/add"]
    assert [step.statement for step in asked if isinstance(step, ExecuteStep)] == [sql(name) for name in names]


async def test_limiter_update_rejects_boolean_as_number(api: Api, root: httpx2.AsyncClient) -> None:
    await api.db.run(limiter_records.declare_limiters, [Limiter("shop", 5.0, 10)])
    for wrong in ({"rate": True}, {"burst": True}, {"concurrency": False}):
        assert (await root.patch("/v1/limiters/shop", json=wrong)).status_code == 422, wrong
    for rate in (3, 2.5, "2/s"):
        assert (await root.patch("/v1/limiters/shop", json={"rate": rate, "burst": 7})).status_code == 200, rate
