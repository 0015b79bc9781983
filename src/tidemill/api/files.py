"""Stored files as answers: whole, in ranges, or as a link to the object store."""

import asyncio
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

from fastapi import Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from tidemill.api.problems import Refusal
from tidemill.api.state import Service
from tidemill.domain.errors import UnknownFile
from tidemill.domain.ranges import ByteRange, asked_range, is_known

PIECE = 1 << 18


class Facts(Protocol):
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


async def send_file(request: Request, here: Service, facts: Facts) -> Response:
    """The answer to somebody who may have the file; UnknownFile if the store has it no more."""
    etag = f'"{facts.sha256}"'
    if is_known(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers={"ETag": etag})
    if (link := await asyncio.to_thread(_link, here, facts)) is not None:
        return RedirectResponse(link, 307, {"Cache-Control": "no-store"})
    part = _part(request, facts.size, etag)
    wanted = part or ByteRange(0, facts.size)
    file = await asyncio.to_thread(_opened, here, facts)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(wanted.length),
        "Content-Disposition": f'attachment; filename="{facts.name}"',
        "ETag": etag,
    }
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{facts.size}"
    status = 200 if part is None else 206
    return _FileAnswer(file, wanted, status, headers, media_type=facts.content_type)


class _FileAnswer(StreamingResponse):
    """Its file is closed also when whoever asked is gone before the first byte."""

    def __init__(self, file: BinaryIO, wanted: ByteRange, *words: Any, **more: Any) -> None:
        super().__init__(_pieces(file, wanted), *words, **more)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def _link(here: Service, facts: Facts) -> str | None:
    """To the store itself, if that is wished and the store can; but not to a file that is gone."""
    seconds = here.settings.presigned_s
    link = here.blobs.presigned(facts.file_id, seconds) if seconds else None
    if link is not None and not here.blobs.has(facts.file_id):
        raise UnknownFile(f"there is no stored file {facts.file_id}")
    return link


def _opened(here: Service, facts: Facts) -> BinaryIO:
    """One that was replaced since, by somebody who came late, must not be sent cut to the length of the other."""
    file = here.blobs.open(facts.file_id)
    if file.seek(0, os.SEEK_END) != facts.size:
        file.close()
        raise UnknownFile(f"the stored file {facts.file_id} is another one")
    return file


def _part(request: Request, size: int, etag: str) -> ByteRange | None:
    """A part of another file is of no use: with If-Range, whoever has one gets all of this."""
    if request.headers.get("if-range", etag) != etag:
        return None
    part = asked_range(request.headers.get("range"), size)
    if part is not None and not part.length:
        raise Refusal(416, f"the file has {size} bytes", {"Content-Range": f"bytes */{size}"})
    return part


def _pieces(file: BinaryIO, wanted: ByteRange) -> Iterator[bytes]:
    file.seek(wanted.start)
    left = wanted.length
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise EOFError("a stored file is shorter than it was")  # the connection breaks
        left -= len(piece)
        yield piece
