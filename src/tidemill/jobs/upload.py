"""Uploads: stream files from request bodies to the blob store, within the size limit."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Self

from fastapi import Request

from tidemill.core.errors import InvalidInput, TooLarge
from tidemill.files.blobs.blob_store import Blob, BlobWriter
from tidemill.files.formats.image_zip import ImageZipWriter, clean_file_name
from tidemill.files.layout import FORMATS_BY_SUFFIX, KNOWN_FORMATS
from tidemill.jobs.staged_files import make_staged_files
from tidemill.rest.multipart import PartData, PartStart, parse_multipart
from tidemill.rest.problems import HttpError
from tidemill.rest.request_body import content_length_exceeds
from tidemill.runtime import Runtime

UPLOAD_BUFFER_BYTES = 1 << 20  # written in chunks of this size, each in a thread
FORM_FIELDS_MAX_BYTES = 1 << 20
FORM_FIELD_OVERHEAD_BYTES = 100  # counted for a field in addition to its name and text
UPLOAD_FORMAT_BY_MEDIA_TYPE = {
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
FieldsCheck = Callable[[dict[str, str]], Awaitable[None]]


@dataclass
class UploadedFile:
    """A stored file and the form fields of its request."""

    blob: Blob
    format: str
    name: str
    fields: dict[str, str] = field(default_factory=dict)
    content_type: str = ""


class UploadReceiver:
    """Stores the files of one request and removes an incomplete file."""

    def __init__(self, writing: BlobWriter, *, max_bytes: int, accept_any_type: bool = False) -> None:
        self._accept_any_type = accept_any_type
        self._stack = ExitStack()
        self._writing = self._stack.enter_context(writing)
        self._images: ImageZipWriter | None = None
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._received_bytes = 0
        self.format: str | None = None
        self.media_type = ""
        self.name = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.close)

    async def begin_file(self, name: str, media_type: str, declared_format: str | None = None) -> None:
        """Start a file. A request may have several images, but only one file of another type."""
        if self._accept_any_type:
            self._begin_untyped_file(name, media_type)
            return
        is_image = media_type.startswith("image/") and declared_format in (None, "images")
        if self.format is not None and not (is_image and self._images is not None):
            raise InvalidInput("Upload either one file or one or more images")
        if is_image:
            await self._flush()
            self._images = self._images or self._stack.enter_context(closing(ImageZipWriter(self._writing)))
            self._images.start_image(name)
        self.format = "images" if is_image else _validate_format(declared_format) or _detect_format(media_type, name)
        self.name = self.name or clean_file_name(name)

    def _begin_untyped_file(self, name: str, media_type: str) -> None:
        """Start a file whose type is detected after it is stored."""
        if self.format is not None:
            raise InvalidInput("Upload only one file")
        self.format, self.media_type = "", media_type
        self.name = clean_file_name(name)

    async def write(self, chunk: bytes) -> None:
        self._received_bytes += len(chunk)
        if self._received_bytes > self._max_bytes:
            raise TooLarge(f"The file is larger than {self._max_bytes >> 20} MB")
        self._buffer += chunk
        if len(self._buffer) >= UPLOAD_BUFFER_BYTES:
            await self._flush()

    async def finish(self) -> Blob:
        if self.format is None:
            raise InvalidInput("The request contains no file")
        await self._flush()
        return await asyncio.to_thread((self._images or self._writing).finish)

    async def _flush(self) -> None:
        piece, self._buffer = bytes(self._buffer), bytearray()
        if piece:
            await asyncio.to_thread((self._images or self._writing).write, piece)


async def receive_upload(
    request: Request, runtime: Runtime, *, check: FieldsCheck, accept_any_type: bool = False
) -> UploadedFile:
    """Store the file of a request. ``check`` validates the parameters before the file is read.

    With ``accept_any_type`` the type of the file is detected later.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    max_bytes = runtime.settings.max_file_size_mb << 20
    _check_declared_length(request, max_bytes)
    async with (
        runtime.get(make_staged_files).reserve_name() as name,
        UploadReceiver(
            runtime.blobs.open_writer(name), max_bytes=max_bytes, accept_any_type=accept_any_type
        ) as receiver,
    ):
        if media_type == "multipart/form-data":
            fields = await _receive_multipart(request, receiver, check, max_bytes + FORM_FIELDS_MAX_BYTES)
        else:
            fields = dict(request.query_params)
            # With its charset, which detection may use.
            content_type = request.headers.get("content-type", "") if accept_any_type else media_type
            await receiver.begin_file(fields.get("filename", ""), content_type, fields.get("format"))
            await check(fields)
            async for chunk in request.stream():
                await receiver.write(chunk)
        blob = await receiver.finish()
    return UploadedFile(blob, receiver.format or "", receiver.name, fields, receiver.media_type)


