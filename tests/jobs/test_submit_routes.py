"""POST /v1/jobs with inputs, files, images and references: accepted jobs are durable, rejected ones leave nothing."""

import asyncio
import json
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from files.test_image_zip import zipped
from support import eventually, rows
from support.api import Api, share_with_users
from support.import_requests import stocked
from tidemill import Item, Mill
from tidemill.config import Settings, SourceFolder
from tidemill.core.errors import InvalidInput
from tidemill.core.principal import Role
from tidemill.files.source_folders import open_source_file
from tidemill.testing import drain

CSV = b"sku,name\n1,one\n2,two\n3,three\n"
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">L4sLL", 13, b"IHDR", 640, 480) + b"\x08\x02\x00\x00\x00" + b"\0" * 20
GIF = b"GIF89a" + struct.pack("<HH", 3, 4) + b"\0" * 10


def files(settings: Settings) -> list[str]:
    folder = Path(settings.blobs)
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def nothing_left(api: Api) -> None:
    async def look() -> bool:
        return files(api.settings) == []

    await eventually(look)


async def job_row(api: Api, answer: httpx2.Response, columns: str) -> tuple[Any, ...]:
    return (await rows(api.db, f"SELECT {columns} FROM tidemill.job WHERE id = %s", answer.json()["id"]))[0]


async def inputs(api: Api, answer: httpx2.Response) -> list[Any]:
    found = await rows(api.db, "SELECT input FROM tidemill.item WHERE job_id = %s ORDER BY seq", answer.json()["id"])
    return [row[0] for row in found]


async def test_submit_stores_inputs_before_responding_202(api: Api, ada: httpx2.AsyncClient) -> None:
    answer = await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1, {"a": None}, "x", []]})
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["counts"]["total"] == 4
    assert await inputs(api, answer) == [1, {"a": None}, "x", []]


async def test_submit_records_owner_request_id_trace_and_ip_address(api: Api, ada: httpx2.AsyncClient) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"X-Request-ID": "order-7", "traceparent": trace}
    answer = await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]}, headers=headers)
    assert (answer.headers["x-request-id"], answer.headers["traceparent"]) == ("order-7", trace)
    found = await job_row(api, answer, "owner_id, request_id, traceparent, host(ip_address)")
    assert found == (api.ids["ada"], "order-7", trace, "127.0.0.1")


@pytest.mark.parametrize("value", ["a b", "x" * 129, "<script>", "a\tb"])
async def test_invalid_request_id_and_traceparent_are_replaced(ada: httpx2.AsyncClient, value: str) -> None:
    answer = await ada.get("/v1/me", headers={"X-Request-ID": value, "traceparent": "00-zz-1-01"})
    assert answer.headers["x-request-id"] != value
    assert "traceparent" not in answer.headers


