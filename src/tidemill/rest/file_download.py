"""Sends stored files: complete, in ranges (RFC 9110), or as a link to the object store."""

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from fastapi import Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from tidemill.core.errors import UnknownFile
from tidemill.core.file_format import COMPRESSION_CONTENT_TYPES, FORMAT_CONTENT_TYPES
from tidemill.rest.problems import HttpError
from tidemill.rest.schema_types import BINARY_CONTENT
from tidemill.runtime import Runtime

DOWNLOAD_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class ByteRange:
    """From ``start`` to before ``end``; empty if there is nothing of the kind in the file."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return max(self.end - self.start, 0)


class StoredFileInfo(Protocol):
    """What is known of a stored file without opening it."""

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
    """The answer to somebody who may have the file; UnknownFile if the store has it no more."""
    etag = f'"{info.sha256}"'
    if matches_etag(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers={"ETag": etag})
    if (link := await asyncio.to_thread(_presign_download, runtime, info)) is not None:
        return RedirectResponse(link, 307, {"Cache-Control": "no-store"})
    part = _parse_requested_range(request, info.size, etag)
    wanted = part or ByteRange(0, info.size)
    file = await asyncio.to_thread(_open_checked_file, runtime, info)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(wanted.length),
        "Content-Disposition": f'attachment; filename="{info.name}"',
        "ETag": etag,
    }
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{info.size}"
    status = 200 if part is None else 206
    return _OpenFileResponse(file, wanted, status, headers, media_type=info.content_type)


class _OpenFileResponse(StreamingResponse):
    """Its file is closed also when whoever asked is gone before the first byte."""

    def __init__(self, file: BinaryIO, wanted: ByteRange, *words: Any, **more: Any) -> None:
        super().__init__(_read_chunks(file, wanted), *words, **more)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def _presign_download(runtime: Runtime, facts: StoredFileInfo) -> str | None:
    """To the store itself, if that is wished and the store can; but not to a file that is gone."""
    seconds = runtime.settings.presigned_s
    link = runtime.blobs.presign_url(facts.file_id, seconds) if seconds else None
    if link is not None and not runtime.blobs.has(facts.file_id):
        raise UnknownFile(f"there is no stored file {facts.file_id}")
    return link


def _open_checked_file(runtime: Runtime, facts: StoredFileInfo) -> BinaryIO:
    """One that was replaced since, by somebody who came late, must not be sent cut to the length of the other."""
    file = runtime.blobs.open(facts.file_id)
    if file.seek(0, os.SEEK_END) != facts.size:
        file.close()
        raise UnknownFile(f"the stored file {facts.file_id} is another one")
    return file


def _parse_requested_range(request: Request, size: int, etag: str) -> ByteRange | None:
    """A part of another file is of no use: with If-Range, whoever has one gets all of this."""
    if request.headers.get("if-range", etag) != etag:
        return None
    part = parse_range_header(request.headers.get("range"), size)
    if part is not None and not part.length:
        raise HttpError(416, f"the file has {size} bytes", {"Content-Range": f"bytes */{size}"})
    return part


def _read_chunks(file: BinaryIO, wanted: ByteRange) -> Iterator[bytes]:
    file.seek(wanted.start)
    left = wanted.length
    while left:
        piece = file.read(min(DOWNLOAD_CHUNK_BYTES, left))
        if not piece:
            raise EOFError("a stored file is shorter than it was")  # the connection breaks
        left -= len(piece)
        yield piece


_FILE_MEDIA_TYPES = [
    name.partition(";")[0] for name in (*FORMAT_CONTENT_TYPES.values(), *COMPRESSION_CONTENT_TYPES.values())
]


FILE_RESPONSE_CONTENT = {
    name: BINARY_CONTENT for name in _FILE_MEDIA_TYPES if name != "application/json"
}  # which is a page, to whoever reads the document


FILE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file; of format json it is application/json", "content": FILE_RESPONSE_CONTENT},
    206: {"description": "The range that was asked for", "content": FILE_RESPONSE_CONTENT},
    304: {"description": "The caller has it: If-None-Match is its ETag"},
    307: {"description": "The file is at the object store, for a while", "content": {}},
}


_RANGE_HEADER_PATTERN = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


def parse_range_header(header: str | None, size: int) -> ByteRange | None:
    """None where all of the file is the answer: nothing was asked, or not in a way that has to be understood."""
    found = _RANGE_HEADER_PATTERN.fullmatch(header or "")
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return ByteRange(max(size - int(found[2]), 0), size)
    start, end = int(found[1]), int(found[2]) + 1 if found[2] else size
    return None if end <= start and found[2] else ByteRange(start, min(end, size))


def matches_etag(if_none_match: str | None, etag: str) -> bool:
    """Whether the caller has this very file."""
    said = [word.strip().removeprefix("W/") for word in (if_none_match or "").split(",")]
    return "*" in said or etag in said
