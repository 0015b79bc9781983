"""Watches on network sources: real S3, FTP, FTPS, SFTP and HTTP servers on the loopback interface."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.loopback_server import Server
from support.s3 import S3Server
from tidemill.core.errors import Interrupted, InvalidInput, TooLarge
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.watches.file_state import FileState, ListedFile
from tidemill.watches.sources import http_source
from tidemill.watches.sources.ftp_source import FtpWatchSource
from tidemill.watches.sources.watch_source import FetchLimits
from tidemill.watches.watch import HostAddress
from watches.file_servers import PASSWORD, USER, Rclone
from watches.scenes import ROWS, Scene
from watches.tls_proxy import TlsFront
from watches.website import Web, allow

PROCESSED = FileState.PROCESSED
ACCESS = 'password_env = "MILL_PASSWORD"'


@dataclass
class Place:
    """A network source, and the local folder with its files."""

    source: str
    access: str
    folder: Path
    kill: Callable[[], None]


@pytest.fixture(params=["ftp", "ftps", "ftpes", "sftp", "s3"])
def place(
    request: pytest.FixtureRequest, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    monkeypatch.setenv("MILL_PASSWORD", PASSWORD)
    folder = tmp_path / "served"
    (folder / "in").mkdir(parents=True)
    with ExitStack() as stack:
        protocol: str = request.param
        if protocol == "s3":
            server = stack.enter_context(S3Server(tmp_path / "s3"))
            monkeypatch.setenv("INLET_KEY", server.key)
            monkeypatch.setenv("INLET_SECRET", server.secret)
            (server.folder / "in").mkdir()
            keys = 'access_key_env = "INLET_KEY"\nsecret_key_env = "INLET_SECRET"'
            access = f'{keys}\nendpoint = "{server.endpoint}"\nregion = "us-east-1"'
            yield Place(f'"{server.blobs_url("in")}"', access, server.folder / "in", server.kill)
            return
        running = stack.enter_context(Rclone("sftp" if protocol == "sftp" else "ftp", folder, tmp_path))
        access, url, kill = ACCESS, running.url(protocol), running.kill
        if protocol == "sftp":
            (tmp_path / "known_hosts").write_text(running.known_hosts)
            access += f'\nknown_hosts = "{tmp_path / "known_hosts"}"'
        elif protocol != "ftp":
            certificate, key = _certificate(tmp_path)
            front = stack.enter_context(TlsFront(running.port, certificate, key, implicit=protocol == "ftps"))
            access += f'\nca_file = "{certificate}"'
            url, kill = url.replace(str(running.port), str(front.port)), front.close
        yield Place(url, access, folder / "in", kill)


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*argv, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def there(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


async def test_network_source_files_are_submitted_and_archived(scene: Scene, place: Place) -> None:
    (place.folder / "below").mkdir()
    (place.folder / "processed").mkdir()
    for name in ("a.csv", "überall & more.csv", "below/c.csv", "d.csv.part", "processed/a.csv"):
        (place.folder / name).write_text(ROWS)
    (place.folder / "bad.csv").write_text('"never closed')
    scene.declare('pattern = ["*.csv", "below/*.csv"]', place.access, source=place.source)
    report = await scene.whole_way()
    assert report.result.problem is None
    states = await scene.states()
    assert {path for path, state in states.items() if state is PROCESSED} >= {
        "a.csv",
        "below/c.csv",
        "überall & more.csv",
    }
    left = there(place.folder)
    assert [name for name in left if "/" not in name] == ["d.csv.part"]
    suffixed = (await scene.files())["a.csv"].moved_to
    assert suffixed != "processed/a.csv"
    assert {suffixed, "processed/a.csv", "processed/below/c.csv", "processed/überall & more.csv"} < set(left)
    assert len(await scene.items()) >= 6
    assert await scene.jobs() == 4
    await scene.scan(times=2)
    assert await scene.jobs() == 4


async def test_network_source_wrong_credentials_are_reported_without_secret(
    scene: Scene, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder / "a.csv").write_text(ROWS)
    for name in ("MILL_PASSWORD", "INLET_SECRET"):
        monkeypatch.setenv(name, "wrong-w0rd-of-eight")
    scene.declare(place.access, source=place.source)
    problem = str((await scene.scan()).result.problem)
    assert "wrong" in problem or "denied" in problem
    assert "w0rd" not in problem
    assert await scene.files() == {}
    for name in ("MILL_PASSWORD", "INLET_SECRET"):
        monkeypatch.delenv(name)
    assert "is not set" in str((await scene.scan()).result.problem)


async def test_unreachable_network_source_is_reported_and_files_are_kept(
    scene: Scene, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder / "a.csv").write_text(ROWS)
    scene.declare(place.access, source=place.source)
    await scene.scan()
    place.kill()
    report = await scene.scan()
    assert report.result.problem is not None
    assert report.result.delay is not None
    assert report.result.delay >= 60
    assert await scene.states() == {"a.csv": FileState.SEEN}


def test_ftp_connection_stays_usable_after_aborted_fetch(tmp_path: Path) -> None:
    served, blobs = tmp_path / "served", FolderBlobStore(tmp_path / "blobs")
    served.mkdir()
    (served / "big.csv").write_bytes(b"x" * (8 << 20))
    (served / "small.csv").write_text(ROWS)
    with (
        Rclone("ftp", served, tmp_path) as server,
        FtpWatchSource(HostAddress("ftp", "127.0.0.1", server.port, USER), PASSWORD) as inlet,
    ):
        with pytest.raises(TooLarge):
            inlet.fetch_to_blob_store(ListedFile("big.csv", None, ""), blobs, "big", FetchLimits(1 << 20))
        with pytest.raises(Interrupted):
            inlet.fetch_to_blob_store(
                ListedFile("big.csv", None, ""), blobs, "big", FetchLimits(16 << 20, lambda: False)
            )
        assert inlet.find_file("gone.csv") is None
        assert inlet.fetch_to_blob_store(
            ListedFile("small.csv", None, ""), blobs, "small", FetchLimits(1 << 20)
        ).size == len(ROWS)
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == ["small"]


async def test_sftp_server_with_unknown_host_key_is_refused(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILL_PASSWORD", PASSWORD)
    served = tmp_path / "served"
    served.mkdir()
    with Rclone("sftp", served, tmp_path) as server:
        hosts = tmp_path / "hosts"
        scene.declare(ACCESS, f'known_hosts = "{hosts}"', source=server.url("sftp", ""))
        assert "does not exist" in str((await scene.scan()).result.problem)
        hosts.write_text(server.known_hosts.replace(str(server.port), "1"))
        assert "the host key is not in known_hosts" in str((await scene.scan()).result.problem)
        hosts.write_text(server.known_hosts)
        assert (await scene.scan()).result.problem is None


async def test_http_files_are_submitted_once_per_version(scene: Scene, web: tuple[Web, Server]) -> None:
    site, server = web
    allow(scene, server)
    site.files = {"/a.csv": (ROWS.encode(), "1"), "/b.csv": (ROWS.encode(), "1")}
    scene.declare(source=f'["{server.url("/a.csv")}", "{server.url("/b.csv?token=geheim")}"]')
    await scene.whole_way()
    await scene.scan(times=2)
    assert await scene.jobs() == 2
    files = await scene.files()
    assert {file.state for file in files.values()} == {PROCESSED}
    assert "geheim" not in str(files)
    site.files["/a.csv"] = (ROWS.encode(), "2")
    await scene.whole_way()
    assert await scene.jobs() == 3


async def test_http_index_lists_files_and_missing_ones_do_not_stop_others(
    scene: Scene, web: tuple[Web, Server]
) -> None:
    site, server = web
    allow(scene, server)
    site.files = {"/out/a.csv": (ROWS.encode(), "1"), "/out/b.txt": (b"no", "1")}
    for index in (
        b"# files\na.csv\nb.txt\ngone.csv\n",
        b'["a.csv", "gone.csv"]',
        b'<a href="a.csv">a</a><a href="gone.csv">',
    ):
        site.files["/out/"] = (index, "1")
        scene.declare("index = true", 'pattern = "*.csv"', source=f'"{server.url("/out/")}"')
        result = (await scene.scan(times=2)).result
        assert "gone.csv: file not found" in str(result.problem)
    assert await scene.jobs() == 1


async def test_http_source_sends_authorization_from_environment(
    scene: Scene, web: tuple[Web, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, server = web
    allow(scene, server)
    site.secret = "Bearer s3cr3t"
    site.files = {"/a.csv": (ROWS.encode(), "1")}
    scene.declare('authorization_env = "WEB_TOKEN"', source=f'"{server.url("/a.csv")}"')
    monkeypatch.setenv("WEB_TOKEN", "Bearer wrong")
    assert "401" in str((await scene.scan()).result.problem)
    monkeypatch.setenv("WEB_TOKEN", site.secret)
    assert (await scene.scan(times=2)).result.submitted == 1


async def test_http_source_on_private_address_requires_remote_allow(scene: Scene, web: tuple[Web, Server]) -> None:
    site, server = web
    scene.declare(source=f'"{server.url("/a.csv")}"')
    assert "is not allowed" in str((await scene.scan()).result.problem)
    assert site.asked == []


def test_http_index_with_invalid_content_is_rejected() -> None:
    for index in (b"\xff\xfe", b'["a", 1]', b"[broken", b"a\x07b"):
        with pytest.raises(InvalidInput):
            http_source.parse_index(index)
