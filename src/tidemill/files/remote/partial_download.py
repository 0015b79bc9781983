"""A download that can be resumed: the stored part, and the requests for the rest."""

import contextlib
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from io import BufferedRandom
from pathlib import Path
from typing import Self, cast
from uuid import uuid4

import httpcore2
import httpx2
import msgspec

from tidemill.core.blob_location import check_blob_name
from tidemill.core.errors import Interrupted, InvalidInput, TooLarge
from tidemill.core.private_files import make_private_folder, open_private_file
from tidemill.core.throttling import count_seconds_until
from tidemill.files.blobs.blob_store import Blob, BlobStore, try_lock_file
from tidemill.files.remote.checked_connection import (
    BodyCountingStream,
    InterruptibleDeadline,
    derive_file_name,
    remove_url_query,
)

HTTP_OK, HTTP_PARTIAL_CONTENT = HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT
REDIRECT_STATUSES = {301, 302, 303, 307, 308}
TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}  # retried
ACCEPTED_CONTENT_ENCODINGS = {
    "",
    "identity",
    "gzip",
    "x-gzip",
    "zstd",
}  # the readers detect these compressions from the content
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_STRONG_ETAG = re.compile(r'"[!#-~]*"')
_DECIMAL_NUMBER = re.compile(r"[0-9]{1,30}")


@dataclass(frozen=True, slots=True)
class ContentRange:
    first: int
    last: int
    total: int


def describe_http_status(status: int) -> str:
    """Return a message for a status, without the reason phrase that the server sent."""
    try:
        return f"the server responded with {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the server responded with {status}"


def parse_content_length(headers: httpx2.Headers) -> int | None:
    """Return Content-Length; None for chunked transfer encoding, which marks its end.

    Raises:
        InvalidInput: Both are missing, so a truncated file could not be detected.
    """
    if "transfer-encoding" in headers:
        return None
    text = headers.get("content-length", "")
    if not _DECIMAL_NUMBER.fullmatch(text):
        raise InvalidInput("the server sent no Content-Length, so a truncated download could not be detected")
    return int(text)


def check_content_encoding(headers: httpx2.Headers) -> None:
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ACCEPTED_CONTENT_ENCODINGS:
        raise InvalidInput(f"the server used the content encoding {encoding[:20]!r}, which was not requested")


def parse_content_range(headers: httpx2.Headers) -> ContentRange | None:
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip().lower())
    return ContentRange(*(int(number) for number in match.groups())) if match else None


def choose_http_validator(headers: httpx2.Headers) -> str | None:
    """Return a strong validator of the file (RFC 9110, 8.8): a strong ETag, or a Last-Modified at least 1 s old."""
    tag = headers.get("etag", "")
    if _STRONG_ETAG.fullmatch(tag):
        return tag
    changed, now = _parse_http_date(headers.get("last-modified")), _parse_http_date(headers.get("date"))
    if changed is None or now is None or (now - changed).total_seconds() < 1:
        return None
    return headers["last-modified"] if headers["last-modified"].isascii() else None


def parse_retry_after(headers: httpx2.Headers) -> float | None:
    """Return the seconds in Retry-After. A date is compared with the server's Date header, or with the clock."""
    text = headers.get("retry-after", "").strip()
    if _DECIMAL_NUMBER.fullmatch(text):
        return float(text)
    seconds = count_seconds_until(text, headers.get("date"))
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _parse_http_date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):  # malformed header
        return None
    return moment if moment.tzinfo is not None else None


ProgressReport = Callable[[int, int | None], None]  # (downloaded bytes, total bytes if known)


class RemoteFileInfo(msgspec.Struct, frozen=True):
    """The remote file of a partial download."""

    url: str  # without its query
    validator: str | None = None  # for If-Range
    total: int | None = None
    name: str | None = None
    content_type: str | None = None
    etag: str | None = None


