"""Downloads store a complete file, or raise a clear error and store none."""

import hashlib
import re
import resource
import socket
import time
from collections.abc import Iterator

import httpx2
import pytest

from files.conftest import Make, Serve
from support.loopback_server import Request
from tidemill.core.errors import InvalidInput, RemoteUnreachable, TidemillError, TooLarge
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.files.remote.checked_connection import derive_file_name

BLOB = "0123456789abcdef" * 2
ROWS = b"".join(b"%d,row\n" % n for n in range(20_000))


def files(blobs: FolderBlobStore) -> list[str]:
    return sorted(path.name for path in blobs.path(BLOB).parent.glob("*"))


def test_download_stores_file_with_size_hash_and_metadata(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    headers = ('Content-Disposition: attachment; filename="../my rows.csv"', "Content-Type: text/csv", 'ETag: "v1"')
    server = serve(lambda request: request.give(ROWS, *headers))
    fetched = remote(server).download(server.url("/a/b?token=secret#part"), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert (fetched.blob.id, fetched.blob.size) == (BLOB, len(ROWS))
    assert fetched.blob.sha256 == hashlib.sha256(ROWS).digest()
    assert (fetched.name, fetched.content_type, fetched.etag) == ("my rows.csv", "text/csv", '"v1"')
    assert fetched.url == server.url("/a/b")
    assert files(blobs) == [BLOB]


def test_download_request_sends_only_required_headers(
    serve: Serve, remote: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server = serve(lambda request: request.give(b"x"))
    remote(server).download(server.url("/a?b=c"), BLOB)
    assert server.requests[0].path == "/a?b=c"
    assert server.requests[0].headers == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "tidemill",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "close",
    }


def test_download_accepts_chunked_transfer_encoding(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        request.answer("200 OK", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    server = serve(answer)
    assert remote(server).download(server.url(), BLOB).blob.size == 5
    assert blobs.path(BLOB).read_bytes() == b"abcde"


@pytest.mark.parametrize("headers", [["Content-Length: 0"], ["Transfer-Encoding: chunked"]])
def test_download_of_empty_file_succeeds(serve: Serve, remote: Make, headers: list[str]) -> None:
    server = serve(lambda request: request.answer("200 OK", *headers, body=b"0\r\n\r\n" if "ch" in headers[0] else b""))
    assert remote(server).download(server.url(), BLOB).blob.size == 0


def test_download_skips_informational_responses(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        request.answer("103 Early Hints", "Link: </x>")
        request.give(b"abc")

    server = serve(answer)
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == b"abc"


def test_download_follows_at_most_three_redirects(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        left = int(request.path.removeprefix("/"))
        request.redirect(f"/{left - 1}") if left else request.give(b"here")

    server = serve(answer)
    assert remote(server).download(server.url("/3"), BLOB).url == server.url("/0")
    assert blobs.path(BLOB).read_bytes() == b"here"
    with pytest.raises(InvalidInput, match="redirected more than 3 times"):
        remote(server).download(server.url("/4"), "f" * 32)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ("404 Not Found", InvalidInput, "the server responded with 404 Not Found"),
        ("403 Custom\x07", InvalidInput, "the server responded with 403 Forbidden"),
        ("410 Gone", InvalidInput, "410 Gone"),
        ("401 Unauthorized", InvalidInput, "401 Unauthorized"),
        ("204 No Content", InvalidInput, "204 No Content"),
        ("206 Partial Content", InvalidInput, "206 Partial Content"),
        ("304 Not Modified", InvalidInput, "304 Not Modified"),
        ("799 What", InvalidInput, "the server responded with 799"),
        ("302 Found", InvalidInput, "redirect without a Location header"),
        ("500 Internal Server Error", RemoteUnreachable, "the server responded with 500 Internal Server Error"),
        ("503 Service Unavailable", RemoteUnreachable, "503 Service Unavailable"),
        ("200 OK\r\nContent-Length: 1000001", TooLarge, "larger than 1000000 bytes"),
        ("200 OK\r\nContent-Length: 9999999999999999999", TooLarge, "larger than 1000000 bytes"),
        ("200 OK\r\nX-Nothing: 1", InvalidInput, "the server sent no Content-Length"),
        ("200 OK\r\nContent-Length: 3\r\nContent-Encoding: br", InvalidInput, "content encoding 'br'"),
        ("200 OK\r\nContent-Length: 10", RemoteUnreachable, "incomplete|without sending complete"),
        ("200 OK\r\nTransfer-Encoding: chunked", RemoteUnreachable, "incomplete"),
        ("200 OK\r\nContent-Length: -1", RemoteUnreachable, "the connection failed"),
        ("200 OK\r\nContent-Length: 3\r\nContent-Length: 4", RemoteUnreachable, "the connection failed"),
        ("200 OK\r\nX-Huge: " + "x" * 200_000, RemoteUnreachable, "the connection failed"),
        ("nonsense", RemoteUnreachable, "the connection failed"),
    ],
)
def test_download_error_message_is_one_line_without_query_string(
    blobs: FolderBlobStore, serve: Serve, remote: Make, answer: str, error: type[TidemillError], message: str
) -> None:
    def say(request: Request) -> None:
        head = f"HTTP/1.1 {answer}" if answer != "nonsense" else answer
        request.send(f"{head}\r\n\r\n".encode())
        if "chunked" in answer:
            request.send(b"5\r\nabc")

    server = serve(say)
    with pytest.raises(error, match=message) as caught:
        remote(server).download(server.url("/data.csv?token=secret"), BLOB)
    text = str(caught.value)
    assert text.startswith(f"{server.url('/data.csv')}: ")
    assert "secret" not in text
    assert "\n" not in text
    assert not blobs.has(BLOB)


def test_download_above_size_limit_leaves_no_file(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        request.answer("200 OK", "Transfer-Encoding: chunked")
        while True:
            request.send(b"10000\r\n" + b"x" * 65_536 + b"\r\n")

    server = serve(answer)
    with pytest.raises(TooLarge, match="larger than 1000000 bytes"):
        remote(server).download(server.url(), BLOB)
    assert files(blobs) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_download_longer_than_content_length_is_rejected(
    blobs: FolderBlobStore, serve: Serve, remote: Make, is_late: bool
) -> None:
    def answer(request: Request) -> None:
        request.answer("200 OK", "Content-Length: 7", body=b"1,\xc3\xbcber")
        if is_late:
            request.gone.wait(0.1)
        request.send(b"\n")

    server = serve(answer)
    with pytest.raises(InvalidInput, match="sent more data than it announced"):
        remote(server).download(server.url(), BLOB)
    assert files(blobs) == []


def test_download_finishes_when_server_keeps_connection_open(serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        request.give(b"abc")
        request.stall()

    server = serve(answer)
    assert remote(server).download(server.url(), BLOB).blob.size == 3


def test_download_keeps_unrequested_gzip_encoding_as_sent(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(lambda request: request.give(b"\x1f\x8b...", "Content-Encoding: gzip"))
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == b"\x1f\x8b..."


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nConte", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"])
def test_download_from_silent_server_times_out(blobs: FolderBlobStore, serve: Serve, remote: Make, sent: bytes) -> None:
    def answer(request: Request) -> None:
        request.send(sent)
        request.stall()

    server = serve(answer)
    with pytest.raises(RemoteUnreachable, match="the server stopped sending data"):
        remote(server, silence_s=0.15, tries=2).download(server.url(), BLOB)
    assert not blobs.has(BLOB)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"])
def test_download_from_slow_server_stops_at_deadline(serve: Serve, remote: Make, head: bytes) -> None:
    def answer(request: Request) -> None:
        request.send(head or b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not request.gone.wait(0.03):
            request.send(b"x")

    server, started = serve(answer), time.monotonic()
    with pytest.raises(RemoteUnreachable, match=re.escape("did not finish within 0.5 s")):
        remote(server, total_s=0.5).download(server.url(), BLOB)
    assert time.monotonic() - started < 10
    assert len(server.requests) == 1


def test_download_reports_refused_connection(serve: Serve, remote: Make) -> None:
    server = serve(Request.stall)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.port = listening.getsockname()[1]
    with pytest.raises(RemoteUnreachable, match="the connection failed: Connection refused"):
        remote(server).download(server.url(), BLOB)


def test_download_retry_after_responses_do_not_count_as_attempts(serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        if len(server.requests) > 5:
            request.give(b"abc")
        else:
            request.answer("503 Service Unavailable", "Retry-After: 0", "Content-Length: 0")

    server = serve(answer)
    assert remote(server, tries=2).download(server.url(), BLOB).blob.size == 3


def test_download_waits_for_retry_after_delay(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        if len(server.requests) > 1:
            request.give(b"abc")
        else:
            request.answer("429 Too Many Requests", "Retry-After: 1", "Content-Length: 0")

    server, started = serve(answer), time.monotonic()
    remote(server, tries=2).download(server.url(), BLOB)
    assert time.monotonic() - started >= 1
    assert blobs.has(BLOB)


@pytest.mark.parametrize(
    "header", ["Retry-After: 3600", "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nRetry-After: Thu, 01 Jan 1970 01:00:00 GMT"]
)
def test_download_fails_when_retry_after_exceeds_deadline(serve: Serve, remote: Make, header: str) -> None:
    server = serve(lambda request: request.answer("503 Service Unavailable", header, "Content-Length: 0"))
    with pytest.raises(RemoteUnreachable, match="503 Service Unavailable; Retry-After is 3600 s"):
        remote(server).download(server.url(), BLOB)
    assert len(server.requests) == 1


def test_download_retries_transient_errors(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        if len(server.requests) == 1:
            request.answer("502 Bad Gateway", "Content-Length: 0")
        elif len(server.requests) == 3:
            request.give(b"abc")

    server = serve(answer)
    remote(server).download(server.url(), BLOB)
    assert len(server.requests) == 3


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Limit files to 100 kB."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_download_to_full_disk_raises_and_removes_partial_file(
    blobs: FolderBlobStore, serve: Serve, remote: Make, small_disk: None
) -> None:
    server = serve(lambda request: request.give(ROWS))
    with pytest.raises(OSError, match="File too large"):
        remote(server).download(server.url(), BLOB)
    assert files(blobs) == []


@pytest.mark.parametrize(
    ("path", "disposition", "name"),
    [
        ("/a/rows.csv", None, "rows.csv"),
        ("/a/gr%C3%BCn.csv", None, "grün.csv"),
        ("/a/", None, None),
        ("/a/..", None, None),
        ("/a/b", "attachment; filename=rows.csv", "rows.csv"),
        ("/a/b", "inline; filename*=UTF-8''%e2%82%ac%20rows.csv", "€ rows.csv"),
        ("/a/b", 'attachment; filename="C:\\\\x\\\\rows.csv"', "rows.csv"),
        ("/a/b", 'attachment; filename="/etc/passwd"', "passwd"),
        ("/a/b", 'attachment; filename=".."', "b"),
        ("/a/b", 'attachment; filename="grün.csv"', "grün.csv"),
        ("/a/b", "filename*=nonsense''%ff.csv", "b"),
        ("/a/b", "nonsense\x00", "b"),
        ("/a/b", "=%\ud800", "b"),
        ("/" + "x" * 300 + ".csv", None, "x" * 196 + ".csv"),
    ],
)
def test_download_file_name_comes_from_content_disposition_or_url_path(
    path: str, disposition: str | None, name: str | None
) -> None:
    assert derive_file_name(httpx2.URL(f"http://h{path}"), disposition) == name