async def test_submit_accepts_camel_case_policy_params_and_priority(api: Api, ada: httpx2.AsyncClient) -> None:
    asked = {"kind": "echo", "inputs": [1], "policy": {"mode": "tolerate", "maxFailed": 3}, "params": {"a": 1}}
    answer = await ada.post("/v1/jobs", json=asked | {"priority": 5})
    found = await job_row(api, answer, "policy, params, priority")
    assert found == ({"mode": "tolerate", "max_failed": 3}, {"a": 1}, 5)


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"kind": "echo"}, None),
        ({"inputs": [1]}, "#/kind"),
        ({"kind": "echo", "inputs": {"a": 1}}, "#/inputs"),
        ({"kind": "echo", "inputs": [1], "more": 1}, "#/more"),
        ({"kind": "echo", "inputs": [1], "priority": 101}, "#/priority"),
        ({"kind": "echo", "inputs": [1], "policy": {"mode": "hope"}}, "#/policy/mode"),
        ({"kind": "echo", "inputs": [1], "policy": {"mode": "tolerate"}}, None),
        ({"kind": "nobody", "inputs": [1]}, "#/kind"),
        ({"kind": "match", "inputs": [1], "params": {"service": "nobody", "query": "a"}}, "#/params/service"),
        ({"kind": "echo", "inputs": ["x" * 70_000], "more": 1}, "#/more"),
        ({"kind": "echo", "inputs": ["a\u0000b"]}, None),
        ({"kind": "echo", "inputs": [1], "source": {"name": "a", "path": "b"}}, None),
        ([], "#"),
    ],
)
async def test_invalid_submit_points_at_error_and_creates_no_job(
    api: Api, ada: httpx2.AsyncClient, asked: Any, pointer: str | None
) -> None:
    answer = await ada.post("/v1/jobs", json=asked)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert pointer is None or pointer in {fault["pointer"] for fault in problem["errors"]}
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"kind":"echo","inputs":[' + b"[" * 100_000])
async def test_submit_of_malformed_json_is_rejected_with_400(ada: httpx2.AsyncClient, body: bytes) -> None:
    answer = await ada.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text


async def test_json_body_over_size_limit_is_rejected_with_413(make_api: Callable[..., Any]) -> None:
    api = await make_api(max_json_bytes=1_000)
    ada = await api.user("ada")
    asked = {"kind": "echo", "inputs": ["x" * 2_000]}
    assert (await ada.post("/v1/jobs", json=asked)).status_code == 413
    assert (await ada.post("/v1/keys", json={"name": "x" * 2_000})).status_code == 413
    assert (await ada.post("/v1/keys", content=b"x" * 2_000, headers={"content-type": "text/csv"})).status_code == 413


FORMS: list[dict[str, Any]] = [
    {"url": "/v1/jobs?kind=echo", "content": CSV, "headers": {"content-type": "text/csv; charset=utf-8"}},
    {"url": "/v1/jobs?kind=echo&filename=a.csv", "content": CSV, "headers": {"content-type": "application/x-what"}},
    {"url": "/v1/jobs", "data": {"kind": "echo"}, "files": {"file": ("a.csv", CSV)}},
    {"url": "/v1/jobs?kind=echo", "files": {"anything": ("a", CSV, "text/csv")}},
    {"url": "/v1/jobs", "data": {"kind": "echo", "format": "csv"}, "files": {"file": ("a", CSV, "text/plain")}},
]


@pytest.mark.parametrize("form", FORMS)
async def test_submit_accepts_file_as_body_or_multipart_part(
    api: Api, ada: httpx2.AsyncClient, toy: Mill, form: dict[str, Any]
) -> None:
    answer = await ada.post(**form)
    assert answer.status_code == 202, answer.text
    await drain(toy, db=api.db)
    assert await inputs(api, answer) == [
        {"sku": "1", "name": "one"},
        {"sku": "2", "name": "two"},
        {"sku": "3", "name": "three"},
    ]
    assert files(api.settings) == list(await job_row(api, answer, "file_id"))


async def test_submit_stores_form_fields_beside_file(api: Api, ada: httpx2.AsyncClient) -> None:
    words = {"kind": "echo", "params": '{"a": 1}', "policy": '{"mode": "fail_fast"}', "priority": "-3"}
    answer = await ada.post("/v1/jobs", data=words, files={"file": ("a.csv", CSV)})
    found = await job_row(api, answer, "params, policy, priority, source->>'name'")
    assert found == ({"a": 1}, {"mode": "fail_fast"}, -3, "a.csv")


FORM = "multipart/form-data"
BAD_FORMS: list[tuple[int, dict[str, Any]]] = [
    (415, {"url": "/v1/jobs?kind=echo", "content": CSV, "headers": {"content-type": "application/pdf"}}),
    (415, {"url": "/v1/jobs?kind=echo", "content": CSV}),
    (422, {"url": "/v1/jobs", "content": CSV, "headers": {"content-type": "text/csv"}}),
    (422, {"url": "/v1/jobs?kind=nobody", "content": CSV, "headers": {"content-type": "text/csv"}}),
    (422, {"url": "/v1/jobs?kind=echo&what=1", "content": CSV, "headers": {"content-type": "text/csv"}}),
    (422, {"url": "/v1/jobs?kind=echo&params=[1]", "content": CSV, "headers": {"content-type": "text/csv"}}),
    (422, {"url": "/v1/jobs?kind=echo", "files": [("a", ("a.csv", CSV)), ("b", ("b.csv", CSV))]}),
    (422, {"url": "/v1/jobs?kind=echo", "files": [("a", ("a.png", PNG, "image/png")), ("b", ("b.csv", CSV))]}),
    (400, {"url": "/v1/jobs?kind=echo", "content": CSV, "headers": {"content-type": "multipart/form-data"}}),
    (
        400,
        {"url": "/v1/jobs", "content": b"--x\r\n\r\n", "headers": {"content-type": "multipart/form-data; boundary=x"}},
    ),
    (422, {"url": "/v1/jobs", "data": {"file": "no file at all", "kind": "echo"}, "files": {}}),
]


@pytest.mark.parametrize(("status", "form"), BAD_FORMS)
async def test_rejected_upload_leaves_no_file_and_no_job(
    api: Api, ada: httpx2.AsyncClient, status: int, form: dict[str, Any]
) -> None:
    answer = await ada.post(**form)
    assert answer.status_code in (status, 415 if "data" in form else status), answer.text
    assert files(api.settings) == []
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]