class PartialDownload:
    """The data and the metadata of a download, as two files in the scratch folder. The janitor removes stale ones.

    A later process takes over the download by renaming the files, so that the earlier process cannot finish. If the
    earlier process still holds its lock, the later one starts from the beginning.
    """

    def __init__(
        self, blobs: BlobStore, blob_id: str, report_progress: ProgressReport = lambda _size, _total: None
    ) -> None:
        self._report_progress = report_progress
        self._blobs = blobs
        self._blob_id = check_blob_name(blob_id)
        self._flat = blob_id.replace("/", "~")
        self._path = blobs.scratch_folder / f"{self._flat}.{uuid4().hex}.part.tmp"
        make_private_folder(self._path.parent)
        self._file = (None if blobs.has(blob_id) else self._take_over_abandoned_file()) or self._create_locked_file()
        self.size = os.fstat(self._file.fileno()).st_size
        self.about = self._read_info() if self.size else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the disk is full; an earlier write raised it
            self._file.close()

    @property
    def is_complete(self) -> bool:
        return self.about is not None and self.about.total == self.size

    def restart_with_info(self, info: RemoteFileInfo) -> None:
        """Discard the data and start again with this remote file."""
        self.reset()
        self._write_info(info)

    def reset(self) -> None:
        self._file.truncate(0)
        self.size, self.about = 0, None

    def append(self, piece: bytes) -> None:
        self._file.write(piece)
        self.size += len(piece)
        self._report_progress(self.size, None if self.about is None else self.about.total)

    def set_total(self, total: int) -> None:
        if self.about is not None and self.about.total != total:
            self._write_info(msgspec.structs.replace(self.about, total=total))

    def finish(self) -> Blob:
        """Publish the complete file durably. A blob that another process has published is kept: it may be in use."""
        self._file.flush()
        os.fsync(self._file.fileno())
        try:
            blob = self._blobs.publish_scratch_file(self._path, self._blob_id)
        except FileNotFoundError:
            raise Interrupted("Another process took over the download") from None
        self.discard()
        return blob

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)
        self._get_info_path(self._path).unlink(missing_ok=True)

    def _take_over_abandoned_file(self) -> BufferedRandom | None:
        """Take over the file of a process that has stopped; return None if no process left one."""
        for left in self._path.parent.glob(f"{self._flat}.*.part.tmp"):
            with contextlib.suppress(FileNotFoundError):
                left.rename(self._path)
                with contextlib.suppress(FileNotFoundError):
                    self._get_info_path(left).rename(self._get_info_path(self._path))
                file = self._open_file()
                if try_lock_file(file):
                    return file
                file.close()
                self.discard()
        return None

    def _create_locked_file(self) -> BufferedRandom:
        file = self._open_file()
        try_lock_file(file)  # without locks, no process can take over the file
        return file

    def _open_file(self) -> BufferedRandom:
        return cast("BufferedRandom", open_private_file(self._path, "a+b"))

    def _write_info(self, info: RemoteFileInfo) -> None:
        self.about = info
        with open_private_file(self._get_info_path(self._path), "wb") as file:
            file.write(msgspec.json.encode(info))

    def _read_info(self) -> RemoteFileInfo | None:
        try:
            return msgspec.json.decode(self._get_info_path(self._path).read_bytes(), type=RemoteFileInfo)
        except (OSError, msgspec.MsgspecError):
            return None

    @staticmethod
    def _get_info_path(path: Path) -> Path:
        return path.with_name(path.name.replace(".part.tmp", ".about.tmp"))


HTTP_RANGE_NOT_SATISFIABLE = 416
CONNECTION_CLOSE_WAIT_S = 0.3  # every request asks the server to close the connection
BODY_TOO_LONG_MESSAGE = "the server sent more data than it announced"


