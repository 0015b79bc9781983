"""Responses that skip models for speed, streams, stored files, and work that ends when the client disconnects."""

import asyncio
import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeVar

import msgspec
from fastapi import Request
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tidemill.core.errors import Busy, QuotaExceeded, UnknownFile
from tidemill.core.file_format import COMPRESSION_CONTENT_TYPES, FORMAT_CONTENT_TYPES
from tidemill.rest.problems import HttpError
from tidemill.rest.schema_types import BINARY_CONTENT
from tidemill.runtime import Runtime

encode_json = msgspec.json.Encoder().encode


class JsonBytesResponse(Response):
    """A response whose body is already encoded as JSON."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        super().__init__(body)


# A stream holds a snapshot and a stream slot while it waits for its client.
STREAM_GRACE_S = 30.0  # a client may be slower in total for this duration
MIN_STREAM_BYTES_PER_S = 10_000


class SlowReader(Exception):
    """The client of a stream reads more slowly than the minimum rate."""


class StreamSlots:
    """Limits concurrent streams, each of which holds a database connection: in total, and for each user."""

    def __init__(self, *, max_open: int, max_per_user: int) -> None:
        self._max_open = max_open
        self._max_per_user = max_per_user
        self._open: Counter[int] = Counter()

    @contextmanager
    def acquire(self, user_id: int) -> Iterator[None]:
        """Hold a slot of this user.

        Raises:
            QuotaExceeded: The user has no free slot.
            Busy: All slots are in use.
        """
        own, total = self._open[user_id], self._open.total()
        if own >= self._max_per_user:
            raise QuotaExceeded("export_streams", own + 1, self._max_per_user, STREAM_SLOT_REMEDY)
        if total >= self._max_open:
            raise Busy(f"{total} exports are already being streamed. {STREAM_SLOT_REMEDY}")
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if not self._open[user_id]:
                del self._open[user_id]


STREAM_SLOT_REMEDY = "Retry later, or submit the export as a job."


class ClosingStreamingResponse(StreamingResponse):
    """Closes its generator in every case: a generator that waits for a slow client does not notice a disconnect."""

    def __init__(self, pieces: AsyncGenerator[bytes], headers: dict[str, str], media_type: str) -> None:
        super().__init__(pieces, 200, headers, media_type)
        self._pieces = pieces
        self._sent_bytes = 0
        self._waited_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_at_minimum_rate(message: Message) -> None:
            allowed_s = STREAM_GRACE_S + self._sent_bytes / MIN_STREAM_BYTES_PER_S - self._waited_s
            started = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, allowed_s)):
                    await send(message)
            except TimeoutError:
                rate = f"{MIN_STREAM_BYTES_PER_S:,} bytes per second"
                raise SlowReader(f"the client read less than {rate}") from None
            self._waited_s += time.monotonic() - started
            self._sent_bytes += len(message.get("body", b""))

        async with aclosing(self._pieces):
            await super().__call__(scope, receive, send_at_minimum_rate)


async def await_first_chunk(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Wait for the first chunk and return the stream. An earlier error can still become a problem document."""
    try:
        first = await anext(chunks, b"")
    except BaseException:
        await chunks.aclose()
        raise
    return _prepend_chunk(first, chunks)


