"""Uploads: stream files from request bodies to the blob store, within the size limit."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import Request

from tidemill.core.errors import InvalidInput, TooLarge
from tidemill.jobs.staged_files import make_staged_files
from tidemill.jobs.upload_receiver import UploadedFile, UploadReceiver
from tidemill.rest.request_body import PartData, PartStart, content_length_exceeds, parse_multipart
from tidemill.runtime import Runtime

FORM_FIELDS_MAX_BYTES = 1 << 20
FORM_FIELD_OVERHEAD_BYTES = 100  # counted for a field in addition to its name and text
FieldsCheck = Callable[[dict[str, str]], Awaitable[None]]


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
async def discard_upload_on_error(runtime: Runtime, file: UploadedFile) -> AsyncIterator[None]:
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
        request.headers.get("content-type", ""), _iterate_limited_body(request.stream(), max_bytes)
    ):
        if isinstance(piece, PartStart):
            name, is_file = piece.name, piece.filename is not None
            size = _add_and_check_field_size(size, 0 if is_file else len(name) + FORM_FIELD_OVERHEAD_BYTES)
            if is_file:
                if receiver.format is None:
                    await check(fields)
                await receiver.begin_file(piece.filename or "", piece.media_type, fields.get("format"))
        elif isinstance(piece, PartData) and is_file:
            await receiver.write(piece.data)
        elif isinstance(piece, PartData):
            size = _add_and_check_field_size(size, len(piece.data))
            text += piece.data
        elif not is_file:
            fields[name] = _decode_field(name, bytes(text))
            text.clear()
    return fields


def _add_and_check_field_size(size: int, added: int) -> int:
    """Return the total size of all fields, including empty ones; raise TooLarge above the limit."""
    if size + added > FORM_FIELDS_MAX_BYTES:
        raise TooLarge(f"The form fields have more than {FORM_FIELDS_MAX_BYTES} bytes")
    return size + added


async def _iterate_limited_body(body: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
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