class RetryableDownloadError(Exception):
    """A temporary failure. ``after``: the seconds in Retry-After, if the server sent it."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


def make_common_request_headers(link: httpx2.URL) -> dict[str, str]:
    """Return the headers of every request."""
    return {
        "Host": link.netloc.decode("ascii"),
        "User-Agent": "tidemill",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }


class PartRequest:
    """One request for the missing rest of a partial download."""

    def __init__(self, part: PartialDownload, link: httpx2.URL, max_bytes: int) -> None:
        self._part = part
        self._link = link
        self._max_bytes = max_bytes
        about = part.about
        self._is_rest = bool(part.size and about and about.validator and about.url == remove_url_query(link))
        self.headers = self._make_headers()

    def _make_headers(self) -> list[tuple[str, str]]:
        headers = make_common_request_headers(self._link)
        if self._is_rest and self._part.about is not None:
            headers |= {"Range": f"bytes={self._part.size}-", "If-Range": str(self._part.about.validator)}
        return list(headers.items())

    def receive_response(
        self, response: httpcore2.Response, headers: httpx2.Headers, deadline: InterruptibleDeadline
    ) -> None:
        """Append the body. The download is complete afterwards, unless the server sent only part of the rest."""
        if response.status == HTTP_OK:
            check_content_encoding(headers)
            length = parse_content_length(headers)
            self._check_max_bytes(length)
            self._part.restart_with_info(self._make_info(headers, length))
        elif response.status == HTTP_PARTIAL_CONTENT and self._is_rest:
            length = self._check_partial_response(headers)
        elif response.status == HTTP_RANGE_NOT_SATISFIABLE and self._is_rest:
            raise self._reset_and_make_error("the remote file is shorter than the downloaded part")
        else:
            raise InvalidInput(describe_http_status(response.status))
        self._copy_body(response, deadline)
        self._check_no_extra_bytes(length, response)
        if self._part.about is not None and self._part.about.total is None:
            self._part.set_total(self._part.size)

    def _make_info(self, headers: httpx2.Headers, total: int | None) -> RemoteFileInfo:
        return RemoteFileInfo(
            remove_url_query(self._link),
            choose_http_validator(headers),
            total,
            derive_file_name(self._link, headers.get("content-disposition")),
            headers.get("content-type"),
            headers.get("etag"),
        )

    def _check_partial_response(self, headers: httpx2.Headers) -> int | None:
        """Check that a partial response continues the same file at the right offset; return its Content-Length."""
        piece, about, part = parse_content_range(headers), self._part.about, self._part
        if piece is None or about is None or piece.first != part.size or not piece.first <= piece.last < piece.total:
            raise self._reset_and_make_error("the server sent a different range than requested")
        if about.total not in (None, piece.total) or headers.get("etag", about.etag) != about.etag:
            raise self._reset_and_make_error("the remote file has changed")
        self._check_max_bytes(piece.total)
        length = parse_content_length(headers)
        if length not in (None, piece.last - piece.first + 1):
            raise self._reset_and_make_error("Content-Length and Content-Range do not match")
        part.set_total(piece.total)
        return length

    def _reset_and_make_error(self, reason: str) -> RetryableDownloadError:
        self._part.reset()
        return RetryableDownloadError(reason)

    def _copy_body(self, response: httpcore2.Response, deadline: InterruptibleDeadline) -> None:
        about, before = self._part.about, self._part.size
        total = about.total if about else None
        for piece in response.iter_stream():
            deadline.check_time_and_interruption()
            size = self._part.size + len(piece)
            if total is not None and size > total:
                raise InvalidInput(BODY_TOO_LONG_MESSAGE)
            self._check_max_bytes(size)
            self._part.append(piece)
        if total is not None and self._part.size == before != total:
            raise RetryableDownloadError("the server sent no data")

    def _check_max_bytes(self, size: int | None) -> None:
        if size is not None and size > self._max_bytes:
            raise TooLarge(f"the file is larger than {self._max_bytes} bytes")

    def _check_no_extra_bytes(self, length: int | None, response: httpcore2.Response) -> None:
        """Raise InvalidInput if data follows the announced length, because the file would be truncated."""
        stream = response.extensions["network_stream"]
        if length is None or not isinstance(stream, BodyCountingStream):
            return
        with contextlib.suppress(httpcore2.TimeoutException, httpcore2.NetworkError):
            stream.read(1, CONNECTION_CLOSE_WAIT_S)
        if stream.body > length:
            raise InvalidInput(BODY_TOO_LONG_MESSAGE)
