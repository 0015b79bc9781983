"""Values that cannot be stored or are out of range are rejected with a message."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jobs.test_job_control_routes import failing, submitted
from support import rows
from support.api import Api
from support.openapi_document import DOCUMENT
from support.raw_http import Told, is_problem, listening
from tidemill import Mill
from tidemill.http.middleware import convert_query_to_snake_case
from tidemill.testing import drain

JSON = {"content-type": "application/json"}
NUL, HALF = "\\u0000", "\\ud800"  # as JSON escapes


@pytest.fixture(autouse=True)
def told() -> Iterator[Told]:
    """Fail if a request causes an internal error."""
    with listening() as events:
        yield events
    assert [fields for name, fields in events if name == "request.failed"] == []


@pytest.fixture
async def job(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> str:
    return await failing(api, toy, ada)


def is_refused(answer: httpx2.Response) -> bool:
    return 400 <= answer.status_code < 500 and is_problem(answer)


QUERIES = [
    (path, parameter["name"])
    for path, methods in DOCUMENT["paths"].items()
    for parameter in methods.get("get", {}).get("parameters", ())
    if parameter["in"] == "query" and not path.endswith("/events")
]


async def test_list_query_parameters_with_hostile_values_never_cause_server_error(
    ada: httpx2.AsyncClient, root: httpx2.AsyncClient, job: str
) -> None:
    for value in ("%00", "%ff%fe", "9" * 5_000, "NaN"):
        for path, name in QUERIES:
            for who in (ada, root):
                answer = await who.get(f"{path.replace('{job}', job)}?{name}={value}")
                assert answer.status_code == 200 or is_refused(answer), f"{path} {name}: {answer.text}"
                assert "%00" not in value or answer.status_code != 200, f"{path} {name}"


PATHS = [
    (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods if path.endswith("}")
]


async def test_path_parameters_with_hostile_values_are_rejected(
    ada: httpx2.AsyncClient, root: httpx2.AsyncClient, job: str
) -> None:
    bodies: dict[str, Any] = {"PATCH": {"json": {"role": "user"}}}
    for value in ("%00", "%ff%fe", "..%2f..%2fetc%2fpasswd", "%2e%2e", "9" * 5_000):
        for method, path in PATHS:
            address = path.replace("{job}", value if path.endswith("{job}") else job)
            address = address[: address.rindex("{")] + value if "{" in address else address
            for who in (ada, root):
                answer = await who.request(method, address, **bodies.get(method, {}))
                assert is_refused(answer), f"{method} {path}: {answer.status_code} {answer.text}"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/v1/users/ada/quota", {"stored_bytes": True}),
        ("POST", "/v1/keys", {"name": "ci", "expires_in_s": True}),
        ("POST", "/v1/jobs", {"kind": "echo", "inputs": [], "priority": False}),
        ("POST", "/v1/jobs", {"kind": "echo", "inputs": [], "policy": {"mode": "tolerate", "max_failed": True}}),
    ],
)
async def test_numbers_given_as_true_or_false_are_rejected(
    root: httpx2.AsyncClient, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = await root.request(method, path, json=body)
    assert answer.status_code == 422, answer.text
    assert "true and false are not valid here" in answer.text


FIELDS = [
    ("POST", "/v1/jobs", '{"kind": "@", "inputs": []}'),
    ("POST", "/v1/jobs", '{"kind": "echo", "inputs": ["@"]}'),
    ("POST", "/v1/jobs", '{"kind": "echo", "inputs": [{"@": 1}]}'),
    ("POST", "/v1/jobs", '{"kind": "echo", "inputs": [], "params": {"a": "@"}}'),
    ("POST", "/v1/jobs", '{"kind": "echo", "inputs": [], "params": {"@": 1}}'),
    ("POST", "/v1/jobs", '{"kind": "echo", "source": {"name": "@", "path": "a.csv"}}'),
    ("POST", "/v1/jobs", '{"kind": "echo", "inputs": [], "@": 1}'),
    ("PATCH", "/v1/jobs/{job}/items/0", '{"input": "@"}'),
    ("PATCH", "/v1/jobs/{job}/items/0", '{"input": {"@": 1}}'),
    ("POST", "/v1/jobs/{job}/reprocess", '{"error_codes": ["@"]}'),
    ("POST", "/v1/jobs/{job}/reprocess", '{"statuses": ["@"]}'),
    ("POST", "/v1/jobs/{job}/reprocess", '{"scope": "items", "item_ids": ["@"]}'),
    ("POST", "/v1/dead-letters/redrive", '{"all_matching": true, "filter": {"kind": "@"}}'),
    ("POST", "/v1/dead-letters/redrive", '{"all_matching": true, "filter": {"error_codes": ["@"]}}'),
    ("POST", "/v1/dead-letters/redrive", '{"all_matching": true, "user_id": "@"}'),
    ("POST", "/v1/dead-letters/redrive", '{"all_matching": true, "except": ["@"]}'),
    ("POST", "/v1/keys", '{"name": "@"}'),
    ("POST", "/v1/keys", '{"user": "@"}'),
    ("POST", "/v1/users", '{"name": "@"}'),
    ("POST", "/v1/session", '{"key": "@"}'),
    ("POST", "/v1/session", '{"link": "@"}'),
]


async def test_body_text_fields_reject_nul_and_lone_surrogates(
    ada: httpx2.AsyncClient, root: httpx2.AsyncClient, job: str
) -> None:
    for method, path, field in FIELDS:
        for text in (f"a{NUL}b", HALF, "\\udfff\\ud800"):
            for who in (ada, root):
                body = field.replace("@", text)
                answer = await who.request(method, path.replace("{job}", job), content=body.encode(), headers=JSON)
                assert is_refused(answer), f"{body}: {answer.text}"


BODIES = [
    b"\xff\xfe",
    b'{"name": "\xff"}',
    b'{"name": "\xed\xa0\x80"}',
    b"\x00",
    b"",
    b"{",
    b"[" * 100_000,
    b'{"name":' * 20_000,
    b'{"expires_in_s": NaN}',
    b'{"expires_in_s": Infinity}',
    b'{"expires_in_s": 1e999}',
    b'{"expires_in_s": ' + b"9" * 5_000 + b"}",
    b'{"expires_in_s": 1e18}',
    b'{"name": {"name": "a"}}',
    b'"name"',
    b"null",
]


async def test_malformed_json_body_is_rejected_without_echoing_input(ada: httpx2.AsyncClient) -> None:
    for body in BODIES:
        answer = await ada.post("/v1/keys", content=body, headers=JSON)
        assert answer.status_code in (400, 422), body[:100]
        assert is_problem(answer), answer.text
        assert len(answer.content) < 3_000, "the response does not repeat the value"


async def test_submit_and_fix_reject_values_outside_json_limits(ada: httpx2.AsyncClient, job: str) -> None:
    for value in ("NaN", "-Infinity", "1e999", "[" * 300 + "]" * 300, "9" * 5_000):
        for field in (f'"inputs": [{value}]', f'"inputs": [], "params": {{"a": {value}}}'):
            answer = await ada.post("/v1/jobs", content=f'{{"kind": "echo", {field}}}'.encode(), headers=JSON)
            assert is_refused(answer), field
        fixed = await ada.patch(f"/v1/jobs/{job}/items/0", content=f'{{"input": {value}}}'.encode(), headers=JSON)
        assert is_refused(fixed), value


async def test_submit_processes_unusual_but_valid_json_values_unchanged(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    values = ["9" * 4_000, "-0.0", "[" * 150 + "]" * 150, '"\\ud83d\\ude00"', '{"": {"": []}}', "null"]
    policy = f'{{"mode": "tolerate", "max_failed": {"9" * 400}}}'
    body = f'{{"kind": "echo", "inputs": [{", ".join(values)}], "policy": {policy}}}'
    answer = await ada.post("/v1/jobs", content=body.encode(), headers=JSON)
    assert answer.status_code == 202, answer.text
    await drain(toy, db=api.db)
    path = answer.headers["location"]
    assert (await ada.get(path)).json()["counts"]["done"] == len(values)
    results = [(await ada.get(f"{path}/items/{seq}")).json()["result"] for seq in range(len(values))]
    assert results == [json.loads(value) for value in values]
    assert (await ada.get(f"{path}/items")).status_code == 200


async def test_submit_uses_last_value_of_duplicate_json_key(api: Api, ada: httpx2.AsyncClient) -> None:
    body = b'{"kind": "nobody", "kind": "echo", "inputs": [1], "inputs": [2, 3]}'
    answer = await ada.post("/v1/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["counts"]["total"]) == (202, 2)


async def test_upload_with_invalid_rows_fails_only_those_rows_and_lists_all(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    lines = [
        b'{"title": "\\ud800"}',
        b'{"sku": "\\u0000"}',
        b'"\\udfff"',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5_000 + b"}",
    ]
    lines += [b"\xff\xfe", b"[" * 10_000, b'{"title": NaN}', b'{"title": "ok"}']
    headers = {"content-type": "application/x-ndjson"}
    answer = await ada.post("/v1/jobs?kind=echo", content=b"\n".join(lines), headers=headers)
    await drain(toy, db=api.db)
    path = answer.headers["location"]
    assert (await ada.get(path)).json()["counts"]["total"] == len(lines)
    for query in ("", "?statuses=failed", "?statuses=done", "?seq=3"):
        assert (await ada.get(f"{path}/items{query}")).status_code == 200
    for seq in range(len(lines)):
        assert (await ada.get(f"{path}/items/{seq}")).json()["status"] == (
            "done" if seq == len(lines) - 1 else "failed"
        )
    assert (await ada.get("/v1/dead-letters")).status_code == 200


NAMES = {
    "日本.csv": "日本.csv",
    "é.csv": "é.csv",
    "a\0b.csv": "ab.csv",
    "..\\..\\x.csv": "../../x.csv",
    "../../../etc/passwd.csv": "../../../etc/passwd.csv",
    "a\u202eb.csv": "ab.csv",
}


async def test_upload_file_name_is_sanitized_and_never_used_as_path(api: Api, ada: httpx2.AsyncClient) -> None:
    form = {"content-type": "multipart/form-data; boundary=x"}
    for name, kept in NAMES.items():
        lines = ["--x", 'Content-Disposition: form-data; name="kind"', "", "echo", "--x"]
        lines += [f'Content-Disposition: form-data; name="file"; filename="{name}"', "", "a\n1\n", "--x--", ""]
        answers = [await ada.post("/v1/jobs", content="\r\n".join(lines).encode(), headers=form)]
        answers += [await ada.post("/v1/jobs", params={"kind": "echo", "filename": name}, content=b"a\n1\n")]
        assert [answer.status_code for answer in answers] == [202, 202], answers[0].text
        made = [answer.json()["id"] for answer in answers]
        found = await rows(api.db, "SELECT source->>'name' FROM tidemill.job WHERE id = ANY(%s::uuid[])", made)
        assert found == [(kept,), (kept,)]
    assert all(path.is_file() for path in Path(api.settings.blobs).iterdir())  # noqa: ASYNC240


async def test_upload_with_invalid_query_parameter_is_rejected(api: Api, ada: httpx2.AsyncClient) -> None:
    for words in ("format=foo", "format=%00", "params=%7B%22a%22:%22%5Cu0000%22%7D", "policy=1", "x%00=1"):
        answer = await ada.post(f"/v1/jobs?kind=echo&{words}", content=b"a\n", headers={"content-type": "text/csv"})
        assert answer.status_code == 422, words
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]


FORGED: list[Any] = [
    [None, "0123456789abcdef"],
    [None, None, None, None, 5],
    [],
    ["jobs"],
    ["jobs", "00000000", "x"],
    ["jobs", "00000000", 10**30],
    ["seq", "00000000", -(10**30)],
    ["open", "00000000", "9999-12-31T23:59:59-23:59", 1, 1],
    ["open", "00000000", "\u0000", 1, 1],
    [True, False, None],
    "jobs",
    7,
    {"jobs": 1},
]


async def test_lists_reject_forged_cursor_with_422(ada: httpx2.AsyncClient, root: httpx2.AsyncClient, job: str) -> None:
    lists = ["jobs", "pending", "dead-letters", "operations"]
    lists += [f"jobs/{job}/items", f"jobs/{job}/batches", f"jobs/{job}/activity"]
    for place in FORGED:
        token = base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")
        for path in lists:
            for who in (ada, root):
                assert (await who.get(f"/v1/{path}?after={token}")).status_code == 422, f"{path} {place}"


LISTS = (("jobs", "created_from", "created_to"), ("pending", "from", "to"), ("dead-letters", "from", "to"))
MOMENTS = {
    ("0001-01-01T00:00:00%2B23:59", "9999-12-31T23:59:59-23:59"): 200,
    ("2026-02-30T00:00:00Z", "2026-03-01T00:00:00Z"): 422,
    ("2026-01-01T00:00:00", "2026-01-01"): 422,
    ("99999999999999999999", "1e999"): 422,
    ("0", "1763200000"): 422,
    ("0.5", "-1"): 422,
}


async def test_list_time_filters_accept_extreme_and_reject_invalid_timestamps(
    ada: httpx2.AsyncClient, job: str
) -> None:
    for (begin, end), status in MOMENTS.items():
        for path, first, last in LISTS:
            answer = await ada.get(f"/v1/{path}?{first}={begin}&{last}={end}")
            assert answer.status_code == status, answer.text


NO_PREDICATE: list[dict[str, Any]] = [
    {"all_matching": "true"},
    {"all_matching": 1},
    {"all_matching": True, "reset_attempts": "no"},
    {"all_matching": True, "filter": {"kind": False}},
    {"all_matching": True, "filter": {"kind": {}}},
    {"all_matching": True, "filter": {"error_codes": "exhausted"}},
    {"all_matching": True, "filter": {"from": 0}},
    {"all_matching": True, "filter": {"to": "0"}},
    {"all_matching": True, "filter": {"from": "2026-01-01T00:00:00"}},
    {"all_matching": True, "filter": []},
    {"all_matching": True, "filter": None},
    {"item_ids": ["\u0661" * 32 + ":\u0660"]},
]


async def test_redrive_rejects_wrongly_typed_filter_without_requeueing(ada: httpx2.AsyncClient, job: str) -> None:
    for asked in NO_PREDICATE:
        answer = await ada.post("/v1/dead-letters/redrive", json=asked)
        assert answer.status_code == 422, asked
    assert (await ada.get(f"/v1/jobs/{job}")).json()["counts"]["failed"] == 3, "no item was requeued"


async def test_submit_rejects_query_parameter_beside_json_body(api: Api, ada: httpx2.AsyncClient) -> None:
    answer = await ada.post("/v1/jobs?priority=5", json={"kind": "echo", "inputs": [1]})
    assert answer.status_code == 422
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]


async def test_job_of_other_user_returns_same_404_as_unknown_job(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    job = await submitted(ada, [1])
    foreign, unknown = await bob.get(f"/v1/jobs/{job}"), await bob.get(f"/v1/jobs/{job[:-1]}0")
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.json()["detail"].replace(job, "") == unknown.json()["detail"].replace(f"{job[:-1]}0", "")


@pytest.mark.parametrize("boundary", ["b" * 300, "", '"é"'])
async def test_form_with_unusable_boundary_is_rejected(ada: httpx2.AsyncClient, boundary: str) -> None:
    headers = {b"content-type": f"multipart/form-data; boundary={boundary}".encode("latin-1")}
    answer = await ada.post("/v1/jobs?kind=echo", content=b"--b--", headers=headers)
    assert answer.status_code == 400, answer.text
    assert is_problem(answer)


@pytest.mark.parametrize(
    ("query", "converted"),
    [
        (b"pageSize=5", b"page_size=5"),
        (b"userID=7", b"user_id=7"),
        (b"pAAge=1", b"p_aage=1"),
        (b"a=pageSize", b"a=pageSize"),
    ],
)
def test_names_of_query_parameters_are_converted_completely(query: bytes, converted: bytes) -> None:
    assert convert_query_to_snake_case(query) == converted
    assert convert_query_to_snake_case(converted) == converted
