"""Downloads reject private addresses in URLs, host names, redirects and DNS responses."""

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from files.conftest import Make, Serve
from support import require
from support.loopback_server import Request, Server
from tidemill.core.allowed_hosts import AllowedHost
from tidemill.core.errors import Interrupted, InvalidInput, RemoteUnreachable
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.files.remote.checked_connection import parse_allowed_url

BLOB = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example.com/x", "Use an http or https URL"),
        ("file:///etc/passwd", "Use an http or https URL"),
        ("//example.com/x", "Use an http or https URL"),
        ("rows.csv", "Use an http or https URL"),
        ("http:///x", "has no host"),
        ("https://user:pw@example.com/x", "a user name or password"),
        ("http://a\\@127.0.0.1/", "a user name or password"),
        ("http://exa\nmple.com/", "Invalid URL"),
        ("http://[::1/x", "Invalid URL"),
        ("http://h/\ud800", "Invalid URL"),
        ("http://" + "x" * 9_000, "longer than 8192"),
        ("http://example.com:22/", "port 22 is not allowed"),
        ("http://example.com:99999/", "port 99999 is not allowed"),
        ("http://127.0.0.1/", "not on the public internet"),
        ("http://169.254.169.254/latest/meta-data", "not on the public internet"),
        ("http://[::1]/", "not on the public internet"),
        ("http://[::ffff:127.0.0.1]/", "not on the public internet"),
        ("http://[64:ff9b::a00:1]/", "not on the public internet"),
        ("http://[2002:7f00:1::]/", "not on the public internet"),
    ],
)
def test_url_check_rejects_unsafe_urls(url: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_allowed_url(url)


def test_url_check_accepts_allowed_hosts_and_strips_fragment() -> None:
    allowed = [AllowedHost.parse(entry) for entry in ("127.0.0.1:8081", "files.internal:8080")]
    for url in ("http://127.0.0.1:8081/x", "http://files.internal:8080/x", "https://example.com/x?y=z"):
        assert str(parse_allowed_url(f"{url}#there", allowed)) == url


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "017700000001", "0", "localhost", "LOCALHOST"])
def test_download_rejects_every_spelling_of_loopback_address(remote: Make, host: str) -> None:
    with pytest.raises(InvalidInput, match="not on the public internet"):
        remote().download(f"http://{host}/", BLOB)


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://localhost/",
        "//[::1]/x",
        "http://127.0.0.1:1/",
        "ftp://example.com/x",
        "http://user@127.0.0.1/",
        "http://\x7f/",
        "http://[::1/x",
    ],
)
def test_download_checks_redirect_target_like_a_url(
    blobs: FolderBlobStore, serve: Serve, remote: Make, location: str
) -> None:
    server = serve(lambda request: request.redirect(location))
    with pytest.raises(InvalidInput, match=r"not on the public internet|is not allowed|redirected"):
        remote(server).download(server.url(), BLOB)
    assert not blobs.has(BLOB)


def test_download_rejects_host_when_any_resolved_address_is_private(remote: Make) -> None:
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(InvalidInput, match="not on the public internet"):
        remote(resolve=resolve).download("https://example.com/", BLOB)
    assert asked == [("example.com", 443)]


def test_download_retry_rejects_private_address_after_dns_rebinding(
    remote: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    connected: list[object] = []

    def connect(address: object, *_: object, **__: object) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(InvalidInput, match="not on the public internet"):
        remote(resolve=lambda *_: answers.pop(0)).download("http://rebinding.example/", BLOB)
    assert connected == [("93.184.216.34", 80)]


def test_download_connects_to_checked_address_and_sends_original_host(serve: Serve, remote: Make) -> None:
    server = serve(lambda request: request.give(b"x"))
    here = remote(server, resolve=lambda *_: ["127.0.0.1"])
    assert here.download(server.url("/x", host="Files.example"), BLOB).url == server.url("/x", host="files.example")
    assert server.requests[0].headers["host"] == f"files.example:{server.port}"


def test_download_uses_next_address_when_first_does_not_respond(
    serve: Serve, remote: Make, blobs: FolderBlobStore
) -> None:
    server, other = serve(lambda request: request.give(b"x")), serve(Request.stall)
    other.port = server.port  # no server listens on this address
    allowed = AllowedHost.parse(f"127.0.0.2:{server.port}")
    here = remote(server, resolve=lambda *_: ["127.0.0.2", "127.0.0.1"], also=[allowed])
    here.download(server.url(host="files.example"), BLOB)
    assert blobs.has(BLOB)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "unknown host"),
        (UnicodeError("label too long"), "invalid host name"),
    ],
)
def test_download_reports_unknown_or_invalid_host_name(remote: Make, error: Exception, message: str) -> None:
    def resolve(*_: object) -> list[str]:
        raise error

    with pytest.raises(InvalidInput, match=message):
        remote(resolve=resolve).download("http://nowhere.example/", BLOB)


def test_download_reports_temporary_dns_failure_as_unreachable(remote: Make) -> None:
    def resolve(*_: object) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    with pytest.raises(RemoteUnreachable, match="the host name could not be resolved"):
        remote(resolve=resolve).download("http://nowhere.example/", BLOB)


def test_download_can_be_interrupted_while_resolver_hangs(remote: Make) -> None:
    hanging = threading.Event()

    def resolve(*_: object) -> list[str]:
        hanging.wait(60)
        return []

    started = time.monotonic()
    with pytest.raises(Interrupted):
        remote(resolve=resolve).download(
            "http://x.example/", BLOB, should_continue=lambda: time.monotonic() < started + 0.2
        )
    hanging.set()
    assert time.monotonic() - started < 20


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for files.example."""
    require("openssl")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=files.example"
    names = ["-addext", "subjectAltName=DNS:files.example"]
    made = [*words.split(), *names, "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(["openssl", *made], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Server(lambda request: request.give(b"secret rows"), context) as server:
        yield server


def test_download_verifies_certificate_by_host_name_with_pinned_address(
    blobs: FolderBlobStore, secure: Server, certificate: Path, remote: Make
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    here = remote(secure, resolve=lambda *_: ["127.0.0.1"], ssl_context=trusting)
    here.download(secure.url(host="files.example"), BLOB)
    assert blobs.path(BLOB).read_bytes() == b"secret rows"


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1"])
def test_download_rejects_certificate_of_another_host(
    secure: Server, certificate: Path, remote: Make, host: str
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    here = remote(secure, resolve=lambda *_: ["127.0.0.1"], ssl_context=trusting)
    with pytest.raises(InvalidInput, match=f"the certificate of {host} is not valid: .*mismatch"):
        here.download(secure.url(host=host), BLOB)
    assert not secure.requests


def test_download_rejects_self_signed_certificate(secure: Server, remote: Make) -> None:
    here = remote(secure, resolve=lambda *_: ["127.0.0.1"])
    with pytest.raises(InvalidInput, match=r"is not valid: self.signed certificate"):
        here.download(secure.url(host="files.example"), BLOB)


def test_download_rejects_redirect_from_https_to_http(
    serve: Serve, secure: Server, certificate: Path, remote: Make
) -> None:
    plain = serve(lambda request: request.give(b"x"))
    secure.answer = lambda request: request.redirect(plain.url())
    trusting = ssl.create_default_context(cafile=str(certificate))
    here = remote(secure, plain, resolve=lambda *_: ["127.0.0.1"], ssl_context=trusting)
    with pytest.raises(InvalidInput, match="redirected from https to http"):
        here.download(secure.url(host="files.example"), BLOB)