async def _prepend_chunk(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk


T = TypeVar("T")


async def run_until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; cancel it if the client disconnects first. The body must have been read."""
    task = asyncio.create_task(work)
    disconnected = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((task, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HttpError(408, "The client disconnected")
        return task.result()
    finally:
        for running in (task, disconnected):
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_stream_slots(runtime: Runtime) -> StreamSlots:
    settings = runtime.settings
    return StreamSlots(max_open=settings.export_streams, max_per_user=settings.export_streams_per_user)


DOWNLOAD_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes from ``start`` to before ``end``; empty if the file has no such bytes."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return max(self.end - self.start, 0)


class StoredFileInfo(Protocol):
    """Metadata of a stored file."""

    @property
    def file_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def content_type(self) -> str: ...


async def build_stored_file_response(request: Request, runtime: Runtime, info: StoredFileInfo) -> Response:
    """Return a response with a stored file; raise UnknownFile if it no longer exists. The caller checks permissions."""
    etag = f'"{info.sha256}"'
    if matches_etag(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers={"ETag": etag})
    if (link := await asyncio.to_thread(_presign_url_if_enabled, runtime, info)) is not None:
        return RedirectResponse(link, 307, {"Cache-Control": "no-store"})
    part = _parse_requested_range(request, info.size, etag)
    sent = part or ByteRange(0, info.size)
    file = await asyncio.to_thread(_open_checked_file, runtime, info)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(sent.length),
        "Content-Disposition": f'attachment; filename="{info.name}"',
        "ETag": etag,
    }
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{info.size}"
    status = 200 if part is None else 206
    return _OpenFileResponse(file, sent, status, headers, media_type=info.content_type)


class _OpenFileResponse(StreamingResponse):
    """Closes its file even if the client disconnects before the first byte."""

    def __init__(self, file: BinaryIO, part: ByteRange, *args: Any, **kwargs: Any) -> None:
        super().__init__(_read_chunks(file, part), *args, **kwargs)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def _presign_url_if_enabled(runtime: Runtime, facts: StoredFileInfo) -> str | None:
    """Return a presigned URL, or None if that is disabled or not supported; raise UnknownFile if the file is gone."""
    seconds = runtime.settings.presigned_s
    link = runtime.blobs.presign_url(facts.file_id, seconds) if seconds else None
    if link is not None and not runtime.blobs.has(facts.file_id):
        raise UnknownFile(f'Stored file "{facts.file_id}" does not exist')
    return link


def _open_checked_file(runtime: Runtime, facts: StoredFileInfo) -> BinaryIO:
    """Open a file; raise UnknownFile if its size differs, because a late writer may have replaced it."""
    file = runtime.blobs.open(facts.file_id)
    if file.seek(0, os.SEEK_END) != facts.size:
        file.close()
        raise UnknownFile(f'Stored file "{facts.file_id}" has changed')
    return file


def _parse_requested_range(request: Request, size: int, etag: str) -> ByteRange | None:
    """Return the requested range; None for the complete file, also if If-Range names another version of it."""
    if request.headers.get("if-range", etag) != etag:
        return None
    part = parse_range_header(request.headers.get("range"), size)
    if part is not None and not part.length:
        raise HttpError(
            416,
            f"The requested range is outside of the file, which has {size} bytes",
            {"Content-Range": f"bytes */{size}"},
        )
    return part


def _read_chunks(file: BinaryIO, part: ByteRange) -> Iterator[bytes]:
    file.seek(part.start)
    left = part.length
    while left:
        chunk = file.read(min(DOWNLOAD_CHUNK_BYTES, left))
        if not chunk:
            raise EOFError("The stored file became shorter during the download")  # breaks the connection
        left -= len(chunk)
        yield chunk


_FILE_MEDIA_TYPES = [
    name.partition(";")[0] for name in (*FORMAT_CONTENT_TYPES.values(), *COMPRESSION_CONTENT_TYPES.values())
]


# Without application/json: readers of the OpenAPI document take that for a page of a list.
FILE_RESPONSE_CONTENT = {name: BINARY_CONTENT for name in _FILE_MEDIA_TYPES if name != "application/json"}


FILE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file; application/json for the format json", "content": FILE_RESPONSE_CONTENT},
    206: {"description": "The requested range", "content": FILE_RESPONSE_CONTENT},
    304: {"description": "Not modified: If-None-Match matches the ETag"},
    307: {"description": "Redirect to a temporary object store link", "content": {}},
}


_RANGE_HEADER_PATTERN = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


def parse_range_header(header: str | None, size: int) -> ByteRange | None:
    """Return the requested range; None for the complete file, also if the header is malformed or has several ranges."""
    match = _RANGE_HEADER_PATTERN.fullmatch(header or "")
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        return ByteRange(max(size - int(match[2]), 0), size)
    start, end = int(match[1]), int(match[2]) + 1 if match[2] else size
    return None if end <= start and match[2] else ByteRange(start, min(end, size))


def matches_etag(if_none_match: str | None, etag: str) -> bool:
    """Return whether an If-None-Match header matches this ETag."""
    known = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return "*" in known or etag in known