async def pieces(n: int, size: int = 1 << 18) -> AsyncIterator[bytes]:
    for _ in range(n):
        yield b"x" * size


async def test_upload_over_size_limit_is_rejected_while_streaming(make_api: Callable[..., Any]) -> None:
    api = await make_api(max_file_size_mb=1)
    ada = await api.user("ada")
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(4_000):
            sent += 1 << 18
            yield b"x" * (1 << 18)

    try:
        answer = await ada.post("/v1/jobs?kind=echo", content=endless(), headers={"content-type": "text/csv"})
        assert answer.status_code == 413
    except httpx2.TransportError:
        pass  # the service closed the connection during the upload
    assert sent < 100 << 20
    await nothing_left(api)
    answer = await ada.post("/v1/jobs?kind=echo", content=b"x" * (3 << 20), headers={"content-type": "text/csv"})
    assert answer.status_code == 413
    assert files(api.settings) == []


async def test_client_disconnect_during_upload_leaves_no_file_and_no_job(api: Api, ada: httpx2.AsyncClient) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"a,b\n" * 500_000
        raise ConnectionResetError

    with pytest.raises((ConnectionResetError, httpx2.TransportError)):
        await ada.post("/v1/jobs?kind=echo", content=broken(), headers={"content-type": "text/csv"})
    await nothing_left(api)
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]


