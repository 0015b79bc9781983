"""Requests that no schema describes: malformed and compressed bodies, damaged files, and any header values.

``tests/http/test_schemathesis.py`` sends values that match or violate the OpenAPI document. It sends no malformed
multipart or JSON, no compressed bodies, and a fixed file in each upload.
"""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import strategies as st

from fuzz import test_compressed_files, test_parquet_files, test_request_parts, test_text_files, test_workbooks
from fuzz.mutations import any_json, mutated, mutated_parquet, mutated_text, mutated_zip
from fuzz.reading import assert_safe
from fuzz.targets import fuzz
from support.import_requests import MIXED
from support.populated_api import LETTERS, Place, furnished
from support.raw_http import Told, listening
from tidemill.rest.dependencies import encode_cursor
from tidemill.testing.throwaway_postgres import ThrowawayServer

TIMEOUT_S = 120
FORM_TYPE = {"Content-Type": test_request_parts.FORM_TYPE}
JSON_TYPE = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def place(tidemill_server: ThrowawayServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    url = tidemill_server.create_database()
    with furnished(url, tmp_path_factory.mktemp("home")) as found:
        yield found
    tidemill_server.drop_database(url)


@pytest.fixture(autouse=True)
def events() -> Iterator[Told]:
    """Fail if a request causes an internal error."""
    with listening() as told:
        yield told
    assert [fields for name, fields in told if name == "request.failed"] == []


def send(place: Place, method: str, path: str, headers: dict[str, str] | None = None, **body: Any) -> requests.Response:
    """Send a request. Any response but a success or a problem with a safe text fails the test."""
    try:
        answer = requests.request(
            method, place.api.url + path, headers=place.people[0] | (headers or {}), timeout=TIMEOUT_S,
            allow_redirects=False, **body,
        )  # fmt: skip
    except (requests.exceptions.InvalidHeader, UnicodeError):  # the client does not send it
        return requests.Response()
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == answer.status_code
        for text in (problem["detail"], *(one["detail"] for one in problem.get("errors", ()))):
            assert_safe(text[:2_000])
    return answer


UPLOADS = st.sampled_from(
    ["/v1/imports", "/v1/imports/preview", "/v1/jobs", "/v1/jobs?kind=echo", "/v1/imports?resource=people"]
)
FORMS = (
    b'--x-y\r\nContent-Disposition: form-data; name="resource"\r\n\r\npeople\r\n'
    b'--x-y\r\nContent-Disposition: form-data; name="mapping"\r\n\r\n{"a": ""}\r\n'
    b'--x-y\r\nContent-Disposition: form-data; name="sheet"\r\n\r\n1\r\n'
    b'--x-y\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\nContent-Type: text/csv\r\n\r\n'
    + MIXED
    + b"\r\n--x-y--\r\n",
    (
        b'--x-y\r\nContent-Disposition: form-data; name="kind"\r\n\r\necho\r\n--x-y\r\nContent-Type: image/png\r\n'
        b'Content-Disposition: form-data; name="a"; filename="a.png"\r\n\r\nx\r\n--x-y--'
    ),
)
FORM_FRAGMENTS = (
    *test_request_parts.FORM_FRAGMENTS,
    b"9" * 4_500,
    b"policy",
    b"validate_only",
    b"mode",
    b"upsert",
    b"{",
)


@fuzz(
    examples=30, path=UPLOADS, body=mutated(FORMS, fragments=FORM_FRAGMENTS), content_type=test_request_parts.FORM_TYPES
)
def test_malformed_form_is_accepted_or_rejected(place: Place, path: str, body: bytes, content_type: str) -> None:
    send(place, "POST", path, {"Content-Type": content_type}, data=body)


ENCODINGS = st.sampled_from(["gzip", "zstd", "br", "deflate", "identity", "gzip, gzip", "", "GZIP", "é"])


@fuzz(
    examples=15,
    path=UPLOADS,
    encoding=ENCODINGS,
    body=mutated([gzip.compress(MIXED), MIXED, b'{"kind": "echo"}'], least=0),
    kind=st.sampled_from(["text/csv", "application/json"]),
)
def test_compressed_body_is_rejected(place: Place, path: str, encoding: str, body: bytes, kind: str) -> None:
    answer = send(place, "POST", path, {"Content-Type": kind, "Content-Encoding": encoding}, data=body)
    if encoding.lower() not in ("", "identity", "é"):
        assert answer.status_code == 415, answer.text


FILES = st.one_of(
    mutated(test_text_files.CSV_SAMPLES, fragments=test_text_files.CSV_FRAGMENTS),
    mutated(test_text_files.JSON_SAMPLES, fragments=test_text_files.JSON_FRAGMENTS),
    mutated(test_compressed_files.GZIP_SAMPLES),
    mutated(test_compressed_files.ZSTD_SAMPLES),
    mutated_zip(test_compressed_files.ZIP_SAMPLES),
    mutated_zip(test_compressed_files.IMAGE_SAMPLES),
    mutated_zip(test_workbooks.SAMPLES, fragments=test_workbooks.FRAGMENTS),
    mutated_parquet(test_parquet_files.SAMPLES),
)
OPTION = {
    "sheet": st.sampled_from(["1", "9" * 5_000, "²", "x"]),
    "header": st.sampled_from(["true", "0", "x"]),
    "encoding": st.text(max_size=8),
    "delimiter": st.text(max_size=2),
    "mapping": st.sampled_from(["{}", "[" * 2_000, '{"a": 1}', '{"\\ud800": "x"}']),
    "key": st.sampled_from(["email", "[1]", "[", ",,"]),
}


@fuzz(
    examples=40,
    data=FILES,
    name=st.sampled_from(["a.csv", "a.xlsx", "a.bin", "", "a\x00.zip"]),
    options=st.fixed_dictionaries({}, optional=OPTION),
)
def test_preview_of_damaged_file_is_accepted_or_rejected(
    place: Place, data: bytes, name: str, options: dict[str, str]
) -> None:
    fields = {"resource": "people"} | {key: text for key, text in options.items() if text.isprintable()}
    send(place, "POST", "/v1/imports/preview", data=fields, files={"file": (name, data)})


BODIES = (
    b'{"kind": "echo", "inputs": [{"a": 1}, "x", 7], "params": {}, "policy": {"max_failures": 3}, "name": "n"}',
    b'{"scope": "items", "ranges": [[0, 3]], "statuses": ["failed"], "reset_attempts": true}',
    b'{"resource": "people", "filters": {"age": {"gte": 1}, "email": {"in": ["a"]}}, "fields": ["email"]}',
    b'{"resource": "people", "source": {"name": "inbox", "path": "people.csv"}, "mode": "upsert", "sheet": 1}',
    b'{"all_matching": true, "filter": {"kind": "echo", "from": "2026-01-01T00:00:00Z"}, "except": []}',
    json.dumps(LETTERS).encode(),
)
JSON_PATHS = st.sampled_from(
    [
        *(
            "/v1/jobs",
            "/v1/jobs/{job}/reprocess",
            "/v1/jobs/{job}/cancel-items",
            "/v1/jobs/{job}/items/0",
            "/v1/exports",
        ),
        *(
            "/v1/imports",
            "/v1/imports/preview",
            "/v1/dead-letters/redrive",
            "/v1/distributions",
            "/v1/keys",
            "/v1/session",
        ),
    ]
)
JSON_FRAGMENTS = (
    *test_text_files.JSON_FRAGMENTS,
    b"1e99999999999999999999",
    b"-0",
    b"true",
    b'"9' + b"9" * 4_400 + b'"',
    b"9" * 4_400,
)


@fuzz(
    examples=60,
    path=JSON_PATHS,
    body=mutated(BODIES, fragments=JSON_FRAGMENTS) | any_json().map(lambda value: json.dumps(value).encode()),
)
def test_any_json_body_is_accepted_or_rejected(place: Place, path: str, body: bytes) -> None:
    method = "PATCH" if path.endswith("/0") else "POST"
    send(place, method, path.replace("{job}", place.things.job[0]), JSON_TYPE, data=body)


HEADERS = {
    "Range": mutated_text(test_request_parts.RANGES, fragments=["-", "=", "9" * 19]),
    "If-Range": st.text(max_size=9),
    "If-None-Match": st.text(max_size=9),
    "Idempotency-Key": st.text(max_size=20),
    "X-Request-ID": st.text(max_size=20),
    "traceparent": mutated_text([f"00-{'0a' * 16}-{'b7' * 8}-01"]),
    "Cookie": st.text(max_size=30),
    "Authorization": mutated_text(["Bearer tdm_x", "Basic Og==", "Bearer"]),
    "Content-Type": st.text(max_size=20),
    "Last-Event-ID": st.text(max_size=9),
    "X-Forwarded-For": st.text(max_size=20),
    "Origin": st.text(max_size=9),
}
READ_PATHS = st.sampled_from(
    [
        *(
            "/v1/me",
            "/v1/jobs",
            "/v1/jobs/{job}/items",
            "/v1/exports/{export}/download",
            "/v1/imports/{import_id}/errors.csv",
        ),
        *("/v1/dead-letters", "/v1/pending", "/v1/exports", "/v1/distributions", "/health", "/v1/resources"),
    ]
)
CURSORS = (
    any_json().map(lambda value: encode_cursor((value, value)))
    | st.text(max_size=20)
    | mutated_text([encode_cursor(("jobs", "m", 1))])
)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "after",
            "page_size",
            "statuses",
            "status",
            "key",
            "filter[age]",
            "filter[age][in]",
            "user_id",
            "from",
            "resource",
            "format",
            "x",
        ]
    ),
    CURSORS
    | st.sampled_from(["people", "csv", "0", "9" * 5_000, "1e99999999999999999999", "2026-01-01", "me", "done,failed"]),
    max_size=3,
)


@fuzz(
    examples=60,
    path=READ_PATHS,
    headers=st.dictionaries(st.sampled_from(list(HEADERS)), st.just(None), max_size=3),
    query=QUERIES,
    data=st.data(),
)
def test_any_header_and_query_is_accepted_or_rejected(
    place: Place, path: str, headers: dict[str, None], query: dict[str, str], data: st.DataObject
) -> None:
    for name, values in vars(place.things).items():
        path = path.replace(f"{{{name}}}", str(values[0]))
    values_by_name = {name: data.draw(HEADERS[name]) for name in headers}
    sent = {name: text.encode("latin-1", "replace").decode("latin-1").strip() for name, text in values_by_name.items()}
    safe = {name: "".join(mark for mark in text if mark not in "\r\n\x00") for name, text in sent.items()}
    send(place, "GET", path, safe, params={name: text.encode("utf-8", "replace") for name, text in query.items()})
