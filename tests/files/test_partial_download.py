"""A download resumes if the remote file has not changed, and stores a complete file or none."""

import hashlib
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from files.conftest import Make, Serve
from support.loopback_server import Request, ranged
from tidemill.core.errors import Interrupted, RemoteUnreachable
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.files.remote.partial_download import PartialDownload, RemoteFileInfo

BLOB = "0123456789abcdef" * 2
ROWS = b"".join(b"%d,row\n" % n for n in range(50_000))
OTHER = ROWS[::-1]
HALF = len(ROWS) // 2
TAG = 'ETag: "v1"'
DATED = ("Date: Fri, 02 Jan 1970 00:00:00 GMT", "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT")


def left_behind(blobs: FolderBlobStore, data: bytes, about: RemoteFileInfo) -> None:
    """Leave a partial download, as a killed process does."""
    with PartialDownload(blobs, BLOB) as part:
        part.restart_with_info(about)
        part.append(data)


def unfinished(blobs: FolderBlobStore) -> list[Path]:
    return list(blobs.path(BLOB).parent.glob("*.tmp"))


def has_most_of_a_half(blobs: FolderBlobStore) -> bool:
    return any(path.stat().st_size > HALF // 2 for path in unfinished(blobs) if "part" in path.name)


def half_then_silence(request: Request) -> None:
    """Serve the first part of a file, and the rest on a range request."""
    if request.first:
        ranged(ROWS, TAG)(request)
    else:
        request.answer("200 OK", TAG, f"Content-Length: {len(ROWS)}", body=ROWS[:HALF])
        request.stall()


@pytest.mark.parametrize(("headers", "validator"), [((TAG,), '"v1"'), (DATED, DATED[1].partition(": ")[2])])
def test_download_resumes_after_broken_connection_with_range_request(
    blobs: FolderBlobStore, serve: Serve, remote: Make, headers: tuple[str, ...], validator: str
) -> None:
    server = serve(ranged(ROWS, *headers, breaks_at=lambda nth: HALF if nth == 1 else None))
    fetched = remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert fetched.blob.sha256 == hashlib.sha256(ROWS).digest()
    again = server.requests[1].headers
    assert (again["range"], again["if-range"]) == (f"bytes={HALF}-", validator)
    assert unfinished(blobs) == []


def test_download_attempts_that_make_progress_do_not_count(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(ranged(ROWS, TAG, breaks_at=lambda nth: 100_000 if nth < 5 else None))
    remote(server, tries=2).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ('ETag: W/"v1"',),
        ('ETag: "é"',),
        ('ETag: "',),
        (DATED[1],),
        (DATED[0], DATED[0].replace("Date", "Last-Modified")),
    ],
)
def test_download_restarts_when_server_has_no_strong_validator(
    blobs: FolderBlobStore, serve: Serve, remote: Make, headers: tuple[str, ...]
) -> None:
    server = serve(ranged(ROWS, *headers, breaks_at=lambda nth: HALF if nth == 1 else None))
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert "range" not in server.requests[1].headers