async def test_uploaded_images_become_items_with_type_and_dimensions(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    images = [("images", ("cat.png", PNG, "image/png")), ("images", ("../dog.gif", GIF, "image/gif"))]
    answer = await ada.post("/v1/jobs", data={"kind": "echo"}, files=images)
    assert answer.status_code == 202, answer.text
    await drain(toy, db=api.db)
    cat, dog = await inputs(api, answer)
    blob = (await job_row(api, answer, "file_id"))[0]
    shown = {"size": len(PNG), "content_type": "image/png", "width": 640, "height": 480}
    assert cat == {"name": "cat.png", "blob": blob, "entry": 0} | shown
    assert (dog["content_type"], dog["width"], dog["height"], dog["entry"]) == ("image/gif", 3, 4, 1)
    job_id = UUID(answer.json()["id"])
    for input_ in (dog, dog | {"blob": "another file"}):
        with await toy.open_image_async(Item(job_id, 1, input_)) as file:
            assert file.read() == GIF
    for wrong in ({"entry": 2}, {"entry": -1}, {"entry": "0"}, {}, "text", None):
        with pytest.raises(InvalidInput, match="refers to no uploaded image"):
            await toy.open_image_async(Item(job_id, 1, wrong))


async def test_open_image_opens_no_stored_file_that_an_input_names(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    secret = await ada.post("/v1/jobs", data={"kind": "echo"}, files=[("images", ("cat.png", PNG, "image/png"))])
    blob = (await job_row(api, secret, "file_id"))[0]
    eve = await api.user("eve")
    answer = await eve.post("/v1/jobs", json={"kind": "echo", "inputs": [{"blob": blob, "entry": 0}]})
    with pytest.raises(InvalidInput, match="has no images"):
        await toy.open_image_async(Item(UUID(answer.json()["id"]), 0, {"blob": blob, "entry": 0}))


async def test_zip_upload_makes_item_per_entry_and_fails_non_images(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    body = zipped({"a/": b"", "a/cat.png": PNG, "a/notes.txt": b"hello", "a/dog.gif": GIF})
    headers = {"content-type": "application/zip"}
    answer = await ada.post("/v1/jobs?kind=echo", content=body, headers=headers)
    await drain(toy, db=api.db)
    names = [(found["name"], found.get("width")) for found in await inputs(api, answer)]
    assert names == [("a/cat.png", 640), ("a/notes.txt", None), ("a/dog.gif", 3)]
    found = await rows(
        api.db,
        "SELECT seq, status, error->>'code' FROM tidemill.outcome WHERE job_id = %s ORDER BY seq",
        answer.json()["id"],
    )
    assert found == [(0, "done", None), (1, "failed", "invalid"), (2, "done", None)]


@pytest.mark.parametrize(
    "body", [b"not a zip", b"PK\x05\x06" + b"\0" * 18 + b"!", zipped({"a": b"x"})[:-30]], ids=["text", "empty", "cut"]
)
async def test_corrupt_zip_upload_fails_job_with_reason(
    api: Api, ada: httpx2.AsyncClient, toy: Mill, body: bytes
) -> None:
    headers = {"content-type": "application/zip"}
    answer = await ada.post("/v1/jobs?kind=echo", content=body, headers=headers)
    await drain(toy, db=api.db)
    closed_as, reason, total = await job_row(
        api, answer, "closed_as, failure_reason, (SELECT count(*) FROM tidemill.item)"
    )
    assert (closed_as, total) in (("failed", 0), ("completed", 0))
    assert closed_as == "completed" or "zip" in reason


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.csv").write_bytes(CSV)
    (tmp_path / "secret.csv").write_bytes(CSV)
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "good.csv").symlink_to(folder / "deep" / "a.csv")
    (folder / "what").write_bytes(CSV)
    (folder / "top.csv").write_bytes(CSV)
    (folder / "linked").symlink_to(folder / "deep")
    return folder


@pytest.mark.parametrize("path", ["deep/a.csv", "top.csv"])
async def test_submit_source_copies_file_from_configured_folder(
    make_api: Callable[..., Any], inbox: Path, toy: Mill, path: str
) -> None:
    api = await make_api(sources={"inbox": share_with_users(inbox)})
    ada = await api.user("ada")
    answer = await ada.post("/v1/jobs", json={"kind": "echo", "source": {"name": "inbox", "path": path}})
    assert answer.status_code == 202, answer.text
    (inbox / "deep" / "a.csv").unlink()
    await drain(toy, db=api.db)
    assert len(await inputs(api, answer)) == 3, "the file was copied, so the source may be deleted"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.csv",
        "link.csv",
        "good.csv",
        "linked/a.csv",
        "deep/../top.csv",
        "./top.csv",
        "/etc/passwd",
        "none.csv",
        "deep",
        "",
        "a\0b.csv",
        "x" * 999,
        "deep/" * 100,
    ],
)
async def test_submit_source_outside_configured_folder_is_rejected(
    make_api: Callable[..., Any], inbox: Path, path: str
) -> None:
    api = await make_api(sources={"inbox": share_with_users(inbox)})
    ada = await api.user("ada")
    answer = await ada.post("/v1/jobs", json={"kind": "echo", "source": {"name": "inbox", "path": path}})
    assert answer.status_code == 422, answer.text
    assert "secret" not in answer.text or "secret" in path
    other = await ada.post("/v1/jobs", json={"kind": "echo", "source": {"name": "outbox", "path": "a.csv"}})
    assert other.status_code == 422
    assert files(api.settings) == []