@asynccontextmanager
async def discard_on_error(runtime: Runtime, file: UploadedFile) -> AsyncIterator[None]:
    """Remove the stored file if the block fails."""
    try:
        yield
    except BaseException:
        await runtime.get(make_staged_files).discard(file.blob.id)
        raise


def _check_declared_length(request: Request, max_bytes: int) -> None:
    """Raise TooLarge if the declared length exceeds the limit, before the body is read."""
    if content_length_exceeds(request.headers.get("content-length", ""), max_bytes + FORM_FIELDS_MAX_BYTES):
        raise TooLarge(f"The file is larger than {max_bytes >> 20} MB")


async def _receive_multipart(
    request: Request, receiver: UploadReceiver, check: FieldsCheck, max_bytes: int
) -> dict[str, str]:
    fields: dict[str, str] = dict(request.query_params)
    text, name, size = bytearray(), "", 0
    async for piece in parse_multipart(
        request.headers.get("content-type", ""), _limit_body(request.stream(), max_bytes)
    ):
        if isinstance(piece, PartStart):
            name, is_file = piece.name, piece.filename is not None
            size = _add_field_size(size, 0 if is_file else len(name) + FORM_FIELD_OVERHEAD_BYTES)
            if is_file:
                if receiver.format is None:
                    await check(fields)
                await receiver.begin_file(piece.filename or "", piece.media_type, fields.get("format"))
        elif isinstance(piece, PartData) and is_file:
            await receiver.write(piece.data)
        elif isinstance(piece, PartData):
            size = _add_field_size(size, len(piece.data))
            text += piece.data
        elif not is_file:
            fields[name] = _decode_field(name, bytes(text))
            text.clear()
    return fields


def _add_field_size(size: int, added: int) -> int:
    """Return the total size of all fields, including empty ones; raise TooLarge above the limit."""
    if size + added > FORM_FIELDS_MAX_BYTES:
        raise TooLarge(f"The form fields have more than {FORM_FIELDS_MAX_BYTES} bytes")
    return size + added


async def _limit_body(body: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """Limit the size of the body, because it could have any number of empty parts."""
    seen = 0
    async for piece in body:
        seen += len(piece)
        if seen > max_bytes:
            raise TooLarge(f"The request body is larger than {max_bytes >> 20} MB")
        yield piece


def _decode_field(name: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f'Form field "{name}" is not valid UTF-8') from None


def _validate_format(format_: str | None) -> str | None:
    if format_ is not None and format_ not in KNOWN_FORMATS:
        raise InvalidInput(f'Unknown format "{format_}". Known formats: {", ".join(KNOWN_FORMATS)}.')
    return format_


def _detect_format(media_type: str, name: str) -> str:
    format_ = UPLOAD_FORMAT_BY_MEDIA_TYPE.get(media_type) or FORMATS_BY_SUFFIX.get(PurePath(name).suffix.lower())
    if format_ is None:
        known = ", ".join(["application/json", "multipart/form-data", *UPLOAD_FORMAT_BY_MEDIA_TYPE])
        raise HttpError(415, f'Unsupported content type "{media_type}". Send {known} or an image.')
    return format_