def test_download_truncated_every_time_is_never_stored(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    def answer(request: Request) -> None:
        request.answer("200 OK", f"Content-Length: {len(ROWS)}", body=ROWS[:HALF])

    server = serve(answer)
    with pytest.raises(RemoteUnreachable, match="without sending complete message body"):
        remote(server).download(server.url(), BLOB)
    assert not blobs.has(BLOB)
    assert len(server.requests) == 3


def test_download_resumes_partial_file_of_earlier_call(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(ranged(ROWS, TAG, breaks_at={1: HALF, 2: 0}.get))
    with pytest.raises(RemoteUnreachable):
        remote(server, tries=2).download(server.url(), BLOB)
    assert not blobs.has(BLOB)
    remote(server, tries=2).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert [request.first for request in server.requests] == [0, HALF, HALF]
    assert unfinished(blobs) == []


def test_download_restarts_when_file_changed_meanwhile(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(lambda request: request.give(OTHER, 'ETag: "v2"'))
    left_behind(blobs, ROWS[:HALF], RemoteFileInfo(server.url(), '"v1"', len(ROWS)))
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == OTHER
    assert server.requests[0].headers["if-range"] == '"v1"'


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        ("206 Partial Content", [f"Content-Range: bytes {HALF}-{len(OTHER) - 1}/{len(OTHER)}", 'ETag: "v2"']),
        ("206 Partial Content", [f"Content-Range: bytes {HALF}-{len(OTHER)}/{len(OTHER) + 1}", TAG]),
        ("206 Partial Content", [f"Content-Range: bytes {HALF + 1}-{len(OTHER) - 1}/{len(OTHER)}", TAG]),
        ("206 Partial Content", [f"Content-Range: bytes {HALF}-{len(OTHER) - 1}/*", TAG]),
        ("206 Partial Content", [f"Content-Range: bytes {HALF}-{HALF}/{len(OTHER)}", TAG]),
        ("206 Partial Content", ["Content-Range: nonsense", TAG]),
        ("206 Partial Content", [TAG]),
        ("416 Range Not Satisfiable", [f"Content-Range: bytes */{HALF}"]),
    ],
)
def test_download_restarts_when_range_response_does_not_match(
    blobs: FolderBlobStore, serve: Serve, remote: Make, status: str, headers: list[str]
) -> None:
    def answer(request: Request) -> None:
        if request.first:
            request.answer(status, f"Content-Length: {len(OTHER) - HALF}", *headers, body=OTHER[HALF:])
        else:
            request.give(OTHER, 'ETag: "v2"')

    server = serve(answer)
    left_behind(blobs, ROWS[:HALF], RemoteFileInfo(server.url(), '"v1"', len(ROWS), etag='"v1"'))
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == OTHER
    assert len(server.requests) == 2


def test_download_requests_each_range_when_server_sends_partial_ranges(
    blobs: FolderBlobStore, serve: Serve, remote: Make
) -> None:
    def answer(request: Request) -> None:
        first = request.first
        piece = ROWS[first : first + 200_000]
        where = f"Content-Range: bytes {first}-{first + len(piece) - 1}/{len(ROWS)}"
        request.answer("206 Partial Content", where, f"Content-Length: {len(piece)}", TAG, body=piece)

    server = serve(answer)
    left_behind(blobs, ROWS[:10], RemoteFileInfo(server.url(), '"v1"', etag='"v1"'))
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert len(server.requests) == -(-(len(ROWS) - 10) // 200_000)


def test_download_does_not_send_etag_of_another_url(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(lambda request: request.give(OTHER, TAG))
    left_behind(blobs, ROWS[:HALF], RemoteFileInfo(server.url("/elsewhere"), '"v1"', len(ROWS)))
    remote(server).download(server.url(), BLOB)
    assert "range" not in server.requests[0].headers
    assert blobs.path(BLOB).read_bytes() == OTHER


def test_download_already_complete_sends_no_request(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(Request.stall)
    left_behind(blobs, ROWS, RemoteFileInfo(server.url(), '"v1"', len(ROWS)))
    assert remote(server).download(server.url(), BLOB).blob.sha256 == hashlib.sha256(ROWS).digest()
    assert server.requests == []


def test_download_restarts_when_partial_file_metadata_is_corrupt(
    blobs: FolderBlobStore, serve: Serve, remote: Make
) -> None:
    server = serve(ranged(ROWS, TAG))
    left_behind(blobs, b"?" * HALF, RemoteFileInfo(server.url(), '"v1"', len(ROWS)))
    next(path for path in unfinished(blobs) if "about" in path.name).write_bytes(b'{"url": ')
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS


def test_download_interrupted_keeps_partial_file_for_resume(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server, started = serve(half_then_silence), time.monotonic()
    patient = remote(server, total_s=60, silence_s=60)
    with pytest.raises(Interrupted):
        patient.download(server.url(), BLOB, should_continue=lambda: not has_most_of_a_half(blobs))
    assert time.monotonic() - started < 20
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert 0 < server.requests[1].first <= HALF


def test_download_resumes_after_process_was_killed(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(half_then_silence)
    script = """
        import sys
        from pathlib import Path
        from tidemill.core.allowed_hosts import AllowedHost
        from tidemill.files.blobs.folder_store import FolderBlobStore
        from tidemill.files.remote.checked_connection import DownloadLimits
        from tidemill.files.remote.downloader import Downloader
        _, folder, url, blob, allowed = sys.argv
        limits = DownloadLimits(1_000_000, allowed=[AllowedHost.parse(allowed)])
        Downloader(FolderBlobStore(Path(folder)), limits).download(url, blob)
    """
    folder = blobs.path(BLOB).parent
    argv = [sys.executable, "-c", textwrap.dedent(script), str(folder), server.url(), BLOB, f"127.0.0.1:{server.port}"]
    process = subprocess.Popen(argv)
    deadline = time.monotonic() + 30
    while not has_most_of_a_half(blobs):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait(30)
    remote(server).download(server.url(), BLOB)
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert server.requests[1].first > HALF // 2
    assert unfinished(blobs) == []


def test_download_stale_writer_cannot_corrupt_newer_file(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(ranged(ROWS, TAG))
    with PartialDownload(blobs, BLOB) as slow:
        slow.restart_with_info(RemoteFileInfo(server.url(), '"v1"', len(ROWS), etag='"v1"'))
        slow.append(OTHER[:HALF])
        remote(server).download(server.url(), BLOB)
        assert server.requests[0].first == 0
        slow.append(OTHER[HALF:])
        with pytest.raises(Interrupted, match="Another process took over"):
            slow.finish()
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert unfinished(blobs) == []


def test_download_does_not_replace_existing_file(blobs: FolderBlobStore, serve: Serve, remote: Make) -> None:
    server = serve(lambda request: request.give(OTHER))
    with blobs.open_writer(BLOB) as writing:
        writing.write(ROWS)
        writing.finish()
    assert remote(server).download(server.url(), BLOB).blob.sha256 == hashlib.sha256(ROWS).digest()
    assert blobs.path(BLOB).read_bytes() == ROWS
    assert unfinished(blobs) == []


def test_stale_partial_download_is_removed(blobs: FolderBlobStore) -> None:
    left_behind(blobs, ROWS[:HALF], RemoteFileInfo("http://h/x", '"v1"', len(ROWS)))
    assert blobs.remove_stale_scratch_files(3_600) == []
    for path in unfinished(blobs):
        os.utime(path, (0, 0))
    assert len(blobs.remove_stale_scratch_files(3_600)) == 2
    assert unfinished(blobs) == []