@pytest.mark.parametrize("url", ["/v1/jobs", "/v1/imports"])
async def test_submit_source_requires_a_grant_of_the_folder(
    make_api: Callable[..., Any], inbox: Path, tmp_path: Path, url: str
) -> None:
    folders = {
        "mine": share_with_users(inbox),
        "admins": SourceFolder(path=inbox),
        "closed": SourceFolder(path=inbox, read=()),
    }
    api = await stocked(make_api, tmp_path, sources=folders)
    ada, root = await api.user("ada"), await api.user("root", Role.ADMIN)
    seen = {}
    for user, client in (("ada", ada), ("root", root)):
        for name in folders:
            source = {"name": name, "path": "top.csv"}
            body = {"kind": "echo"} if url == "/v1/jobs" else {"resource": "people"}
            answer = await client.post(url, json=body | {"source": source})
            seen[user, name] = "Unknown source" not in answer.text
            assert "closed, " not in answer.text
        listed = (await client.get("/v1/limits")).json()["sources"]
        assert listed == [name for name in sorted(folders) if seen[user, name]]
    assert {place for place, is_open in seen.items() if is_open} == {
        ("ada", "mine"),
        ("root", "mine"),
        ("root", "admins"),
    }


def test_source_file_is_not_opened_through_a_folder_that_becomes_a_link(tmp_path: Path) -> None:
    """A user who can write to the source replaces a folder with a link and back, before each opening."""
    source, outside = tmp_path / "source", tmp_path / "outside"
    for folder, content in ((source / "real", b"public"), (outside, b"secret")):
        folder.mkdir(parents=True)
        (folder / "a.csv").write_bytes(content)
    (source / "link").symlink_to(outside)
    seen: Counter[bytes] = Counter()
    for turn in range(4):
        (source / ("link" if turn % 2 else "real")).rename(source / "at")
        try:
            with open_source_file({"s": SourceFolder(path=source)}, Role.ADMIN, "s", "at/a.csv") as file:
                seen[file.read()] += 1
        except InvalidInput:
            seen[b"refused"] += 1
        (source / "at").rename(source / ("link" if turn % 2 else "real"))
    assert seen == {b"public": 2, b"refused": 2}


@pytest.mark.parametrize("url", ["/v1/jobs", "/v1/imports"])
async def test_unreadable_or_endless_source_is_rejected_with_reason(
    make_api: Callable[..., Any], tmp_path: Path, url: str
) -> None:
    api = await stocked(
        make_api, tmp_path, sources={"kernel": share_with_users(Path("/proc/self"))}, max_file_size_mb=1
    )
    ada = await api.user("ada")

    async def post(path: str) -> httpx2.Response:
        source = {"name": "kernel", "path": path}
        of_jobs = {"kind": "echo", "source": source | {"format": "csv"}}
        return await ada.post(url, json=of_jobs if url == "/v1/jobs" else {"resource": "people", "source": source})

    unreadable = await post("mem")
    assert unreadable.status_code == 422, unreadable.text
    assert 'file "mem": Input/output error' in unreadable.json()["detail"]
    endless = await post("pagemap")
    assert endless.status_code == 413, "the archive declares that it is empty"
    assert files(api.settings) == []


async def test_concurrent_submits_with_one_idempotency_key_create_one_job(api: Api, ada: httpx2.AsyncClient) -> None:
    asked = {"kind": "echo", "inputs": list(range(100))}
    headers = {"Idempotency-Key": '"once"'}
    answers = await asyncio.gather(*(ada.post("/v1/jobs", json=asked, headers=headers) for _ in range(50)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 49}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(1,)]
    assert await rows(api.db, "SELECT count(*) FROM tidemill.item") == [(100,)]


