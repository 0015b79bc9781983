"""HTTP routes of exports: streams, files, lists and permissions."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from exports.scenes import COPYING
from support import eventually, rows
from support.api import Api
from support.import_requests import Shop, open_shop
from support.raw_http import listening
from tidemill import Mill
from tidemill.core.principal import Role
from tidemill.files.blobs import open_blob_store
from tidemill.rest import responses
from tidemill.tables.resource_registry import make_resource_registry

Make = Callable[..., Awaitable[Api]]
PEOPLE = "email,name,age\nada@x.org,Ada,36\nbob@x.org,Bob,41\n"
WIDE = """
CREATE TABLE shop.wide (id int PRIMARY KEY, text text);
INSERT INTO shop.wide SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 15000) n;
"""


@pytest.fixture
async def shop(make_api: Make, toy: Mill, tmp_path: Path) -> Shop:
    shop = await open_shop(make_api, toy, tmp_path, export_streams=2)
    await rows(shop.api.db, "INSERT INTO shop.people VALUES ('ada@x.org', 'Ada', 36), ('bob@x.org', 'Bob', 41)")
    return shop


async def get(shop: Shop, who: Any = None, **params: Any) -> httpx2.Response:
    said: httpx2.Response = await (who or shop.ada).get("/v1/exports", params={"resource": "people"} | params)
    return said


async def made(shop: Shop, **asked: Any) -> dict[str, Any]:
    """Submit an export, run it, and return its final state."""
    answer = await shop.ada.post("/v1/exports", json={"resource": "people", "fields": ["email", "name", "age"]} | asked)
    assert answer.status_code == 202, answer.text
    await shop.work()
    return dict((await shop.ada.get(answer.headers["location"])).json())


async def test_export_stream_applies_fields_order_filter_and_format(shop: Shop) -> None:
    answer = await get(shop, fields="email,name,age")
    assert (answer.status_code, answer.text) == (200, PEOPLE)
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="people.csv"'
    assert answer.headers["transfer-encoding"] == "chunked"
    words = {"format": "ndjson", "fields": "name", "order": "-age", "filter[age][between]": "30,50"}
    assert (await get(shop, **words)).text == '{"name":"Bob"}\n{"name":"Ada"}\n'


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"filter[age]": "old"}, "must be a whole number"),
        ({"filter[agee]": "1"}, 'did you mean "age"?'),
        ({"filter[age][near]": "1"}, "unknown operator"),
        ({"fields": "email,password"}, 'no field "password"'),
        ({"order": "nothing"}, 'Invalid order: "people" has no field'),
        ({"format": "docx"}, "format"),
        ({"colour": "red"}, 'Unknown parameter "colour"'),
        ({"page_size": "5"}, "cannot be combined with"),
        ({"format": "parquet", "compression": "gzip"}, "has built-in compression"),
        ({"format": "ndjson", "spreadsheet_safe": "true"}, "spreadsheet_safe requires format csv or xlsx"),
    ],
)
async def test_export_stream_rejects_invalid_parameter_with_reason(
    shop: Shop, words: dict[str, str], says: str
) -> None:
    answer = await get(shop, **words)
    assert answer.status_code == 422
    assert says in answer.json()["detail"]


async def test_export_request_reports_all_invalid_parameters_at_once(shop: Shop) -> None:
    words = {"filter[age]": "old", "fields": "email,password", "order": "nothing", "compression": "gzip"}
    answer = await get(shop, format="parquet", **words)
    assert [one["parameter"] for one in answer.json()["errors"]] == ["fields", "filter[age]", "order", "format"]
    asked = {"filters": {"age": "old"}, "fields": ["password"], "order": ["nothing"], "compression": "gzip"}
    answer = await shop.ada.post("/v1/exports", json={"resource": "people", "format": "parquet"} | asked)
    assert [one["pointer"] for one in answer.json()["errors"]] == ["#/fields", "#/filters/age", "#/order", "#/format"]


@pytest.mark.parametrize(
    "asked", [{"filters": {"\ud800": 1}}, {"filters": {"age": {"\ud800": 1}}}, {"fields": ["\ud800"]}, {"\ud800": 1}]
)
async def test_export_request_with_lone_surrogate_in_name_is_rejected(shop: Shop, asked: dict[str, Any]) -> None:
    body, headers = json.dumps({"resource": "people"} | asked), {"Content-Type": "application/json"}
    answer = await shop.ada.post("/v1/exports", content=body, headers=headers)
    assert (answer.status_code, len(answer.json()["errors"])) == (422, 1)


async def test_export_of_undeclared_or_ungranted_table_is_rejected(shop: Shop) -> None:
    root = await shop.api.user("root", Role.ADMIN)
    assert (await get(shop, resource="secrets")).status_code == 404
    assert (await get(shop, resource="shop.people")).status_code == 404
    assert (await get(shop, root, resource="shop.secrets")).text == "id,word\n"
    for name in ("tidemill.job", "pg_catalog.pg_authid", "information_schema.tables"):
        assert (await get(shop, resource=name)).status_code == 404
        assert "Cannot export from schema" in (await get(shop, root, resource=name)).json()["detail"]


async def test_export_filter_keeps_exact_decimal_digits(shop: Shop) -> None:
    body = b'{"resource": "people", "filters": {"age": {"eq": 36.0000000000000000001}, "name": {"ne": 2.50}}}'
    answer = await shop.ada.post("/v1/exports", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "36.0000000000000000001" in answer.text
    body = body.replace(b"36.0000000000000000001", b"36")
    answer = await shop.ada.post("/v1/exports", content=body, headers={"Content-Type": "application/json"})
    assert answer.json()["filters"] == {"age": {"eq": ["36"]}, "name": {"ne": ["2.50"]}}


@pytest.mark.parametrize("number", [b"1e9999999999999999999", b"-1E-9999999999999999999"])
async def test_export_filter_with_extreme_number_is_rejected(shop: Shop, number: bytes) -> None:
    body = b'{"resource": "people", "filters": {"age": {"lt": %s}}}' % number
    answer = await shop.ada.post("/v1/exports", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert "must be a whole number" in answer.text


async def test_export_job_creates_file_that_owner_can_download_and_list(shop: Shop) -> None:
    export = await made(shop, filters={"age": {"lt": 40}}, order=["-email"])
    assert (export["status"], export["resource_type"], export["record_count"]) == ("completed", "people", 1)
    assert export["filters"] == {"age": {"lt": ["40"]}}
    assert export["file_path"].startswith("file:///")
    answer = await shop.ada.get(export["download_url"], headers={"Range": "bytes=0-4"})
    assert (answer.status_code, answer.text) == (206, "email")
    assert answer.headers["content-disposition"] == f'attachment; filename="people-{export["key"]}.csv"'
    assert (await shop.ada.get(export["download_url"])).text == "email,name,age\nada@x.org,Ada,36\n"
    listed = (await shop.ada.get("/v1/exports", params={"page_size": 1})).json()
    assert [one["job_id"] for one in listed["exports"]] == [export["job_id"]]
    bob = await shop.api.user("bob")
    assert (await bob.get("/v1/exports")).json()["exports"] == []
    assert (await bob.get(f"/v1/exports/{export['job_id']}")).status_code == 404


async def test_expired_export_has_no_download_link_and_download_conflicts(shop: Shop) -> None:
    done = await made(shop)
    assert done["download_url"] == done["links"]["download"]
    past = """UPDATE tidemill.outcome SET result = result || '{"expires_at": "2020-01-01T00:00:00+00:00"}'"""
    await rows(shop.api.db, f"{past} WHERE job_id = %s", done["job_id"])
    seen = (await shop.ada.get(done["links"]["self"])).json()
    assert (seen.get("download_url"), seen.get("file_path"), "download" in seen["links"]) == (None, None, False)
    assert (await shop.ada.get(done["download_url"])).status_code == 409


async def test_export_idempotency_key_returns_first_job_after_table_change(shop: Shop) -> None:
    async def post(**asked: Any) -> httpx2.Response:
        words = {"resource": "people"} | asked
        said: httpx2.Response = await shop.ada.post("/v1/exports", json=words, headers={"Idempotency-Key": "monthly"})
        return said

    first = await post()
    await rows(shop.api.db, "ALTER TABLE shop.people ADD COLUMN later text")
    shop.api.app.state.runtime.get(make_resource_registry).invalidate("people")
    again = await post()
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["job_id"] == again.json()["job_id"]
    assert again.json()["idempotency_key"] == "monthly"
    assert (await post(format="ndjson")).status_code == 422


@pytest.mark.needs_feature("imports")
async def test_exported_file_can_be_imported_by_file_id(shop: Shop) -> None:
    export = await made(shop)
    await rows(shop.api.db, "DELETE FROM shop.people")
    words = {"resource": "people", "source": {"file_id": export["file_id"]}}
    answer = await shop.ada.post("/v1/imports", json=words)
    assert answer.status_code == 202, answer.text
    await shop.work()
    assert len(await shop.people()) == 2


async def test_cancelled_pending_export_has_no_file(shop: Shop) -> None:
    answer = await shop.ada.post("/v1/exports", json={"resource": "people"})
    cancelled = await shop.ada.post(f"{answer.headers['location']}/cancel")
    assert cancelled.json()["status"] in ("cancelling", "cancelled")
    await shop.work()
    found = (await shop.ada.get(answer.headers["location"])).json()
    assert (found["status"], found["download_url"]) == ("cancelled", None)
    assert (await shop.ada.get(f"{answer.headers['location']}/download")).status_code == 409


async def copying(shop: Shop) -> int:
    return int((await rows(shop.api.db, f"SELECT count(*) {COPYING}"))[0][0])


async def asking(shop: Shop, resource: str) -> socket.socket:
    """Return a client that has requested a stream and has read nothing."""
    key = (await shop.api.user("root", Role.ADMIN)).headers["authorization"]
    client = socket.create_connection(shop.api.address)
    head = f"GET /v1/exports?resource={resource} HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n"
    client.sendall(head.encode())
    return client


async def half_read(shop: Shop) -> socket.socket:
    """Return a client that has read the head of a stream and then stops reading."""
    client = await asking(shop, "shop.wide")
    assert b"200 OK" in await asyncio.to_thread(client.recv, 1_000)
    return client


@pytest.mark.parametrize("within", [10.0, pytest.param(1.0, marks=pytest.mark.full)])  # a busy machine may need longer
async def test_export_stream_frees_database_connection_when_client_disconnects(shop: Shop, within: float) -> None:
    await rows(shop.api.db, WIDE)
    client = await half_read(shop)
    assert await copying(shop) == 1
    client.close()

    async def is_free() -> bool:
        return await copying(shop) == 0

    await eventually(is_free, within=within)


async def test_export_stream_cancels_query_when_client_disconnects_before_first_row(shop: Shop) -> None:
    await rows(shop.api.db, "CREATE VIEW shop.slow AS SELECT pg_sleep(60)::text AS slept")

    async def are_copying(count: int) -> bool:
        return await copying(shop) == count

    client = await asking(shop, "shop.slow")
    await eventually(lambda: are_copying(1))
    client.close()
    await eventually(lambda: are_copying(0), within=10)


async def test_export_stream_is_aborted_when_client_stops_reading(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "STREAM_GRACE_S", 0.5)
    monkeypatch.setattr(responses, "MIN_STREAM_BYTES_PER_S", 100_000_000)
    await rows(shop.api.db, WIDE)
    clients = [await half_read(shop) for _ in range(2)]

    async def is_served() -> bool:
        return await copying(shop) == 0 and (await get(shop)).status_code == 200

    with listening() as events:
        await eventually(is_served, within=20)
    aborted = [event.fields for event in events if event.name == "response.aborted"]
    assert [fields["reason"][:20] for fields in aborted] == ["the client read less"] * 2
    assert not [event for event in events if event.name == "request.failed"], "it is not a bug"
    for client in clients:
        assert not (await asyncio.to_thread(rest_of, client)).endswith(b"\r\n0\r\n\r\n"), (
            "the stream must not look complete"
        )


def rest_of(client: socket.socket) -> bytes:
    """Return what the client can still read before the server resets the connection."""
    received = b""
    with client, contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 20):
            received += piece
    return received


async def test_export_stream_aborts_connection_when_database_query_fails(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    await rows(shop.api.db, WIDE)
    root = await shop.api.user("root", Role.ADMIN)
    async with root.stream("GET", "/v1/exports", params={"resource": "shop.wide"}) as answer:
        assert answer.status_code == 200
        pieces = answer.aiter_raw()
        await anext(pieces)
        with listening() as events:
            await rows(shop.api.db, f"SELECT pg_terminate_backend(pid) {COPYING}")
            with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
                [piece async for piece in pieces]
    told = {event.name: event.fields for event in events}
    assert "request.failed" not in told, "it is not a bug"
    assert told["response.aborted"]["reason"].startswith("The connection to the database was lost")
    assert (told["request.done"]["status"], told["request.done"]["complete"]) == (200, False)
    assert not caplog.records, "no raw traceback"


async def test_export_stream_limit_rejects_excess_with_retry_after(shop: Shop) -> None:
    await rows(shop.api.db, WIDE)
    clients = [await half_read(shop) for _ in range(2)]
    busy = await get(shop)
    assert busy.status_code == 503
    assert busy.headers["retry-after"]
    clients[0].close()

    async def is_served() -> bool:
        return (await get(shop)).status_code == 200

    await eventually(is_served, within=20)
    clients[1].close()


async def test_export_streams_of_one_user_leave_slots_for_others(make_api: Make, toy: Mill, tmp_path: Path) -> None:
    shop = await open_shop(make_api, toy, tmp_path, export_streams=3, export_streams_per_user=2)
    await rows(shop.api.db, WIDE)
    clients = [await half_read(shop) for _ in range(2)]
    excess = await get(shop, await shop.api.user("root", Role.ADMIN))
    assert (excess.status_code, excess.json()["quota"]) == (429, {"name": "export_streams", "used": 3, "limit": 2})
    assert excess.headers["retry-after"]
    assert (await get(shop)).status_code == 200
    for client in clients:
        client.close()


async def test_failed_export_logs_its_cause(shop: Shop) -> None:
    await shop.ada.post("/v1/exports", json={"resource": "people"})
    await rows(shop.api.db, "ALTER TABLE shop.people RENAME COLUMN name TO called")
    with listening() as events:
        await shop.work()
    failed = [event.fields for event in events if event.name == "export.failed"]
    assert "name" in failed[0]["error"]
    assert failed[0]["job"]


async def test_export_rejects_columns_not_declared_by_resource(make_api: Make, tmp_path: Path) -> None:
    declared = tmp_path / "narrow.toml"
    declared.write_text(
        '[resources.names]\ntable = "public.members"\ncolumns = "declared"\nread = ["user"]\nwrite = []\n'
        "[resources.names.fields.name]\n"
    )
    api = await make_api(config=declared)
    await rows(api.db, "CREATE TABLE members (name text PRIMARY KEY, password text NOT NULL)")
    await rows(api.db, "INSERT INTO members VALUES ('ada', 'secret')")
    ada = await api.user("ada")
    assert (await ada.get("/v1/exports?resource=names")).text == "name\nada\n"
    for words in ("fields=password", "filter[password]=x", "order=password"):
        assert (await ada.get(f"/v1/exports?resource=names&{words}")).status_code == 422


@pytest.mark.needs_feature("imports")
async def test_export_item_fix_is_rejected_and_cannot_read_other_job(shop: Shop) -> None:
    bob = await shop.api.user("bob")
    theirs = (await shop.post(b"email,name,age\nbad,Secret,1\n", bob)).json()["job_id"]
    mine = (await shop.ada.post("/v1/exports", json={"resource": "people"})).json()["job_id"]
    await rows(shop.api.db, "ALTER TABLE shop.people RENAME COLUMN name TO called")
    await shop.work()
    other = {"job_id": theirs, "format": "csv", "statuses": [], "spreadsheet_safe": False}
    answer = await shop.ada.patch(f"/v1/jobs/{mine}/items/0", json={"input": other})
    assert answer.status_code == 409
    assert "Submit a new export" in answer.text
    await shop.ada.post(f"/v1/jobs/{mine}/reprocess", json={})
    await shop.work()
    assert "Secret" not in (await shop.ada.get(f"/v1/exports/{mine}/download")).text


@pytest.mark.parametrize("field", ["name", "nothing"])
async def test_export_with_empty_filter_is_rejected(shop: Shop, field: str) -> None:
    answer = await shop.ada.post("/v1/exports", json={"resource": "people", "filters": {field: {}}})
    assert answer.status_code == 422
    assert "is empty" in answer.text


async def test_export_download_conflicts_when_stored_file_was_replaced(shop: Shop) -> None:
    export = await made(shop)
    open_blob_store(shop.api.settings.blobs).put([b"x" * (export["size"] + 1)], export["file_id"])
    assert (await shop.ada.get(export["download_url"])).status_code == 409
