"""Bodies that are files: streamed into the blob store as they come, counted, and never held in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Self

from fastapi import Request

from tidemill.api.body import is_more
from tidemill.api.multipart import Data, Part, parts
from tidemill.api.problems import Refusal
from tidemill.api.state import Service
from tidemill.connectors.blobs import Blob, Writing
from tidemill.connectors.images import ImagesWriter, clean
from tidemill.connectors.layout import FORMATS, KNOWN_FORMATS
from tidemill.domain.errors import InvalidInput, TooLarge

BUFFER = 1 << 20  # to the disk in pieces of this size, each in a thread
FIELDS_MAX = 1 << 20
FIELD_COST = 100  # bytes that a field takes beside its name and its text
MEDIA_FORMATS = {
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/zip": "images",
    "application/x-zip-compressed": "images",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.apache.parquet": "parquet",
}
Check = Callable[[dict[str, str]], Awaitable[None]]


@dataclass
class Uploaded:
    """A stored file and what came with it."""

    blob: Blob
    format: str
    name: str
    fields: dict[str, str] = field(default_factory=dict)
    content_type: str = ""


class Receiver:
    """Takes the files of one request. What is not finished in the end is removed."""

    def __init__(self, writing: Writing, *, max_bytes: int, any_type: bool = False) -> None:
        self._any_type = any_type
        self._stack = ExitStack()
        self._writing = self._stack.enter_context(writing)
        self._images: ImagesWriter | None = None
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._seen = 0
        self.format: str | None = None
        self.media_type = ""
        self.name = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.close)

    async def begin(self, name: str, media_type: str, said: str | None = None) -> None:
        """Another file begins: images may be many, anything else comes alone."""
        if self._any_type:
            self._begin_any(name, media_type)
            return
        is_image = media_type.startswith("image/") and said in (None, "images")
        if self.format is not None and not (is_image and self._images is not None):
            raise InvalidInput("one file at a time, or several images")
        if is_image:
            await self._flush()
            self._images = self._images or self._stack.enter_context(closing(ImagesWriter(self._writing)))
            self._images.begin(name)
        self.format = "images" if is_image else _said(said) or _format(media_type, name)
        self.name = self.name or clean(name)

    def _begin_any(self, name: str, media_type: str) -> None:
        """What it is will be seen when it is here."""
        if self.format is not None:
            raise InvalidInput("one file at a time")
        self.format, self.media_type = "", media_type
        self.name = clean(name)

    async def write(self, piece: bytes) -> None:
        self._seen += len(piece)
        if self._seen > self._max_bytes:
            raise TooLarge(f"the file has more than {self._max_bytes >> 20} MB")
        self._buffer += piece
        if len(self._buffer) >= BUFFER:
            await self._flush()

    async def finish(self) -> Blob:
        if self.format is None:
            raise InvalidInput("there is no file in this request")
        await self._flush()
        return await asyncio.to_thread((self._images or self._writing).finish)

    async def _flush(self) -> None:
        piece, self._buffer = bytes(self._buffer), bytearray()
        if piece:
            await asyncio.to_thread((self._images or self._writing).write, piece)


async def receive(request: Request, here: Service, *, check: Check, any_type: bool = False) -> Uploaded:
    """Store the body's file. ``check`` looks at the words of the request before the first byte of a file.

    With ``any_type`` the file is whatever it turns out to be.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    max_bytes = here.settings.max_file_size_mb << 20
    _refuse_early(request, max_bytes)
    async with (
        here.incoming.reserved() as name,
        Receiver(here.blobs.write(name), max_bytes=max_bytes, any_type=any_type) as receiver,
    ):
        if media_type == "multipart/form-data":
            fields = await _multipart(request, receiver, check, max_bytes + FIELDS_MAX)
        else:
            fields = dict(request.query_params)
            said = request.headers.get("content-type", "") if any_type else media_type  # its charset may count
            await receiver.begin(fields.get("filename", ""), said, fields.get("format"))
            await check(fields)
            async for piece in request.stream():
                await receiver.write(piece)
        blob = await receiver.finish()
    return Uploaded(blob, receiver.format or "", receiver.name, fields, receiver.media_type)


def _refuse_early(request: Request, max_bytes: int) -> None:
    """A body that says itself that it is too long needs not be read."""
    if is_more(request.headers.get("content-length", ""), max_bytes + FIELDS_MAX):
        raise TooLarge(f"the file has more than {max_bytes >> 20} MB")


async def _multipart(request: Request, receiver: Receiver, check: Check, max_bytes: int) -> dict[str, str]:
    fields: dict[str, str] = dict(request.query_params)
    text, name, size = bytearray(), "", 0
    async for piece in parts(request.headers.get("content-type", ""), _counted(request.stream(), max_bytes)):
        if isinstance(piece, Part):
            name, is_file = piece.name, piece.filename is not None
            size = _more(size, 0 if is_file else len(name) + FIELD_COST)
            if is_file:
                if receiver.format is None:
                    await check(fields)
                await receiver.begin(piece.filename or "", piece.media_type, fields.get("format"))
        elif isinstance(piece, Data) and is_file:
            await receiver.write(piece.data)
        elif isinstance(piece, Data):
            size = _more(size, len(piece.data))
            text += piece.data
        elif not is_file:
            fields[name] = _decoded(name, bytes(text))
            text.clear()
    return fields


def _more(size: int, added: int) -> int:
    """What the fields have taken so far; those that hold nothing take something, too."""
    if size + added > FIELDS_MAX:
        raise TooLarge(f"the fields beside the file have more than {FIELDS_MAX} bytes")
    return size + added


async def _counted(body: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """All of a body has a limit, not only what its parts hold: there is no end to parts that hold nothing."""
    seen = 0
    async for piece in body:
        seen += len(piece)
        if seen > most:
            raise TooLarge(f"the body has more than {most >> 20} MB")
        yield piece


def _decoded(name: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"the field {name!r} is not UTF-8") from None


def _said(format_: str | None) -> str | None:
    if format_ is not None and format_ not in KNOWN_FORMATS:
        raise InvalidInput(f"unknown format {format_!r}; known are {', '.join(KNOWN_FORMATS)}")
    return format_


def _format(media_type: str, name: str) -> str:
    found = MEDIA_FORMATS.get(media_type) or FORMATS.get(PurePath(name).suffix.lower())
    if found is None:
        known = ", ".join(["application/json", "multipart/form-data", *MEDIA_FORMATS])
        raise Refusal(415, f"{media_type or 'a body without a type'} is not taken here: send {known} or an image")
    return found