async def test_concurrent_uploads_with_one_idempotency_key_leave_one_file(api: Api, ada: httpx2.AsyncClient) -> None:
    def post() -> Any:
        headers = {"Idempotency-Key": "once", "content-type": "text/csv"}
        return ada.post("/v1/jobs?kind=echo", content=CSV, headers=headers)

    answers = await asyncio.gather(*(post() for _ in range(50)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 49}
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(1,)]
    assert files(api.settings) == [(await job_row(api, answers[0], "file_id"))[0]]


async def test_idempotency_key_is_same_quoted_and_unquoted(ada: httpx2.AsyncClient) -> None:
    asked = {"kind": "echo", "inputs": [1]}
    first = await ada.post("/v1/jobs", json=asked, headers={"Idempotency-Key": '"k-1"'})
    second = await ada.post("/v1/jobs", json=asked, headers={"Idempotency-Key": "k-1"})
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["id"] == second.json()["id"]


@pytest.mark.parametrize("key", ['"open', "a b", '""', "x" * 201, 'a"b', "a,b"])
async def test_malformed_idempotency_key_is_rejected_with_400(ada: httpx2.AsyncClient, key: str) -> None:
    answer = await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]}, headers={"Idempotency-Key": key})
    assert answer.status_code == 400, key


@pytest.mark.parametrize(
    "other",
    [{"inputs": [2]}, {"inputs": [1, 1]}, {"priority": 1}, {"params": {"a": 1}}, {"policy": {"mode": "fail_fast"}}],
)
async def test_idempotency_key_with_other_payload_is_rejected(ada: httpx2.AsyncClient, other: dict[str, Any]) -> None:
    asked = {"kind": "echo", "inputs": [1]}
    headers = {"Idempotency-Key": "k"}
    assert (await ada.post("/v1/jobs", json=asked, headers=headers)).status_code == 202
    assert (await ada.post("/v1/jobs", json=asked | other, headers=headers)).status_code == 422
    assert (await ada.post("/v1/jobs", json=asked, headers=headers)).status_code == 200


async def test_idempotency_key_with_other_parameters_is_rejected_before_upload(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    headers = {"Idempotency-Key": "k", "content-type": "text/csv"}
    assert (await ada.post("/v1/jobs?kind=echo", content=CSV, headers=headers)).status_code == 202
    head = [
        "POST /v1/jobs?kind=echo&priority=3 HTTP/1.1",
        "Host: tidemill",
        f"Authorization: {ada.headers['authorization']}",
        "Idempotency-Key: k",
        "Content-Type: text/csv",
        "Content-Length: 1000",
        "\r\n",
    ]
    reader, writer = await asyncio.open_connection(*api.address)
    writer.write("\r\n".join(head).encode())
    assert (await asyncio.wait_for(reader.readline(), 10)).split()[1] == b"422", "the file was not sent"
    writer.close()
    assert len(files(api.settings)) == 1
    other = await ada.post("/v1/jobs?kind=echo", content=CSV + b"4,four\n", headers=headers)
    assert other.status_code == 422, "a different file is detected after it is read"
    assert len(files(api.settings)) == 1


async def test_idempotency_key_is_scoped_to_owner(ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    asked = {"kind": "echo", "inputs": [1]}
    answers = [await who.post("/v1/jobs", json=asked, headers={"Idempotency-Key": "k"}) for who in (ada, bob)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] != answers[1].json()["id"]


async def test_submit_preserves_large_numbers_exactly(api: Api, ada: httpx2.AsyncClient) -> None:
    body = b'{"kind":"echo","inputs":[9007199254740993, 1e308, 123456789012345678901234567890, 0.1]}'
    answer = await ada.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 202, answer.text
    found = await rows(api.db, "SELECT input::text FROM tidemill.item ORDER BY seq")
    assert json.loads(found[0][0]) == 9007199254740993
    assert json.loads(found[2][0]) == 123456789012345678901234567890
